"""Reads a folder of Parquet files as it is to be adopted: `year=2024/region=eu/part-0.parquet`, as Hive,
Spark, pyarrow and DuckDB write partitioned tables without metadata of their own.

Promise: the rows of `Foreign` are those of every file in the folder that readers of such folders read (all
but what `_` or `.` hides), with the values that their folders name as columns after the files' own, typed
over all files as Spark or pyarrow infers them. What those readers treat differently is refused by name.
Requests: a listing, and the end of each file, which is read again when the files are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

import pyarrow as pa

from inlay.errors import AccessDenied, InlayError, UnsupportedTable
from inlay.format.keys import POINTER
from inlay.format.landing import OF_A_TABLE, convention_of
from inlay.format.partition import MAX_FIELDS, written
from inlay.format.schema import Field, Primitive, Schema, Value, fields_within, with_fields
from inlay.format.snapshot import UNPARTITIONED, PartitionField, PartitionSpec
from inlay.format.values import widens
from inlay.ops.adopt.foreign import MAX_FILES, Foreign, ForeignFile, Naming, Sources, joined
from inlay.ops.write.folders import HIVE_NULL, inferred, said_by, value_in
from inlay.parquet.arrow.types import schema_from_arrow, schema_to_arrow, to_physical
from inlay.parquet.read.describe import parse_object_footer, read_tail
from inlay.record import Record, replace
from inlay.storage.base import ObjectStore

_ALONE = "Keep only the files of one table there, or name the folder that has them"
_WRITE = "Have an engine that reads the folder write its files again, all with the same columns"


class _File(Record):
    """A data file, and what its folders say: by name, None for NULL."""

    uri: str
    size: int
    says: Mapping[str, str | None]


def read_hive(sources: Sources, typed_as: str) -> Foreign | None:
    """The files in the folder of `sources` as a table; None where there is none. `typed_as`: how folders'
    values are typed, as in the property `ingest.folders`."""
    files = tuple(_files(sources))
    if not files:
        return None
    names = tuple(files[0].says)
    if len(names) > MAX_FIELDS:
        raise UnsupportedTable(f"its folders name more than {MAX_FIELDS} columns")
    columns = _columns(sources, files)
    shape = [*columns.values(), *_folder_columns(files, names, typed_as)]
    # With ids for all of them, in their order.
    arrow = schema_to_arrow(Schema(0, tuple(shape)), with_ids=False)
    schema = schema_from_arrow(arrow)
    of_folders = {f.name: f for f in schema.fields if f.name in names}
    spec = UNPARTITIONED
    if names:
        ids = (of_folders[name].id for name in names)
        parts = (PartitionField(i, "identity", n) for i, n in zip(ids, names, strict=True))
        spec = PartitionSpec(1, tuple(parts))
    return Foreign(
        kind="Parquet files",
        version=f"{len(files)} files",
        schema=schema,
        last_field_id=schema.max_id(),
        naming=Naming(False, {f.id: (f.name,) for _, f in schema.walk()}),
        files=tuple(_foreign(f, of_folders, arrow, spec) for f in files),
        specs=tuple({s.id: s for s in (UNPARTITIONED, spec)}.values()),
        spec_id=spec.id,
        notes=("rows that files get later in the folder do not come along: they are ingested",),
    )


def _foreign(
    file: _File, columns: Mapping[str, Field], arrow: pa.Schema, spec: PartitionSpec
) -> ForeignFile:
    constants: dict[int, Value | None] = {}
    partition = []
    for name, field in columns.items():
        assert isinstance(field.type, Primitive)
        scalar = value_in(file.says[name], arrow.field(name), 1)[0]
        constants[field.id] = value = to_physical(scalar, field.type)
        partition.append(None if value is None else written(field.type, value))
    return ForeignFile(
        uri=file.uri,
        size=file.size,
        rows=None,
        spec_id=spec.id,
        partition=tuple(partition),
        constants=constants,
    )


# -- which files ----------------------------------------------------------------------------------


def _files(sources: Sources) -> Iterator[_File]:
    at = sources.source(sources.uri("0"))
    prefix = at.key[:-1]
    _check_above(at.store, prefix)
    first: tuple[str, ...] | None = None
    count = 0
    for info in at.store.list(prefix):
        path = info.key.removeprefix(prefix)
        if not _is_data(path, info.size):
            continue
        count += 1
        if count > MAX_FILES:
            raise UnsupportedTable(f"the folder has more than {MAX_FILES} files", next_step=_WRITE)
        says = _says(path)
        first = tuple(says) if first is None else first
        if set(says) != set(first):
            raise UnsupportedTable(
                f"folders of {path[:200]!r} name the columns {_listed(says)}, those of the first file "
                f"{_listed(first)}",
                next_step=_ALONE,
            )
        uri = replace(sources.root, key=joined(sources.root.key, path)).uri
        # In the order of the first: engines go by names.
        yield _File(uri, info.size, {name: says[name] for name in first})


def _check_above(store: ObjectStore, prefix: str) -> None:
    """Raises `UnsupportedTable` where the folder is one of a table's data, or of a partition: deletes and
    files that were replaced are in metadata beside it. What the caller may not list is not looked at."""
    folders = prefix.split("/")
    for n in (n for n, name in enumerate(folders) if name == "data" or "=" in name):
        above = "".join(f"{name}/" for name in folders[:n])
        for beside in (POINTER, "_delta_log/", "metadata/", ".hoodie/"):
            with suppress(AccessDenied):
                for info in islice(store.list(above + beside), MAX_FILES):
                    _is_data("../" + info.key.removeprefix(above), info.size)


def _is_data(path: str, size: int) -> bool:
    parts = path.split("/")
    convention = convention_of(path)
    if parts[-1] == POINTER or (convention is not None and convention.what == OF_A_TABLE):
        raise UnsupportedTable(
            f"the folder has metadata of a table, {path[:200]!r}: its files alone are not its rows",
            next_step="Of a table that a catalog keeps (Glue, REST, Hive), name the metadata file that the "
            "catalog shows: metadata/….metadata.json. A table of Inlay is opened where it is",
        )
    hidden = [part for part in parts if part[:1] in ("_", ".")]
    if any("=" in part for part in hidden):
        raise UnsupportedTable(
            f"a folder of {path[:200]!r} names a column that begins with _ or .: Spark reads its files, "
            "pyarrow and Hive do not",
            next_step="Rename the folder, or move it away",
        )
    if hidden or not size:
        return False
    if convention is not None:
        raise UnsupportedTable(
            f"{path[:200]!r} is in the folder, and is not read as Parquet: {convention.what}",
            next_step=_ALONE,
        )
    return True


def _says(path: str) -> dict[str, str | None]:
    says: dict[str, str | None] = {}
    for name, text in said_by(path, empty=True):
        if not text:
            raise UnsupportedTable(
                f"a folder of {path[:200]!r} names column {name!r} without a value, which engines read "
                "differently",
                next_step=f"Name the folder {name}={HIVE_NULL} for NULL",
            )
        if name.casefold() in {known.casefold() for known in says}:
            raise UnsupportedTable(
                f"two folders of {path[:200]!r} name column {name!r}", next_step=_ALONE
            )
        says[name] = None if text == HIVE_NULL else text
    return says


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


# -- their columns --------------------------------------------------------------------------------


def _folder_columns(files: Iterable[_File], names: Iterable[str], typed_as: str) -> Iterator[Field]:
    for name in names:
        texts = {file.says[name] for file in files}
        kind = inferred((text for text in texts if text is not None), typed_as)
        yield schema_from_arrow(pa.schema([pa.field(name, kind)])).fields[0]


def _columns(sources: Sources, files: tuple[_File, ...]) -> Mapping[str, Field]:
    """The columns of the files by name, each wide enough for all of them; every one takes NULL."""
    says = {name.casefold(): name for name in files[0].says}

    def look(file: _File) -> pa.Schema:
        source = sources.source(file.uri, file.size)
        got = read_tail(source.store, source.location)
        try:
            return parse_object_footer(got.body, size=got.size).arrow
        except InlayError as error:
            raise error.about(key=file.uri) from None

    columns: dict[str, Field] = {}
    known: pa.Schema | None = None
    for file, arrow in zip(files, sources.ctx.map(look, files), strict=True):
        if known is not None and arrow.equals(known):
            continue
        known = arrow
        for field in map(_shape, schema_from_arrow(arrow).fields):
            twice = says.get(field.name.casefold())
            if twice is not None:
                raise UnsupportedTable(
                    f"a file has column {field.name!r}, and its folder names {twice!r} as well: engines "
                    "differ in which they read",
                    key=file.uri,
                    next_step="Drop the column from the files, or rename the folders (order_day=…)",
                )
            before = columns.get(field.name)
            columns[field.name] = field if before is None else _wider(before, field, file.uri)
    if len({name.casefold() for name in columns}) < len(columns):
        raise UnsupportedTable(
            "files have columns whose names differ in the case of letters alone, which engines read "
            "differently",
            next_step=_WRITE,
        )
    return columns


def _shape(field: Field) -> Field:
    """Without ids and comments; what is within it takes NULL, too."""
    kind = with_fields(field.type, _shape)
    return replace(field, id=0, doc="", nullable=True, type=kind)


def _wider(one: Field, other: Field, uri: str) -> Field:
    if one.type == other.type:
        return one
    if isinstance(one.type, Primitive) and isinstance(other.type, Primitive):
        if widens(one.type, other.type):
            return other
        if widens(other.type, one.type):
            return one
    raise UnsupportedTable(
        f"column {one.name!r} is {_type_text(other)} in a file and {_type_text(one)} in others",
        key=uri,
        next_step=_WRITE,
    )


def _type_text(field: Field) -> str:
    if isinstance(field.type, Primitive):
        return str(field.type)
    within = ", ".join(f.name for f in fields_within(field.type))
    return f"a {type(field.type).__name__} of {within}"

"""Adopt: an Iceberg or Delta table, or a folder of Parquet files, becomes a table of Inlay, where it is.

Promise: a scan of the new table returns the rows that the source's own readers return of its newest
version, or there is no new table: what cannot be carried is refused by name. Files are not copied (with
`copy` they are, on the server, and those that lack partition columns are written again with them; in place
the entry's partition has their values, docs/FORMAT.md, section 15); columns keep their field ids, deletes
become markers, the source is not touched and its history is left alone. The table is created by one PUT,
with everything in it: a process killed before leaves unreferenced objects.

Callers: `inlay.adopt`, `inlay adopt`. Every data file's footer is read (one request each), and the columns
that `ingest.check_statistics` asks for, to compare them with the footer's statistics. Columns are found in
files by name (docs/FORMAT.md, section 6), so a file in which a column has another name, or in which its
name is another column's, is recorded under a schema of its own that says so.

What can go wrong afterwards: the files stay the source's, and its maintenance (VACUUM, expire_snapshots,
DROP) may delete them; scans then fail by name (`ObjectGone`), and erasing rows here leaves them there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyroaring import BitMap64

from inlay.errors import (
    CorruptTable,
    InlayError,
    NotAllowed,
    SchemaMismatch,
    SourceChanged,
    UnsupportedFile,
    UnsupportedTable,
)
from inlay.format import keys
from inlay.format.entry import ColumnStats, DataFile, Marker, Rows
from inlay.format.partition import Partition, written
from inlay.format.properties import (
    Properties,
    check_named_columns,
    check_properties,
    with_arrow_types,
)
from inlay.format.schema import (
    MAX_FIELD_ID,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    Value,
)
from inlay.format.snapshot import (
    PARTITION_VALUES,
    Commit,
    PartitionField,
    PartitionSpec,
    Snapshot,
)
from inlay.format.values import widens
from inlay.ops.adopt.delta import has_log, read_delta
from inlay.ops.adopt.foreign import Foreign, ForeignFile, KeyDelete, Naming, Sources, field_id_of
from inlay.ops.adopt.hive import read_hive
from inlay.ops.adopt.iceberg import find_metadata, read_iceberg
from inlay.ops.context import Context
from inlay.ops.data import write_batches
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.read.check_pages import check_lists, check_pages, checks_pages
from inlay.ops.read.compare_statistics import denied_rows
from inlay.ops.row_markers import vector_markers
from inlay.ops.schema.create import CREATE, check_free, first_version
from inlay.ops.server_copy import copy_object
from inlay.ops.write.keyed_rows import markers_of_keys
from inlay.parquet.arrow.types import (
    is_list,
    paired,
    plain_type,
    primitive_from_arrow,
    schema_to_arrow,
    to_arrow_scalar,
)
from inlay.parquet.read.data_file import FooterOf
from inlay.parquet.read.describe import (
    doubted_lists,
    entry_of,
    parse_object_footer,
    partition_in,
    read_tail,
)
from inlay.parquet.read.old_times import Times, as_table, check_times, retyped, shifts_dates
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.plan.change import AddFiles, AddMarkers, Change, Request
from inlay.plan.commit.apply import denies_version
from inlay.plan.metadata.state import State, choose_stats_columns
from inlay.plan.pruning.compared import compared_columns
from inlay.plan.pruning.partitions import value_in, with_partition, with_partition_values
from inlay.plan.scan import FileTask
from inlay.record import Record, replace
from inlay.storage.base import Location
from inlay.storage.open import named_location, parse_location

ADOPT = "adopt"
# Ways in which files of one source may name its columns.
MAX_SCHEMAS = 64
# From here on Iceberg's ids are of metadata columns, such as row ids.
_FIRST_RESERVED_ID = 2_147_483_447
# Of the vectors in one object: together below 32 MB even if nothing compresses.
OBJECT_POSITIONS = 2_000_000
OBJECT_FILES = 4_096
_STAYS = (
    "the files stay the source table's: its VACUUM, expire_snapshots or DROP would take rows away here, "
    "and an erasure here leaves its files as they are. End its maintenance, or adopt with copy"
)


class Adopted(Record, kw_only=True):
    """The new table, and what it was made of. `deleted_rows` None: deletes by keys do not know. `notes` say
    what did not come along, and what to take care of."""

    loaded: LoadedTable
    kind: str
    source_version: str
    files: int
    rows: int
    deleted_rows: int | None
    markers: int
    copied: bool
    notes: tuple[str, ...] = ()


def adopt(
    ctx: Context,
    source: str,
    *,
    copy: bool = False,
    adopt_from: Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    request: Request | None = None,
) -> Adopted:
    """The table at `source` as a new table at `ctx.root`. `source` is a folder, or a metadata file of
    Iceberg; `properties` of the new table, of which `ingest.folders` says how the values of folders are
    typed (by default as Spark does); `adopt_from` are patterns of `bucket/key` where files may be besides
    the source's folder.

    Raises `TableExists`, `UnsupportedTable`, `NotGranted`, and what `ingest` raises of a file."""
    checked = check_properties(properties or {})
    date_us = check_free(ctx)
    with of_the_source():
        sources, foreign = _read(ctx, source, tuple(adopt_from), Properties(checked))
        return found_table(sources, foreign, checked, date_us=date_us, copy=copy, request=request)


def found_table(
    sources: Sources,
    foreign: Foreign,
    properties: Mapping[str, str],
    *,
    date_us: int,
    copy: bool = False,
    own: bool = False,
    table_id: str | None = None,
    request: Request | None = None,
) -> Adopted:
    """The table `foreign` as a new one. `own`: its files are under the new table's root, and are its own
    from now on; those that it cannot keep as they are, are written again."""
    ctx = sources.ctx
    operation = CREATE if own else ADOPT
    begun = Commit(id=ctx.new_id(), operation=operation)
    base = _empty(ctx, foreign, properties, date_us, begun, table_id or ctx.new_id())
    looked = look_at_all(sources, foreign, base.snapshot, copy=copy or own)
    for seen in looked:
        deleted_rows = foreign.positions.get(seen.uri)
        if deleted_rows and deleted_rows.max() >= seen.entry.rows:
            raise CorruptTable("a delete is beyond the end of its data file", key=seen.uri)
    whole = [seen for seen in looked if not seen.again]
    base, entries = _recorded(base, whole)
    if denies_version(base.snapshot):
        raise NotAllowed(
            f"columns that are only in paths or metadata take format version {PARTITION_VALUES}, which the "
            "property format.max_version denies",
            next_step="Adopt with copy, which writes such files again with their columns",
            table=ctx.uri,
        )
    if copy:
        entries = _copied(ctx, entries, date_us)
    if own:
        entries = tuple(as_own(sources, e) for e in entries)
    # By URI in the source: the files that have its rows.
    made: dict[str, tuple[DataFile, ...]] = {
        s.uri: (e,) for s, e in zip(whole, entries, strict=True)
    }
    for seen in looked:
        if seen.again:  # one at a time: they are read
            made[seen.uri] = written_again(sources, foreign, base, seen)
    live = tuple(e for entries in made.values() for e in entries if e.rows)
    names = {uri: tuple(e.key for e in entries if e.rows) for uri, entries in made.items()}
    positions = {s.uri: foreign.positions[s.uri] for s in whole if s.uri in foreign.positions}
    markers = tuple(_markers(ctx, base, positions, foreign.keys, names))
    deleted = sum(map(len, positions.values()))
    change = Change(
        operation=operation,
        request=request,
        objects=tuple(seen.request for seen in looked) if own else (),
        updates=(
            AddFiles(live, compared=frozenset(compared_columns(base.snapshot))),
            AddMarkers(markers),
        ),
        deleted_rows=None if foreign.keys else deleted,
    )
    loaded = first_version(ctx, base, change)
    return Adopted(
        loaded=loaded,
        kind=foreign.kind,
        source_version=foreign.version,
        files=len(live),
        rows=sum(e.rows for e in live),
        deleted_rows=change.deleted_rows,
        markers=len(markers),
        copied=copy,
        notes=(*foreign.notes, *(() if copy or own else (_STAYS,)), *_version_note(base.snapshot)),
    )


def _version_note(snapshot: Snapshot) -> Iterator[str]:
    fields = {i: field.name for s in snapshot.schemas for i, field in s.in_partition.items()}
    if fields:
        yield (
            f"columns that only paths or metadata have ({', '.join(fields.values())}) make it a table of "
            f"format version {PARTITION_VALUES}, which older libraries refuse; adopting with copy does not"
        )


def as_own(sources: Sources, entry: DataFile) -> DataFile:
    """The entry of a file under the table's root, which is the table's own from now on."""
    root = f"{sources.root.uri.rstrip('/')}/"
    if not entry.key.startswith(root):
        return entry
    event = Request.of(f"{entry.key}@{entry.etag}").token
    return replace(entry, key=entry.key.removeprefix(root), adopted=False, etag=None, event=event)


@contextmanager
def of_the_source() -> Iterator[None]:
    """What is damaged is no table of Inlay: `inlay verify` would not find it."""
    try:
        yield
    except CorruptTable as error:
        if error.next_step == error.default_next_step:
            error.next_step = (
                "Nothing was changed. Have an engine check the source, or write it again"
            )
        raise


def _read(
    ctx: Context, source: str, granted: tuple[str, ...], properties: Properties
) -> tuple[Sources, Foreign]:
    at = parse_location(source)
    if at.key.endswith((".json", ".json.gz")):
        folder, _, _ = at.key.rpartition("/")
        root, _, last = folder.rpartition("/")
        # As all writers lay it out; in another layout the files must be granted.
        own = replace(at, key=root if last == "metadata" else folder)
        sources = Sources.of(ctx, own, granted)
        return sources, read_iceberg(sources, at.uri)
    folder, _, last = at.key.rpartition("/")
    if last == "_delta_log":
        sources = Sources.of(ctx, replace(at, key=folder), granted)
        return sources, read_delta(sources)
    sources = Sources.of(ctx, at, granted)
    is_delta = has_log(sources)
    metadata = find_metadata(sources)
    if metadata is not None and is_delta:
        raise UnsupportedTable(
            f"{source} is a table of Delta and of Iceberg",
            next_step="Name one of them: the metadata file of Iceberg, or the folder _delta_log",
        )
    if metadata is not None:
        return sources, read_iceberg(sources, metadata)
    if is_delta:
        return sources, read_delta(sources)
    typed_as = properties.text("ingest.folders")
    folder_of_files = read_hive(sources, "spark" if typed_as == "refuse" else typed_as)
    if folder_of_files is not None:
        return sources, folder_of_files
    raise UnsupportedTable(
        f"nothing is at {source}: neither metadata/version-hint.text, nor _delta_log, nor Parquet files",
        next_step="Of a table that a catalog keeps (Glue, REST, Hive), name the metadata file that the "
        "catalog shows: metadata/….metadata.json",
    )


def _empty(
    ctx: Context,
    foreign: Foreign,
    properties: Mapping[str, str],
    date_us: int,
    begun: Commit,
    table_id: str,
) -> LoadedTable:
    """The table before its first version, which is planned like any commit."""
    if foreign.last_field_id > MAX_FIELD_ID:
        raise UnsupportedTable(
            f"the table's last field id is {foreign.last_field_id}; Inlay has none above {MAX_FIELD_ID}",
            next_step="Copy the rows by an engine to a table whose columns have other ids, and adopt that",
        )
    schema = foreign.schema
    check_named_columns(properties, schema)
    spec = next(s for s in foreign.specs if s.id == foreign.spec_id)
    snapshot = Snapshot(
        table_id=table_id,
        version=0,
        commit=begun,
        schemas=(schema,),
        schema_id=schema.id,
        last_field_id=foreign.last_field_id,
        primary_key=foreign.primary_key,
        sort_by=(),
        specs=foreign.specs,
        spec_id=foreign.spec_id,
        stats_columns=choose_stats_columns(
            schema, foreign.primary_key, (), properties, partitioned_by=_sources_of(spec)
        ),
        properties=with_arrow_types(properties, foreign.declared),
        time_index=(),
    )
    return LoadedTable(State(snapshot), "", b"", date_us, ctx.clock.monotonic())


def _sources_of(spec: PartitionSpec) -> tuple[int, ...]:
    return tuple(field.source for field in spec.fields)


# -- files ----------------------------------------------------------------------------------------


class Seen(Record):
    """A data file as its footer describes it, read under columns of these names. `absent` are values, by
    field id, of columns that it lacks and its partition has not: it has to be written again with them, as
    has one whose statistics leave out rows of it (`denies`), one with INT96 (`times`) where the table's
    column is another, and one with columns that the source's readers cast, which are of the types in
    `stored`. `optional` are required columns whose rows have to show that none is NULL.
    `stated` is what its partition says of columns that it has, where its footer does not show that;
    `unproven` are columns that can be read only if its footer's statistics of them are true, `lists` those
    that have to show that their lists can be told."""

    entry: DataFile
    fields: tuple[Field, ...]
    absent: Mapping[int, Value | None]
    times: Times
    stated: Mapping[int, ColumnStats]
    stored: Mapping[int, Primitive]
    unproven: frozenset[int] = frozenset()
    lists: frozenset[str] = frozenset()
    optional: tuple[int, ...] = ()
    denies: bool = False
    modified_us: int = 0  # when it was written, by its store
    footer: FooterOf | None = None  # until it is compared: there may be many files

    @property
    def again(self) -> bool:
        return bool(self.absent or self.stored) or self.denies or self.times.rewrite

    def read_as(self, schema: Schema) -> Schema:
        """`schema` as this file is read to be written again."""
        return retyped(self.times.read_as(schema), self.stored)

    @property
    def request(self) -> Request:
        """The object as ingest would name it: whoever brings it first, has brought it."""
        return Request.of(f"{self.entry.key}@{self.entry.etag}", time_us=self.modified_us)

    @property
    def uri(self) -> str:
        return self.entry.key


def look_at_all(
    sources: Sources, foreign: Foreign, snapshot: Snapshot, *, copy: bool
) -> list[Seen]:
    uris = {f.uri for f in foreign.files}
    if len(uris) < len(foreign.files):
        raise UnsupportedTable(
            "the source names one data file in two ways, and so has its rows twice"
        )
    specs = {s.id: s for s in foreign.specs}

    def look(file: ForeignFile) -> Seen:
        with _of_the_file(sources, file.uri):
            seen = _examine(sources, foreign, snapshot, file, specs[file.spec_id], copy=copy)
            if seen.absent and not copy:
                raise _not_in_files(snapshot.schema, seen)
            if seen.times.rewrite and not copy:
                raise UnsupportedTable(
                    f"column {seen.times.names} is stored as INT96, which a file of the table cannot have "
                    "for it",
                    next_step="Adopt with copy, which writes such files again with the same times",
                )
            if seen.stored and not copy:
                raise _cast_elsewhere(snapshot.schema, seen)
        return seen

    compared = compared_columns(snapshot)
    looked_at: list[Seen] = []
    for seen in sources.ctx.map(look, foreign.files):
        # One after the other: a row group of a column is decoded at a time.
        with _of_the_file(sources, seen.uri):
            if seen.times:
                assert seen.footer is not None
                check_times(sources.reader, seen.entry, seen.times, seen.footer)
            if seen.optional and not seen.again:
                _check_required(sources, seen, snapshot.schema)
            if seen.stated:
                _check_stated(sources, seen, snapshot.schema)
            read = seen.times.read_as(Schema(0, seen.fields))
            task = FileTask(file=seen.entry, schema=read, int96=seen.times.unit)
            check_lists(sources.reader, task, seen.lists)
            if checks_pages(snapshot) and seen.entry.rows:
                check_pages(sources.reader, task)
            columns = (*compared, *seen.unproven.difference(compared))
            done = _compared(sources, seen, snapshot, columns, copy=copy) if columns else seen
        looked_at.append(replace(done, footer=None))
        sources.ctx.progress("files", len(looked_at), len(foreign.files))
    return looked_at


@contextmanager
def _of_the_file(sources: Sources, uri: str) -> Iterator[None]:
    """Errors are about this file of the source, which the caller does not write."""
    try:
        yield
    except InlayError as error:
        if isinstance(error, SchemaMismatch):
            error.next_step = (
                "Nothing was changed. Have an engine that reads the source write its files again in the "
                "table's types, and adopt that; or append what it reads"
            )
        raise error.about(table=sources.root.uri, key=uri) from None


def _check_required(sources: Sources, seen: Seen, schema: Schema) -> None:
    """That these columns can be read as required ones."""
    task = FileTask(file=seen.entry, schema=Schema(0, seen.fields))
    projection = Projection(schema=schema, columns=seen.optional)
    for _ in sources.reader.rows([task], projection):
        pass


def _check_stated(sources: Sources, seen: Seen, schema: Schema) -> None:
    """Delta's readers and some of Iceberg's take a partition's value for that of each row, others the
    column's own: these must be the same."""
    names = denied_rows(
        sources.reader,
        seen.entry,
        Schema(0, seen.fields),
        schema,
        tuple(seen.stated),
        footer=seen.footer,
        stated=seen.stated,
    )
    if names is not None:
        raise CorruptTable(
            f"a data file has rows of another partition than its table says (columns checked: {names})",
            next_step="Rewrite the source's data files",
        )


def _compared(
    sources: Sources, seen: Seen, snapshot: Snapshot, compared: Sequence[int], *, copy: bool
) -> Seen:
    """Marked, if its statistics leave out rows that it has."""
    if seen.again or not seen.entry.rows:
        return seen
    names = denied_rows(
        sources.reader,
        seen.entry,
        Schema(0, seen.fields),
        snapshot.schema,
        compared,
        footer=seen.footer,
    )
    if names is not None and not copy:
        raise UnsupportedFile(
            f"its statistics leave out rows that it has (columns checked: {names})",
            next_step="Adopt with copy, which writes such files again; or with the property "
            "ingest.check_statistics=none: then upserts and deletes miss those rows",
        )
    return replace(seen, denies=names is not None)


def _examine(
    sources: Sources,
    foreign: Foreign,
    snapshot: Snapshot,
    file: ForeignFile,
    spec: PartitionSpec,
    *,
    copy: bool,
) -> Seen:
    source = sources.source(file.uri, file.size)
    got = read_tail(source.store, source.location)
    if got.size != file.size:
        raise CorruptTable(f"a data file has {got.size} bytes, its table says {file.size}")
    described = parse_object_footer(got.body, size=got.size)
    if file.rows not in (None, described.rows):
        raise CorruptTable(f"a data file has {described.rows} rows, its table says {file.rows}")
    fields = _Columns(foreign.naming, described.arrow).of(snapshot.schema)
    has = set(described.arrow.names)
    there = {f.id for f in fields if f.name in has}
    lacking = {i: value for i, value in file.constants.items() if i not in there}
    placed = {} if copy else _placed(snapshot.schema, spec, file.partition, lacking, has)
    absent = {i: value for i, value in lacking.items() if i not in placed}
    fields = (*(f for f in fields if f.id not in lacking), *placed.values())
    schema = Schema(0, fields)
    times = Times.of(described.footer, described.arrow, schema)
    fixed = {*file.constants, *_sources_of(spec)}
    stored = _stored(described.arrow, schema, foreign, without=fixed)
    unsure = _optional(described.arrow, fields)
    entry, unproven = entry_of(
        described,
        key=file.uri,
        size=got.size,
        schema=retyped(
            times.as_stored(with_partition_values(schema, schema, file.partition)), stored
        ),
        stats_columns=snapshot.stats_columns,
        extra_columns=True,
        without_nulls=unsure,
    )
    proven = {i for i, stats in entry.stats.items() if stats.null_count == 0}
    optional = tuple({top for i, top in unsure.items() if i not in proven})
    shown = None
    if spec.fields and described.rows and not absent:
        values = with_partition_values(schema, schema, file.partition)
        shown = partition_in(described, values, spec)
        if shown is not None and shown != file.partition:
            raise CorruptTable("a data file is not in the partition that its table says")
    entry = replace(
        entry, adopted=True, etag=got.etag, spec_id=file.spec_id, partition=file.partition
    )
    shown_of = () if shown is None else _sources_of(spec)
    stated = {
        i: stats
        for i, stats in _stated(entry, schema, spec, file.constants).items()
        if i in there and i not in shown_of and i not in times.ids and described.rows
    }
    return Seen(
        entry,
        fields,
        absent,
        times,
        stated,
        stored,
        unproven.difference(i for i in unsure if i not in proven),
        doubted_lists(described.footer),
        optional,
        modified_us=got.modified_us,
        footer=described.footer_of(got),
    )


def _placed(
    schema: Schema,
    spec: PartitionSpec,
    partition: Partition,
    lacking: Mapping[int, Value | None],
    has: Collection[str],
) -> Mapping[int, Field]:
    """Of the columns that a file lacks, those whose values its partition has exactly, as they are recorded
    for the file: none that has another column of their name."""
    fields: dict[int, Field] = {}
    for place, part in enumerate(spec.fields[: len(partition)]):
        field = schema.by_id(part.source)
        if part.transform != "identity" or part.source not in lacking or field is None:
            continue
        recorded = replace(field, in_partition=place)
        # As text: 0.0 is kept for -0.0, and NaN equals itself.
        same = repr(value_in(recorded, partition)) == repr(lacking[part.source])
        if same and field.name not in has and schema.column(field.name) is field:
            fields[part.source] = recorded
    return fields


def _stored(
    arrow: pa.Schema, schema: Schema, foreign: Foreign, *, without: Collection[int]
) -> Mapping[int, Primitive]:
    """The types of columns that the source's readers cast, by field id."""
    kinds: dict[int, Primitive] = {}
    # Instants of an old calendar are shifted by some readers, and looked at where they have a zone.
    is_old = shifts_dates(arrow.metadata or {})
    for _, column, field, _ in paired(arrow, schema.fields):
        if not isinstance(field.type, Primitive) or field.id in without:
            continue
        kind = primitive_from_arrow(plain_type(column.type))
        if kind is None or widens(kind, field.type) or (is_old and kind.is_temporal):
            continue
        if foreign.casts(kind, field.type):
            kinds[field.id] = kind
    return kinds


def _optional(arrow: pa.Schema, fields: tuple[Field, ...]) -> Mapping[int, int]:
    """Required columns, at any depth, that may be NULL in a file by its schema: the top-level column that
    each is within."""
    tops = {field.name: field.id for field in fields}
    return {
        field.id: tops[path[0]]
        for path, column, field, _ in paired(arrow, fields)
        if column.nullable and not field.nullable
    }


def _stated(
    entry: DataFile, schema: Schema, spec: PartitionSpec, constants: Mapping[int, Value | None]
) -> Mapping[int, ColumnStats]:
    """What the partition of a file says of its columns, and its metadata beside that (`constants`)."""
    known = {f.id: f.type for f in schema.fields if isinstance(f.type, Primitive)}
    stats_of: dict[int, ColumnStats] = {}
    for field_id, value in constants.items():
        if field_id in known:
            single = PartitionSpec(1, (PartitionField(field_id, "identity", ""),))
            own = None if value is None else written(known[field_id], value)
            of = replace(entry, partition=(own,))
            stats_of[field_id] = with_partition(ColumnStats(), of, schema, single, field_id)
    for source in _sources_of(spec):
        if source in known:
            known_so_far = stats_of.get(source, ColumnStats())
            stats_of[source] = with_partition(known_so_far, entry, schema, spec, source)
    return {i: stats for i, stats in stats_of.items() if stats != ColumnStats()}


def _cast_elsewhere(schema: Schema, seen: Seen) -> UnsupportedTable:
    names = {field.id: ".".join(path) for path, field in schema.walk()}
    columns = ", ".join(f"{names[i]!r} as {kind}" for i, kind in seen.stored.items())
    return UnsupportedTable(
        f"a file stores column {columns}, which the source's readers cast, and Inlay's do not",
        next_step="Adopt with copy, which writes such files again with the same values",
    )


def _not_in_files(schema: Schema, seen: Seen) -> UnsupportedTable:
    fields = (schema.by_id(field_id) for field_id in sorted(seen.absent))
    names = ", ".join(repr(field.name) for field in fields if field is not None)
    return UnsupportedTable(
        f"column {names} is only in paths or metadata of the source, not in its files, and a file has "
        "no place for that in Inlay",
        next_step="Adopt with copy, which writes such files again with their columns",
    )


class _Columns:
    """The columns of a table in one of its files, which may have other names there."""

    def __init__(self, naming: Naming, arrow: pa.Schema) -> None:
        self.arrow = arrow
        self.by_id = naming.ids and _has_ids(a for a in arrow if a.name != naming.no_column)
        if not self.by_id and naming.names is None:
            raise UnsupportedTable(
                "a data file has no field ids, and the table no mapping of names",
                next_step="Rewrite the source's data files, or in Iceberg say by which names they are read "
                "(schema.name-mapping.default)",
            )
        self.names = naming.names or {}
        self.inner_ids = naming.inner_ids
        self.last_id = naming.last_id

    def of(self, schema: Schema) -> tuple[Field, ...]:
        """The fields as recorded for the file: under its names, and without those whose name is another
        column's there."""
        if self.last_id is not None:
            self._check_ids(self.last_id, schema)
        return self._fields(list(self.arrow), schema.fields, ())

    def _check_ids(self, last_id: int, schema: Schema) -> None:
        for column in _columns_of(self.arrow) if self.by_id else ():
            field_id = field_id_of(column)
            if field_id is not None and last_id < field_id < _FIRST_RESERVED_ID:
                raise UnsupportedTable(
                    f"column {column.name!r} of a data file has field id {field_id}, and the table's last "
                    f"one is {last_id}: its values would be read as NULL",
                    next_step="Write the file with the field ids of the table's schema",
                )
        there = {f.name for f in schema.fields if any(self._is(a, f) for a in self.arrow)}
        names = set() if self.by_id else set(self.arrow.names)
        unnamed = names.intersection(schema.names) - there
        if unnamed or not there:
            raise UnsupportedTable(
                f"{f'column {min(unnamed)!r}' if unnamed else 'no column'} of a data file is "
                f"{'in no name mapping' if unnamed else 'one of the table'}: it would be read as NULL",
                next_step="Write the file with the columns and field ids of the table's schema, or say by "
                "which names it is read (schema.name-mapping.default)",
            )

    def _fields(
        self, arrow: Sequence[pa.Field], fields: tuple[Field, ...], path: tuple[str, ...]
    ) -> tuple[Field, ...]:
        taken = {a.name for a in arrow}
        matched: list[Field] = []
        for field in fields:
            here = (*path, field.name)
            columns = [a for a in arrow if self._is(a, field)]
            if len(columns) > 1:
                raise UnsupportedTable(
                    f"a data file has two columns that are {'.'.join(here)!r}",
                    next_step="Rewrite the source's data files",
                )
            if self._is_nearly(taken.difference(a.name for a in columns), field):
                raise UnsupportedTable(
                    f"a data file has column {'.'.join(here)!r} in other letters, which some engines read",
                    next_step="Rewrite the source's data files",
                )
            if columns:
                kind = self._type(columns[0].type, field.type, here)
                matched.append(replace(field, name=columns[0].name, type=kind))
            elif field.name not in taken:
                matched.append(field)
            elif not field.nullable and field.default is None:
                raise UnsupportedTable(
                    f"a data file lacks column {'.'.join(here)!r}, which is required",
                    next_step="Rewrite the source's data files",
                )
        return tuple(matched)

    def _is(self, arrow: pa.Field, field: Field) -> bool:
        if self.by_id:
            return field_id_of(arrow) == field.id
        return arrow.name in self.names.get(field.id, ())

    def _is_nearly(self, taken: set[str], field: Field) -> bool:
        names = {name.casefold() for name in self.names.get(field.id, ())}
        return not self.by_id and any(name.casefold() in names for name in taken)

    def _type(self, arrow: pa.DataType, kind: Type, path: tuple[str, ...]) -> Type:
        arrow = plain_type(arrow)
        match kind:
            case Struct(fields) if pa.types.is_struct(arrow):
                children = [arrow.field(n) for n in range(arrow.num_fields)]
                return Struct(self._fields(children, fields, path))
            case ListOf(element) if is_list(arrow):
                return ListOf(self._inner(arrow.value_field, element, (*path, "element")))
            case MapOf(key, value) if pa.types.is_map(arrow):
                return MapOf(
                    self._inner(arrow.key_field, key, (*path, "key")),
                    self._inner(arrow.item_field, value, (*path, "value")),
                )
            case Primitive() | Struct() | ListOf() | MapOf():
                return kind  # whether the file's type fits is checked with its statistics

    def _inner(self, arrow: pa.Field, field: Field, path: tuple[str, ...]) -> Field:
        if self.by_id and self.inner_ids and field_id_of(arrow) != field.id:
            raise UnsupportedTable(
                f"a data file has other field ids within {'.'.join(path[:-1])!r} than the table",
                next_step="Rewrite the source's data files",
            )
        return replace(field, type=self._type(arrow.type, field.type, path))


def _has_ids(arrow: Iterable[pa.Field]) -> bool:
    """Whether the columns of a file have field ids: all, or none."""
    known = [field_id_of(field) is not None for field in _columns_of(arrow)]
    if any(known) and not all(known):
        raise UnsupportedTable(
            "some columns of a data file have field ids and some have none: engines differ in that",
            next_step="Rewrite the source's data files",
        )
    return any(known)


def _columns_of(arrow: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """Columns and those within them, but for elements of lists and maps, which have no ids in Delta."""
    for field in arrow:
        yield field
        yield from _columns_within(plain_type(field.type))


def _columns_within(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_struct(kind):
        yield from _columns_of(kind)
    elif pa.types.is_map(kind):
        yield from _columns_within(plain_type(kind.key_type))
        yield from _columns_within(plain_type(kind.item_type))
    elif is_list(kind):
        yield from _columns_within(plain_type(kind.value_type))


def _recorded(
    base: LoadedTable, looked: Sequence[Seen]
) -> tuple[LoadedTable, tuple[DataFile, ...]]:
    """The table with a schema for each way in which files name its columns, the current one last."""
    snapshot = base.snapshot
    current = snapshot.schema
    ways = dict.fromkeys(s.fields for s in looked if s.fields != current.fields)
    if len(ways) >= MAX_SCHEMAS:
        raise UnsupportedTable(
            f"the files name the columns in more than {MAX_SCHEMAS} ways",
            next_step="Rewrite the source's data files",
        )
    ids = {fields: n for n, fields in enumerate(ways)}
    ids[current.fields] = len(ways)
    schemas = tuple(Schema(n, fields) for fields, n in ids.items())
    made = replace(snapshot, schemas=schemas, schema_id=len(ways))
    entries = tuple(replace(s.entry, schema_id=ids[s.fields]) for s in looked)
    return replace(base, state=State(made)), entries


def _copied(ctx: Context, entries: Sequence[DataFile], date_us: int) -> tuple[DataFile, ...]:
    """The same files as the new table's own, copied on the server."""

    def copied(entry: DataFile) -> DataFile:
        at = named_location(entry.key)
        key = keys.data_key(date_us, ctx.new_id())
        assert entry.etag is not None
        try:
            copy_object(
                ctx,
                Location(at.scheme, at.bucket, at.key),
                ctx.key(key),
                size=entry.size,
                etag=entry.etag,
            )
        except SourceChanged as error:
            raise error.about(key=entry.key) from None
        event = Request.of(f"{entry.key}@{entry.etag}").token
        return replace(entry, key=key, adopted=False, etag=None, event=event)

    return tuple(ctx.map(copied, entries))


def written_again(
    sources: Sources, foreign: Foreign, base: LoadedTable, seen: Seen
) -> tuple[DataFile, ...]:
    """The live rows of a file with the columns that it lacks, as files of the new table."""
    ctx, schema = sources.ctx, base.snapshot.schema
    positions = foreign.positions.get(seen.uri)
    hidden = (
        () if positions is None else (Marker(id="", body=Rows(tuple(positions)), file=seen.uri),)
    )
    recorded = seen.read_as(Schema(0, seen.fields))
    task = FileTask(file=seen.entry, schema=recorded, markers=hidden, int96=seen.times.unit)
    read_by = seen.read_as(schema)
    optional = (replace(f, nullable=True) if f.id in seen.absent else f for f in read_by.fields)
    read_by = replace(read_by, fields=tuple(optional))
    projection = Projection(schema=read_by, columns=tuple(f.id for f in schema.fields))

    def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = list(batch.columns)
        for n, field in enumerate(schema.fields):
            if field.id in seen.absent:
                assert isinstance(field.type, Primitive)
                value = to_arrow_scalar(field.type, seen.absent[field.id])
                columns[n] = pa.repeat(value, batch.num_rows)
        return pa.RecordBatch.from_arrays(columns, names=schema.names)

    read = Reader(sources.objects, ctx.executor).rows([task], projection)
    batches = as_table(map(filled, read), schema_to_arrow(schema))
    return tuple(write_batches(ctx, base.snapshot, batches, time_us=base.date_us))


# -- deletes --------------------------------------------------------------------------------------


def _markers(
    ctx: Context,
    base: LoadedTable,
    positions: Mapping[str, BitMap64],
    deletes: Iterable[KeyDelete],
    names: Mapping[str, tuple[str, ...]],
) -> Iterator[Marker]:
    """The deletes of the source, each naming its file."""
    for group in _groups(positions):
        yield from vector_markers(ctx, base, {names[uri][0]: rows for uri, rows in group.items()})
    for delete in deletes:
        for marker in markers_of_keys(ctx, base, delete.keys, nulls="equal"):
            for key in (key for uri in delete.files for key in names[uri]):
                yield replace(marker, id=ctx.new_id(), file=key)


def _groups(positions: Mapping[str, BitMap64]) -> Iterator[dict[str, BitMap64]]:
    group: dict[str, BitMap64] = {}
    rows = 0
    for uri, rows_of in positions.items():
        if group and (len(group) == OBJECT_FILES or rows + len(rows_of) > OBJECT_POSITIONS):
            yield group
            group, rows = {}, 0
        group[uri] = rows_of
        rows += len(rows_of)
    if group:
        yield group

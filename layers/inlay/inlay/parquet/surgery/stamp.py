"""Stamps the table's field ids into a Parquet footer, for readers that find columns by id.

Promise: `stamped` gives a footer in which each column of the recorded schema has its field id, at every
level, and every other column an id that no table assigns, so that no reader takes it for a column of the
table. Schemas that the writer left among the key-values (`ARROW:schema`, which iceberg-rust takes ids from,
`iceberg.schema`) go where they have others, and bounds of floats where they may stand beside NaN. Nothing
else changes: neither the data, which stays in place, nor another statistic, nor an offset. What readers by
id would see in another structure than Inlay (lists and maps of the old layouts) is refused by
`UnsupportedFile`.

Inlay itself finds columns by name under the recorded schema and never uses these ids. Iceberg's readers do:
with another writer's ids they return exchanged columns, and without ids they use current names, so that a
reused name returns the data of the dropped column.

`stamp_object` writes the object under another key: the store copies the data if it is large enough, the
footer is new.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor
from functools import partial

import pyarrow as pa

from inlay.errors import InlayError, UnsupportedFile
from inlay.format.schema import MAX_FIELD_ID, Field, ListOf, MapOf, Primitive, Schema
from inlay.format.schema import Struct as StructOf
from inlay.parquet.arrow.types import is_list
from inlay.parquet.footer.fields import (
    ARROW_SCHEMA,
    Converted,
    Element,
    File,
    KeyValue,
    Logical,
    Repetition,
)
from inlay.parquet.footer.float_bounds import doubtful, without_bounds
from inlay.parquet.footer.footer import Footer, end_of_file
from inlay.parquet.footer.thrift import Items, Struct
from inlay.parquet.read.ranges import RangeFile, Source
from inlay.parquet.surgery.new_object import Assembly, kept_headers
from inlay.record import Mutable, Record
from inlay.storage.base import Location, ObjectStore
from inlay.storage.write_once import no_wait

# Above any id that a table assigns, below those that Iceberg reserves for metadata columns (2147483447 …).
FOREIGN_IDS = MAX_FIELD_ID + 1
SCHEMAS = frozenset({ARROW_SCHEMA, b"iceberg.schema"})


def stamped(
    footer: Footer,
    schema: Schema,
    *,
    views: bool = False,
    foreign: bool = False,
    retired: Container[int] = (),
) -> Footer:
    """`footer` with the field ids of `schema`, under which the file is recorded; the same object if it
    already has them. `foreign` True: the file is another writer's, whose bounds of floats may stand beside
    NaN. `views` True allows an Arrow schema with types that are views, by which pyiceberg 0.12 cannot read
    a file with deletes. `retired` are ids that no column of the table has or gets: other columns may have
    them. Raises `UnsupportedFile` for layouts that readers by id may misread."""
    elements = footer.tree[File.SCHEMA]
    walk = _Walk(elements, {}, retired)
    walk.children_of(0, schema.fields, ())
    now = {at: element.get(Element.FIELD_ID) for at, element in enumerate(elements)}
    pairs = footer.tree.get(File.KEY_VALUES) or ()
    same = _SameIds(views, retired)
    whole = all(_is_consistent(pair, schema.fields, same) for pair in pairs)
    bounds = frozenset(doubtful(footer)) if foreign else frozenset()
    if whole and not bounds and all(now[at] == field_id for at, field_id in walk.ids.items()):
        return footer
    new = Items(elements.element)
    for at, element in enumerate(elements):
        new.append(_with_id(element, walk.ids[at]) if at in walk.ids else element)
    tree: Struct = {**without_bounds(footer, bounds).tree, File.SCHEMA: new}
    if pairs:
        kept = Items(pairs.element)
        kept.extend(pair for pair in pairs if pair.get(KeyValue.KEY) not in SCHEMAS)
        tree[File.KEY_VALUES] = kept
    length = len(end_of_file(tree))
    return Footer(tree, footer.start + length, length, footer.leaves)


def _is_consistent(pair: Struct, fields: tuple[Field, ...], same: _SameIds) -> bool:
    """False for an Arrow schema among the key-value pairs that has other ids than `fields`."""
    if pair.get(KeyValue.KEY) != ARROW_SCHEMA:
        return True
    try:
        schema = pa.ipc.read_schema(
            pa.BufferReader(base64.b64decode(pair.get(KeyValue.VALUE) or b""))
        )
    except (pa.ArrowException, OSError, ValueError):
        return False
    return same.of_all(list(schema), fields)


class _SameIds(Record):
    """Whether columns of an Arrow schema have the ids of the table's; see `stamped`."""

    views: bool
    retired: Container[int]

    def of_all(self, stored: Sequence[pa.Field], fields: tuple[Field, ...]) -> bool:
        by_name = {field.name: field for field in fields}
        return all(self.of(column, by_name.get(column.name)) for column in stored)

    def of(self, stored: pa.Field, field: Field | None) -> bool:
        raw = (stored.metadata or {}).get(b"PARQUET:field_id")
        if field is None:
            return self._is_retired(stored)
        if raw != str(field.id).encode():
            return False
        kind = stored.type
        match field.type:
            case StructOf(fields) if pa.types.is_struct(kind):
                return self.of_all([kind.field(n) for n in range(kind.num_fields)], fields)
            case ListOf(element) if is_list(kind):
                return self.of(kind.value_field, element)
            case MapOf(key, value) if pa.types.is_map(kind):
                return self.of(kind.key_field, key) and self.of(kind.item_field, value)
            case Primitive():
                return self.views or not _is_view(kind)
            case StructOf() | ListOf() | MapOf():  # the file has another structure
                return False

    def _is_retired(self, stored: pa.Field) -> bool:
        raw, kind = (stored.metadata or {}).get(b"PARQUET:field_id", b""), stored.type
        if not raw.isdigit() or int(raw) not in self.retired:
            return False
        if pa.types.is_map(kind):
            return self._is_retired(kind.key_field) and self._is_retired(kind.item_field)
        inner = [kind.field(n) for n in range(kind.num_fields)]
        return (self.views or not _is_view(kind)) and all(map(self._is_retired, inner))


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _with_id(element: Struct, field_id: int | None) -> Struct:
    kept = {key: value for key, value in element.items() if key != Element.FIELD_ID}
    return kept if field_id is None else {**kept, Element.FIELD_ID: field_id}


class _Walk(Mutable):
    """Collects the id of each schema element; `None`: the element has none. `at` is an index into the
    elements, which are a tree written depth first; each step returns the index behind its subtree."""

    elements: Items
    ids: dict[int, int | None]
    retired: Container[int]
    foreign: int = FOREIGN_IDS

    def children_of(self, at: int, fields: tuple[Field, ...], path: tuple[str, ...]) -> int:
        by_name = {field.name: field for field in fields}
        after = at + 1
        for _ in range(self._count(at)):
            name = self._name(after)
            field = by_name.get(name)
            here = (*path, name)
            after = self.strange(after) if field is None else self.field(after, field, here)
        return after

    def strange(self, at: int, *, retired: bool = False) -> int:
        """A column that the schema does not have, with everything under it. `retired`: it is under one."""
        element = self.elements[at]
        own = element.get(Element.FIELD_ID)
        group = own is None and element.get(Element.REPETITION) == Repetition.REPEATED
        if own in self.retired or (retired and group):
            self.ids[at] = own
        else:
            self.ids[at] = self.foreign
            self.foreign += 1
        after = at + 1
        for _ in range(self._count(at)):
            after = self.strange(after, retired=retired or own in self.retired)
        return after

    def field(self, at: int, field: Field, path: tuple[str, ...]) -> int:
        self.ids[at] = field.id
        if self.elements[at].get(Element.REPETITION) == Repetition.REPEATED:
            raise _old_layout(path, "a repeated field that is not annotated as a list")
        match field.type:
            case Primitive():
                return at + 1
            case StructOf(fields):
                return self.children_of(at, fields, path)
            case ListOf(element):
                repeated = self._repeated(at, path, 1)
                name = self._name(repeated)
                # pyarrow's rule, and parquet-format's: these names make the repeated group the element.
                if name == "array" or name.endswith("_tuple"):
                    raise _old_layout(path, "a list of two levels")
                return self.field(repeated + 1, element, (*path, "element"))
            case MapOf(key, value):
                repeated = self._repeated(at, path, 2)
                after = self.field(repeated + 1, key, (*path, "key"))
                return self.field(after, value, (*path, "value"))

    def _repeated(self, at: int, path: tuple[str, ...], columns: int) -> int:
        """The repeated group between a list or map and its columns; it has no id."""
        annotated = self.elements[at].get(Element.CONVERTED) in (
            Converted.LIST,
            Converted.MAP,
            Converted.MAP_KEY_VALUE,
        ) or bool({Logical.LIST, Logical.MAP} & set(self.elements[at].get(Element.LOGICAL, ())))
        repeated = at + 1
        sound = (
            annotated
            and self._count(at) == 1
            and self.elements[repeated].get(Element.REPETITION) == Repetition.REPEATED
            and self._count(repeated) == columns
        )
        if not sound:
            raise _old_layout(path, "a list or map in an old layout")
        self.ids[repeated] = None
        return repeated

    def _count(self, at: int) -> int:
        return int(self.elements[at].get(Element.CHILDREN, 0))

    def _name(self, at: int) -> str:
        return str(self.elements[at][Element.NAME].decode("utf-8", "surrogateescape"))


def _old_layout(path: tuple[str, ...], what: str) -> UnsupportedFile:
    return UnsupportedFile(
        f"column {'.'.join(path)!r} is {what}, which readers by field id may misread",
        next_step="Compact the table, which rewrites such files, or write them with a current library",
    )


class Stamped(Record):
    """The object that `stamp_object` wrote."""

    size: int
    footer_size: int


def stamp_object(
    store: ObjectStore,
    source: Location,
    key: str,
    *,
    etag: str,
    old: Footer,
    new: Footer,
    executor: Executor,
    before_retry: Callable[[int], None] = no_wait,
) -> Stamped:
    """Write `source`, whose footer is `old`, as the new object `key` with the footer `new`; pinned to
    `etag`. Like a copy it has no user metadata and tags: they may name rows. Raises `SourceChanged` or
    `SnapshotGone`. Not to be called from a task of `executor`."""
    reader = store if source.bucket == store.bucket else store.at(source.bucket)
    opened = Source(reader, source.key, source.uri, old.file_size, etag, source.version_id)

    end = end_of_file(new.tree)
    try:
        with Assembly(
            store,
            RangeFile(opened, old.file_size),
            key,
            executor,
            partial(kept_headers, opened),
            before_retry=before_retry,
        ) as assembly:
            assembly.copy(0, old.start)
            assembly.add(end)
            assembly.finish()
    except InlayError as error:
        error.about(key=source.uri)
        raise
    return Stamped(assembly.size, len(end))

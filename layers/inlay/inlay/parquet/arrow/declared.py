"""Declared types: the Arrow types that columns were created with, restored by scans.

Promise: a value keeps its meaning in the format's own types; what an Arrow type adds (a time zone's name, a
dictionary, the length of a vector, a narrower width, an extension type) is stored beside the schema, by
field id, in the property `arrow.types`, which a reader may ignore; the order of an ordered dictionary in
`arrow.categories`. `Declared` converts batches in the
format's types to the declared ones, exactly or not at all; `check` finds values that a declared type cannot
hold before they are written. A declaration that no longer fits its column (its type was widened) is
ignored.

A declaration is a chain of steps, the outermost first, with spaces between: `extension:NAME:META`
(META is base64), `dictionary:INDEX[:ordered]`, then one of `zone:NAME`, `large`, `view`, `large_view`,
`fixed:N`, `sorted`, `date64`, `seconds`, `float16`, `decimal32` … `decimal256`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.errors import SchemaMismatch, UnsupportedType
from inlay.format.properties import arrow_categories, arrow_types
from inlay.format.schema import Field, Primitive, Schema, fields_within
from inlay.format.snapshot import Snapshot
from inlay.lazy import LazyModule
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.pieces import halved
from inlay.parquet.arrow.types import (
    COMMENT,
    FIELD_ID,
    arrow_field,
    arrow_type_of,
    inner_fields,
    is_list,
    nested_as,
    paired,
    schema_to_arrow,
)
from inlay.record import Record

if TYPE_CHECKING:
    from inlay.parquet.arrow import categories
    from inlay.parquet.arrow.categories import Entries
else:  # few tables have ordered ones
    categories = LazyModule("inlay.parquet.arrow.categories")

EXTENSION_NAME = b"ARROW:extension:name"
EXTENSION_META = b"ARROW:extension:metadata"
# All declarations of one table; they are in the pointer.
MAX_TEXT = 16 * 1024
# Types that some values do not fit: the others accept every value of the column's own type.
_STRICT = ("fixed", "seconds", "float16")

# The step, and the column's own type in the format.
_LAYOUTS = {
    pa.large_string(): ("large", "string"),
    pa.large_binary(): ("large", "binary"),
    pa.string_view(): ("view", "string"),
    pa.binary_view(): ("view", "binary"),
    pa.date64(): ("date64", "date"),
    pa.time32("s"): ("seconds", "time"),
    pa.float16(): ("float16", "float"),
}
_LAID_OUT = {step: arrow for arrow, step in _LAYOUTS.items()}
_LISTS = {"large": pa.large_list, "view": pa.list_view, "large_view": pa.large_list_view}
_DECIMALS = {
    "decimal32": (9, pa.decimal32),
    "decimal64": (18, pa.decimal64),
    "decimal128": (38, pa.decimal128),
    "decimal256": (76, pa.decimal256),
}


# -- from Arrow -----------------------------------------------------------------------------------


def declarations(arrow: pa.Schema, schema: Schema) -> dict[int, str]:
    """By field id what `arrow` adds to `schema`, which was made from it. Raises `UnsupportedType` for a
    type that cannot be restored."""
    pairs = paired(arrow, schema.fields)
    made = ((field.id, _declaration(column)) for _, column, field, _ in pairs)
    texts = {field_id: text for field_id, text in made if text}
    declared = Declared(schema, texts, {})
    for field in schema.fields:
        try:
            plain = pa.nulls(1, arrow_field(field).type)
            _dress(plain, declared.field_of(field).type, field, {})
        except (pa.ArrowException, TypeError, ValueError):
            raise UnsupportedType(
                f"column {field.name!r} has Arrow type {str(arrow.field(field.name).type)[:80]}, which "
                "a table cannot restore",
                next_step="Cast it to a plain type",
            ) from None
    if sum(map(len, set(texts.values()))) > MAX_TEXT:
        raise UnsupportedType(
            "the Arrow types of the columns take too much space in the metadata",
            next_step="Cast columns of extension types to their storage types",
        )
    return texts


def _declaration(column: pa.Field) -> str:
    """The steps from the format's own type to that of a column of data."""
    steps: list[str] = []
    metadata = column.metadata or {}
    if EXTENSION_NAME in metadata:  # of a type that this process has not registered
        steps.append(_extension(metadata))
    arrow = column.type
    while True:
        if isinstance(arrow, pa.BaseExtensionType):
            steps.append(_extension(_exported_metadata(pa.field("x", arrow))))
            arrow = arrow.storage_type
        elif pa.types.is_dictionary(arrow):
            steps.append(f"dictionary:{arrow.index_type}{':ordered' if arrow.ordered else ''}")
            arrow = arrow.value_type
        else:
            break
    layout = _layout(arrow)
    return " ".join([*steps, layout] if layout else steps)


def _extension(metadata: Mapping[bytes, bytes]) -> str:
    name, meta = metadata[EXTENSION_NAME], metadata.get(EXTENSION_META, b"")
    return f"extension:{name.decode()}:{b64encode(meta).decode()}"


def _meant(column: pa.Field) -> str | None:
    """The extension type of a column of data, the innermost, as declarations have it."""
    metadata, arrow = column.metadata or {}, column.type
    while isinstance(arrow, pa.BaseExtensionType) or pa.types.is_dictionary(arrow):
        if pa.types.is_dictionary(arrow):
            arrow = arrow.value_type
        else:
            metadata, arrow = _exported_metadata(pa.field("x", arrow)), arrow.storage_type
    return _extension(metadata) if EXTENSION_NAME in metadata else None


def _says(extension: str) -> tuple[str, Any]:
    """The name and the parameters, so that what says the same is equal."""
    name, _, meta = extension.removeprefix("extension:").rpartition(":")
    text = b64decode(meta)
    try:
        return name, json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return name, text


def _named(extension: str) -> str:
    name, parameters = _says(extension)
    return f"{name} {parameters}"[:120] if parameters else name


def _layout(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "" if arrow.tz in (None, "UTC") else f"zone:{arrow.tz}"
    if pa.types.is_decimal(arrow):
        plain = "decimal128" if arrow.precision <= 38 else "decimal256"
        own = f"decimal{arrow.bit_width}"
        return "" if own == plain else own
    if pa.types.is_fixed_size_list(arrow):
        if not arrow.list_size:  # Arrow's own functions divide by it
            raise UnsupportedType(
                f"a column has Arrow type {str(arrow)[:80]}, lists of no elements",
                next_step="Drop it: its values are all the same",
            )
        return f"fixed:{arrow.list_size}"
    if is_list(arrow):
        return {pa.LargeListType: "large", pa.ListViewType: "view"}.get(
            type(arrow), "large_view" if pa.types.is_large_list_view(arrow) else ""
        )
    if pa.types.is_map(arrow):
        return "sorted" if arrow.keys_sorted else ""
    return _LAYOUTS.get(arrow, ("", ""))[0]


class _CSchema(ctypes.Structure):
    """The start of Arrow's C data interface for a schema."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _exported_metadata(field: pa.Field) -> dict[bytes, bytes]:
    """The metadata under which a field is written: the only access to that of an extension type."""
    capsule = field.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = _CSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(ctypes.string_at(at - 4, 4), sys.byteorder)

    def text() -> bytes:
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    return {text(): text() for _ in range(number())}


# -- to Arrow -------------------------------------------------------------------------------------


def metadata_not_kept(schema: pa.Schema) -> list[str]:
    """Keys of Arrow metadata that a table does not keep: those of the schema except those that pandas and
    Spark write for themselves, and those of columns except comments and extension types."""
    kept = (COMMENT, EXTENSION_NAME, EXTENSION_META, FIELD_ID)
    own = (b"pandas", b"org.apache.spark.", b"ARROW:schema")
    lost = [_spelled(k) for k in schema.metadata or {} if not k.startswith(own)]
    for field in schema:
        lost += [f"{field.name}.{_spelled(k)}" for k in field.metadata or {} if k not in kept]
    return lost


def _spelled(key: bytes) -> str:
    return key.decode("utf-8", "replace")


class Declared(Record, dict=True):
    """The declared types of the columns of a schema, `texts` by field id. `categories` are the orders that
    are known of ordered dictionaries."""

    schema: Schema
    texts: Mapping[int, str]
    categories: Mapping[int, Entries]

    @staticmethod
    def of(snapshot: Snapshot, schema: Schema | None = None) -> Declared:
        """For a snapshot's columns, or for those of another schema of the same table. A dictionary of which
        the table has rows but no order (they came by another way than `append` and `upsert`) is not
        ordered: what would be said of its order would be false."""
        texts, orders = arrow_types(snapshot.properties), arrow_categories(snapshot.properties)
        for field_id in ordered_columns(snapshot) if snapshot.totals.rows else ():
            if field_id not in orders:
                texts[field_id] = texts[field_id].replace(":ordered", "")
        return Declared(schema or snapshot.schema, texts, orders)

    @cached_property
    def _orders(self) -> dict[int, pa.Array]:
        """The entries of each ordered category of the schema, in the table's own types."""
        known = ((node, self.categories.get(node.id)) for _, node in self.schema.walk())
        return {
            node.id: categories.to_entries_array(entries, node.type)
            for node, entries in known
            if entries is not None and isinstance(node.type, Primitive)
        }

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of the batches."""
        return pa.schema([self.field_of(field) for field in self.schema.fields])

    @property
    def text_orders(self) -> dict[str, Entries]:
        """By column the entries of ordered dictionaries of texts, where the order is known."""
        kinds = {column.name: column.type for column in self.arrow}
        return {
            field.name: self.categories[field.id]
            for field in self.schema.fields
            if field.id in self.categories
            and field.type == Primitive("string")
            and pa.types.is_dictionary(kinds[field.name])
            and kinds[field.name].ordered
        }

    @cached_property
    def _changed(self) -> bool:
        """Whether any column has a declared type."""
        return not self.arrow.equals(
            schema_to_arrow(self.schema, with_ids=False), check_metadata=True
        )

    def field_of(self, field: Field, name: str | None = None) -> pa.Field:
        """The Arrow field that a field was declared as."""
        arrow = arrow_type_of(field.type, self.field_of)
        metadata = {COMMENT: field.doc.encode()} if field.doc else {}
        for step in reversed(self.texts.get(field.id, "").split()):
            arrow, more = _applied(step, arrow, field.type)
            metadata.update(more)
        return pa.field(name or field.name, arrow, field.nullable, metadata or None)

    def schema_of(self, plain: pa.Schema) -> pa.Schema:
        """`plain` with the declared types of the columns that it shares with the table."""
        names = set(self.schema.names)
        return pa.schema([self.arrow.field(f.name) if f.name in names else f for f in plain])

    def batches(
        self, plain: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Batches in the declared types, `schema` being their `schema_of`. A batch with more distinct
        values than a dictionary's index can address is split. Raises `SchemaMismatch`."""
        if not self._changed:
            return plain

        def dressed(batch: pa.RecordBatch) -> pa.RecordBatch:
            return self._dressed(batch, schema)

        return (part for batch in plain for part in halved(batch, dressed, (SchemaMismatch,)))

    def _dressed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for field, column in zip(schema, batch.columns, strict=True):
            node = self.schema.column(field.name)
            try:
                arrays.append(_dress(column, field.type, node, self._orders))
            except pa.ArrowException:
                raise SchemaMismatch(
                    f"column {field.name!r} holds a value that its declared type {field.type} cannot "
                    "hold",
                    next_step="An older version of the library may have written it; "
                    "set_properties(arrow__types=None) goes back to plain types",
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def check_meaning(self, data: pa.Schema) -> None:
        """Raises `SchemaMismatch` for data of another extension type than its column's. It would be stored
        all the same, and be read as something else: days as months, one projection as another."""
        for path, column, field, _ in paired(data, self.schema.fields):
            meant = _meant(column)
            if meant is None:
                continue
            steps = self.texts.get(field.id, "").split()
            declared = next((step for step in steps if step.startswith("extension:")), meant)
            if _says(declared) != _says(meant):
                raise SchemaMismatch(
                    f"column {path[0]!r} has {_named(meant)} in the data and {_named(declared)} in the "
                    "table, which mean different things",
                    next_step="Convert the values; where both mean the same, cast the column of the data "
                    "to its storage type",
                )

    def check(self, batch: pa.RecordBatch) -> None:
        """Raises `SchemaMismatch` for values that a declared type cannot hold. `batch` has columns of the
        schema, in plain types."""
        for field in self.schema.fields:
            at = batch.schema.get_field_index(field.name)
            if at < 0 or not self.is_strict(field):
                continue
            declared = self.arrow.field(field.name).type
            try:
                _dress(batch.column(at), declared, field, self._orders)
            except pa.ArrowException:
                raise SchemaMismatch(
                    f"column {field.name!r} is {declared} in the table, and the data has a value that "
                    "does not fit",
                    next_step="Check the lengths of its lists, or digits that would be truncated",
                ) from None

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, each after `check`: for every writer of a caller's rows."""
        for batch in batches:
            self.check(batch)
            yield batch

    def is_strict(self, field: Field) -> bool:
        """Whether its values have to be checked before they are written."""
        return any(
            step.partition(":")[0] in _STRICT
            for _, inner in Schema(0, (field,)).walk()
            for step in self.texts.get(inner.id, "").split()
        )


def ordered_columns(snapshot: Snapshot) -> dict[int, int]:
    """The fields that were declared as ordered dictionaries, and how many entries their indices number."""
    counts: dict[int, int] = {}
    for field_id, text in arrow_types(snapshot.properties).items():
        for step in text.split():
            name, _, rest = step.partition(":")
            index, _, ordered = rest.partition(":")
            if name == "dictionary" and ordered:
                bits = int(index.removeprefix("u").removeprefix("int"))
                counts[field_id] = 2 ** (bits if index.startswith("u") else bits - 1)
    return counts


def checked_orders(
    snapshot: Snapshot, batches: Iterable[pa.RecordBatch]
) -> Iterable[pa.RecordBatch]:
    """A caller's batches, as long as their dictionaries agree with the table's orders."""
    return categories.checked_orders(snapshot, batches) if ordered_columns(snapshot) else batches


def _applied(step: str, arrow: pa.DataType, kind: Any) -> tuple[pa.DataType, dict[bytes, bytes]]:
    """`made` with the step applied, and metadata of its field; unchanged if the step does not fit."""
    name, _, rest = step.partition(":")
    try:
        if name == "extension":
            return _extended(rest, arrow)
        return _laid_out(name, rest, arrow, kind) or arrow, {}
    except (pa.ArrowException, ValueError, KeyError, AttributeError, TypeError):
        return arrow, {}


def _extended(rest: str, arrow: pa.DataType) -> tuple[pa.DataType, dict[bytes, bytes]]:
    name, _, meta = rest.rpartition(":")
    metadata = {EXTENSION_NAME: name.encode(), EXTENSION_META: b64decode(meta)}
    # Arrow uses the type that is registered under this name, if there is one.
    written = pa.schema([pa.field("x", arrow, metadata=metadata)]).serialize()
    field = pa.ipc.read_schema(written).field(0)
    return field.type, {} if isinstance(field.type, pa.BaseExtensionType) else metadata


def _laid_out(name: str, rest: str, arrow: pa.DataType, kind: Any) -> pa.DataType | None:
    primitive = kind.name if isinstance(kind, Primitive) else type(kind).__name__
    match name, primitive:
        case "dictionary", _:
            index, _, ordered = rest.partition(":")
            return pa.dictionary(pa.type_for_alias(index), arrow, ordered=bool(ordered))
        case "zone", "timestamptz":
            return pa.timestamp(arrow.unit, tz=rest)
        case "seconds", "time" if arrow != pa.time32("ms"):
            return None
        case step if step in _LAID_OUT:
            return _LAID_OUT[step]
        case _, "decimal":
            most, width = _DECIMALS[name]
            return width(arrow.precision, arrow.scale) if arrow.precision <= most else None
        case "fixed", "ListOf":
            return pa.list_(arrow.value_field, int(rest))
        case _, "ListOf":
            return _LISTS[name](arrow.value_field)
        case "sorted", "MapOf":
            return pa.map_(arrow.key_field, arrow.item_field, keys_sorted=True)
        case _:  # a form that is not of this type: it is not declared
            return None


# -- values ---------------------------------------------------------------------------------------


def _dress(
    array: pa.Array, target: pa.DataType, node: Field | None, orders: Mapping[int, pa.Array]
) -> pa.Array:
    """A plain array of a field (None: a column that is none of the table's) in a declared type; `orders`
    are those of ordered dictionaries. Raises pa.ArrowException for values that it cannot hold."""
    if array.type.equals(target):
        return array
    if isinstance(target, pa.BaseExtensionType):
        storage = _dress(array, target.storage_type, node, orders)
        return pa.ExtensionArray.from_storage(target, storage)
    if pa.types.is_dictionary(target):
        return _dress_dictionary(array, target, node, orders)
    if inner := inner_fields(target):
        within = () if node is None else fields_within(node.type)
        nodes = within if len(within) == len(inner) else (None,) * len(inner)
        return nested_as(
            array, target, lambda child, n: _dress(child, inner[n].type, nodes[n], orders)
        )
    if pa.types.is_float16(target):
        return _halves(array)
    return array.cast(target)


def _dress_dictionary(
    array: pa.Array, target: pa.DictionaryType, node: Field | None, orders: Mapping[int, pa.Array]
) -> pa.Array:
    order = orders.get(node.id) if node is not None and target.ordered else None
    if order is None:
        coded = array.dictionary_encode()
        places, entries = coded.indices, coded.dictionary
    else:
        places, entries = categories.encoded(array, order)
    entries = _dress(entries, target.value_type, node, orders)
    places = places.cast(target.index_type)
    return pa.DictionaryArray.from_arrays(places, entries, ordered=target.ordered)


def _halves(array: pa.Array) -> pa.Array:
    halves = array.cast(pa.float16())
    back = halves.cast(array.type)
    same = pc.or_(pc.equal(back, array), pc.is_nan(array))
    if not pc.all(same, min_count=0).as_py():
        raise pa.ArrowInvalid("a value has more digits than a half-precision float has")
    return halves

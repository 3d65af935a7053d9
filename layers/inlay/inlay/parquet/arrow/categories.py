"""Ordered categories: the entries of ordered dictionaries, in their order.

Promise: an order is kept whole or not at all. `merged` gives one order that has the entries of both sides
as either has them, or None where they contradict each other or do not say which comes first. Entries are
in the form of values in metadata (`format.values.encode_value`), by field id; nulls are no entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.properties import arrow_categories
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import Snapshot
from inlay.format.values import decode_value, encode_value
from inlay.parquet.arrow.declared import ordered_columns
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import (
    as_stored,
    beside,
    beside_within,
    inner_arrays,
    to_array,
    to_arrow_array,
    to_physical,
)
from inlay.record import Mutable, field

# Of one dictionary: more are not looked at, because no table keeps as many (`ops.schema.categories`).
MAX_ENTRIES = 16_384
UNORDERED = "where the order does not matter, give the column as an unordered category or as text"

Entries = tuple[Any, ...]


class Given(Mutable):
    """The ordered dictionaries of a column of data, each once, and which of their entries rows have."""

    kind: Primitive
    orders: dict[Entries, None] = field(default_factory=dict)
    used: set[Any] = field(default_factory=set)


def given_orders(
    batches: Iterable[pa.RecordBatch], schema: Schema, ordered: Mapping[int, object]
) -> dict[int, Given]:
    """What data says of the columns in `ordered`, by field id."""
    orders: dict[int, Given] = {}
    for batch in batches:
        for node, array in dictionaries_of(batch, schema):
            if node.id not in ordered:
                continue
            assert isinstance(node.type, Primitive)
            given = orders.setdefault(node.id, Given(node.type))
            entries = entries_of(array.dictionary.slice(0, MAX_ENTRIES), node.type)
            given.orders.setdefault(entries)
            rows = pc.unique(array.indices.drop_null()).slice(0, MAX_ENTRIES)
            # One by one: Arrow cannot take from views.
            used = (to_physical(array.dictionary[row], node.type) for row in rows.to_pylist())
            given.used.update(encode_value(node.type, v) for v in used if v is not None)
    return orders


def dictionaries_of(
    batch: pa.RecordBatch, schema: Schema
) -> Iterator[tuple[Field, pa.DictionaryArray]]:
    """The ordered dictionaries of a caller's batch, at any depth, with their fields."""
    for node, array in _nodes(batch, schema):
        is_ordered = pa.types.is_dictionary(array.type) and array.type.ordered
        if is_ordered and isinstance(node.type, Primitive):
            yield node, array


def unused(
    batches: Iterable[pa.RecordBatch], schema: Schema, orders: Mapping[int, Entries]
) -> dict[int, set[Any]]:
    """By field id the entries that no row of these batches has, which are in the table's own types. Reads
    no further than until there is none."""
    nodes = {i: schema.by_id(i) for i in orders}
    kinds = {i: n.type for i, n in nodes.items() if n is not None and isinstance(n.type, Primitive)}
    never_used = {i: set(entries) for i, entries in orders.items()}
    arrays = {i: to_entries_array(orders[i], kind) for i, kind in kinds.items()}
    for batch in batches:
        for node, array in _nodes(batch, schema):
            if node.id in arrays:
                present = pc.is_in(arrays[node.id], value_set=pc.unique(array).drop_null())
                never_used[node.id] -= {
                    entry
                    for entry, is_there in zip(orders[node.id], present.to_pylist(), strict=True)
                    if is_there
                }
        if not any(never_used.values()):
            break
    return never_used


def _nodes(batch: pa.RecordBatch, schema: Schema) -> Iterator[tuple[Field, pa.Array]]:
    """The fields that a batch has, at any depth, each with its values."""
    for (_, node), array in zip(beside(batch.schema, schema.fields), batch.columns, strict=False):
        if node is not None:
            yield from _node(node, array)


def _node(node: Field, array: pa.Array) -> Iterator[tuple[Field, pa.Array]]:
    array = as_stored(array)
    yield node, array
    pairs = beside_within(array.type, node.type)
    for (_, inner), values in zip(pairs, inner_arrays(array), strict=False):
        if inner is not None:
            yield from _node(inner, values)


def entries_of(values: pa.Array, kind: Primitive) -> Entries:
    """Values in their order, each once. Raises `InvalidRequest` for one that the column cannot hold."""
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    physical = (to_physical(value, kind) for value in values)
    return tuple(dict.fromkeys(encode_value(kind, v) for v in physical if v is not None))


def to_entries_array(entries: Iterable[Any], kind: Primitive) -> pa.Array:
    """Entries in the table's own type."""
    return to_arrow_array(kind, [decode_value(kind, entry) for entry in entries])


def merged(known: Entries, given: Entries) -> Entries | None:
    """The longer of the two, where the shorter is a part of it in the same order."""
    longer, shorter = (known, given) if len(known) >= len(given) else (given, known)
    rest = iter(longer)
    return longer if all(entry in rest for entry in shorter) else None


def encoded(array: pa.Array, entries: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The place of each value of `array` among `entries`, and these: values that are none of them follow,
    in the order in which they come."""
    places = pc.index_in(array, value_set=entries)
    strange = array.filter(pc.and_(places.is_null(), array.is_valid()))
    if len(strange):
        entries = pa.concat_arrays([entries, pc.unique(strange)])
        places = pc.index_in(array, value_set=entries)
    if array.null_count:
        places = pc.if_else(array.is_valid(), places, to_array([None], places.type)[0])
    return places, entries


# -- of a table -----------------------------------------------------------------------------------


def as_given(entries: Entries, given: Given, known: Entries, snapshot: Snapshot) -> Entries:
    """The entries of a dictionary that the table may keep: while an erasure is open, none that no row has.
    What the data still lists may be what is being erased."""
    if not snapshot.erasures:
        return entries
    return tuple(entry for entry in entries if entry in given.used or entry in known)


def checked_orders(
    snapshot: Snapshot, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A caller's batches, as long as their dictionaries agree with the table's orders."""
    ordered, orders = ordered_columns(snapshot), arrow_categories(snapshot.properties)
    for batch in batches:
        for field_id, given in given_orders([batch], snapshot.schema, ordered).items():
            known = orders.get(field_id, ())
            for entries in given.orders:
                if merged(known, as_given(entries, given, known, snapshot)) != known:
                    raise contradiction(snapshot, field_id)
        yield batch


def name_of(snapshot: Snapshot, field_id: int) -> str:
    return next(".".join(path) for path, node in snapshot.schema.walk() if node.id == field_id)


def contradiction(snapshot: Snapshot, field_id: int) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {name_of(snapshot, field_id)!r} has its categories in another order in the data than in "
        "the table, or new ones between which the order is open",
        next_step="Give the data the table's categories in their order, with new ones where they belong, "
        f"the same in each batch (pyarrow: Table.unify_dictionaries()); {UNORDERED}",
    )

"""Random histories of a table: every operation that changes rows, and those that must not."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, MergeConflict
from inlay.plan.commit import apply as apply_module
from inlay.plan.metadata import leaves as tiers
from inlay.table import Table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.int32())])),
    ]
)
MODES = ["tombstone", "vector", "surgery", "rewrite"]
Op = Callable[[Table], Any]
RowCounts = Counter[tuple[Any, ...]]


def new_table(**options: Any) -> Table:
    properties = {"write.row_group_rows": 4, **options.pop("properties", {})}
    options.setdefault("primary_key", "id")
    uri = f"memory://history/{uuid.uuid4().hex}"
    return inlay.create(uri, options.pop("schema", SCHEMA), properties=properties, **options)


def rows(values: list[tuple[int | None, int]]) -> pa.Table:
    """Rows of ids and values, with nested columns that follow from them."""
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "v": v,
                "tags": None if v % 3 == 0 else ["a"] * (v % 3),
                "at": None if v % 2 else {"x": float(v) / 2, "y": None},
            }
            for i, v in values
        ],
        schema=SCHEMA,
    )


_pairs = st.lists(
    st.tuples(st.none() | st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=10
)
_where = st.sampled_from(
    ["id < 3", "id >= 10", "id BETWEEN 4 AND 7", "v = 1", "v = 4 OR id = 5", "id IS NULL"]
)
_ids = st.lists(st.integers(0, 12), min_size=1, max_size=4)


def _append(pairs: Any) -> Op:
    return lambda t: t.append(rows(pairs))


def _append_new(ids: list[int | None]) -> Op:
    """Rows that no other commit has written."""

    def run(t: Table) -> None:
        version = inlay.open(t.uri).version
        t.append(rows([(i, 100 * version + n) for n, i in enumerate(ids)]))

    return run


def _upsert(pairs: Any) -> Op:
    return lambda t: t.upsert(rows(pairs))


def _delete(where: str, mode: str) -> Op:
    return lambda t: t.delete(where, mode=mode)


def _delete_keys(ids: list[int], wide: bool) -> Op:
    # More keys than fit an IN list become an object of keys.
    keys = [*ids, *range(1_000, 1_100)] if wide else ids
    return lambda t: t.delete(keys={"id": keys})


def _update(where: str, mode: str, to: int) -> Op:
    return lambda t: t.update({"v": str(to)}, where=where, mode=mode)


def _delete_group(which: int, ordinal: int) -> Op:
    def run(t: Table) -> None:
        files = t.inspect.files().select(["key", "row_groups"]).to_pylist()
        if files:
            file = files[which % len(files)]
            t.maintain.delete_row_groups(file["key"], [ordinal % file["row_groups"]])

    return run


def _delete_in_file(which: int, where: str, mode: str) -> Op:
    def run(t: Table) -> None:
        keys = t.inspect.files()["key"].to_pylist()
        if keys:
            t.delete(where, file=keys[which % len(keys)], mode=mode)

    return run


def _no_rows_change() -> st.SearchStrategy[Op]:
    return st.one_of(
        st.sampled_from([None, 0, 1 << 30]).map(
            lambda s: lambda t: t.maintain.compact(small_bytes=s)
        ),
        st.sampled_from(["auto", "surgery", "rewrite"]).map(
            lambda s: lambda t: t.maintain.rewrite(strategy=s)
        ),
    )


def operations() -> st.SearchStrategy[Op]:
    mode = st.sampled_from(MODES)
    return st.one_of(
        _pairs.map(_append),
        _pairs.map(_append),
        _pairs.map(_upsert),
        st.tuples(_where, mode).map(lambda a: _delete(*a)),
        st.tuples(_ids, st.booleans()).map(lambda a: _delete_keys(*a)),
        st.tuples(_where, mode, st.integers(0, 5)).map(lambda a: _update(*a)),
        st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda a: _delete_group(*a)),
        st.tuples(st.integers(0, 3), _where, mode).map(lambda a: _delete_in_file(*a)),
        _no_rows_change(),
        _no_rows_change(),
    )


def operations_on_rows_once_written() -> st.SearchStrategy[Op]:
    """Those that write no row which equals another."""
    mode = st.sampled_from(MODES)
    ids = st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=10)
    return st.one_of(
        ids.map(_append_new),
        ids.map(_append_new),
        st.tuples(_where, mode).map(lambda a: _delete(*a)),
        st.tuples(_ids, st.booleans()).map(lambda a: _delete_keys(*a)),
        st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda a: _delete_group(*a)),
        st.tuples(st.integers(0, 3), _where, mode).map(lambda a: _delete_in_file(*a)),
        _no_rows_change(),
        _no_rows_change(),
    )


def histories() -> st.SearchStrategy[list[Op]]:
    """Some rows to begin with, some deletes among them, then anything."""
    first = [_append([(i % 13, i % 6) for i in range(start, start + 10)]) for start in (0, 10, 20)]
    return st.lists(operations(), min_size=6, max_size=12).map(lambda ops: [*first, *ops])


def play(t: Table, ops: list[Op]) -> None:
    for op in ops:
        with suppress(InvalidRequest):
            op(t)


# -- rows as values -------------------------------------------------------------------------------


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, frozen(v)) for k, v in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def multiset_of(table: pa.Table) -> RowCounts:
    return Counter(tuple(frozen(v) for v in row.values()) for row in table.to_pylist())


def state(t: Table, version: int, **options: Any) -> RowCounts:
    """The rows of a version, read under the schema of `t` (no column is dropped or added here)."""
    if version == 0:
        return Counter()
    return multiset_of(inlay.open(t.uri, version=version).scan(**options).to_arrow())


def split(changes: pa.Table) -> tuple[RowCounts, RowCounts]:
    """(what was removed, what was added), without the columns that say so."""
    kinds = changes["_change_type"].to_pylist()
    found = (
        [at for at, kind in enumerate(kinds) if kind in ("delete", "update_preimage")],
        [at for at, kind in enumerate(kinds) if kind in ("insert", "update_postimage")],
    )
    assert len(found[0]) + len(found[1]) == len(kinds)
    plain = changes.select(changes.schema.names[:-3])
    removed, added = (multiset_of(plain.take(pa.array(at, pa.int64()))) for at in found)
    return removed, added


def applied(before: RowCounts, changes: pa.Table) -> RowCounts:
    """`before` with the changes applied; fails where a row is removed that is not there."""
    removed, added = split(changes)
    after = Counter(before)
    after.update(added)
    after.subtract(removed)
    assert min(after.values(), default=0) >= 0, "a row was removed that is not there"
    return +after


# -- refs -----------------------------------------------------------------------------------------


def _restore(which: int) -> Op:
    return lambda t: t.refs.restore(version=1 + which % t.version)


def _on_a_branch(ops: list[Op], back: str) -> Op:
    """Work on a branch beside some on main, then bring it to main."""

    def run(t: Table) -> None:
        name = f"b{t.version}"
        branch = t.refs.branch(name)
        for op in ops:
            with suppress(InvalidRequest):
                op(branch)
        if back == "merge":
            _append_new([100])(t)
        with suppress(MergeConflict):
            (t.refs.merge if back == "merge" else t.refs.fast_forward)(name)

    return run


def histories_with_refs(
    operations: Callable[[], st.SearchStrategy[Op]] = operations,
) -> st.SearchStrategy[list[Op]]:
    """Histories that go back, and off on branches."""
    branches = st.tuples(
        st.lists(operations(), min_size=1, max_size=4), st.sampled_from(["merge", "fast_forward"])
    ).map(lambda a: _on_a_branch(*a))
    some = st.one_of(
        operations(), operations(), st.integers(0, 30).map(_restore), branches, branches
    )
    first = [_append_new([i % 13 for i in range(start, start + 10)]) for start in (0, 10, 20)]
    return st.lists(some, min_size=4, max_size=8).map(lambda ops: [*first, *ops])


# -- metadata -------------------------------------------------------------------------------------


@contextmanager
def tiny_segments() -> Iterator[None]:
    """Leaves of a few entries, nodes of a few leaves: small tables get the trees of large ones."""
    with ExitStack() as stack:
        for target, name, value in (
            (apply_module, "POINTER_TARGET_BYTES", 1_500),
            (apply_module, "INLINE_MIN_BYTES", 100),
            (apply_module._Files, "most", 3),
            (apply_module._Markers, "most", 2),
            (apply_module._Records, "most", 4),
            (tiers, "NODE_MAX_LEAVES", 3),
            (tiers, "GATHER_LEAVES", 2),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield

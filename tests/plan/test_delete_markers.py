"""Which marker a delete without reading gets: a range where it is exactly one, else a condition or keys."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.maintenance.bench import Bench, new_bench

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.entry import KeyRange, Keys, Marker, RowGroups, Where
from inlay.format.predicate import And, Comparison, In, IsNull, Like, Literal, Or
from inlay.format.properties import DELETE_MODES
from inlay.format.schema import Primitive
from inlay.format.snapshot import Tier
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.write import delete as module
from inlay.ops.write.delete import (
    INLINE_KEYS,
    MAX_PREDICATE_BYTES,
    _differences,
    _narrow,
    _parts,
    key_markers,
    marker_of,
    stored_bytes,
)
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import range_predicate

sys.path.insert(0, str(Path(__file__).parents[1] / "predicate"))
import predicate_oracle as oracle

LONG, DOUBLE, TEXT = Primitive("int64"), Primitive("double"), Primitive("string")
KEY = 1
ROWS = [{KEY: value} for value in (None, -1, 0, 1, 2, 3)]


def compared(op: Any, value: Any, kind: Primitive = LONG, field_id: int = KEY) -> Comparison:
    return Comparison(field_id, op, Literal(kind, value))


SINGLE = [compared(op, n) for op in ("=", "!=", "<", "<=", ">", ">=") for n in (0, 1, 2)]


def body_of(bench: Bench, predicate: Any) -> Any:
    return marker_of(bench.ctx, bench.load(), predicate).body


def test_bounds_of_the_key_are_a_range_that_selects_what_they_do() -> None:
    bench = new_bench()
    for parts in [(one,) for one in SINGLE] + list(itertools.product(SINGLE, repeat=2)):
        predicate = parts[0] if len(parts) == 1 else And(parts)
        body = body_of(bench, predicate)
        sides = "".join("=" if p.op == "=" else p.op[0] for p in parts)
        if sides in ("=", "<", ">", "<>", "><"):
            assert isinstance(body, KeyRange) and body.kind == LONG
            found = range_predicate(body, LONG)
            assert [oracle.truth(found, row) is True for row in ROWS] == [
                oracle.truth(predicate, row) is True for row in ROWS
            ]
        else:
            assert body == Where(predicate), "two bounds of one side, or none, are kept as they are"


@pytest.mark.parametrize(
    "predicate",
    [
        And(()),
        IsNull(KEY),
        In(KEY, LONG, (1, 2)),
        Or((compared("<", 1), compared(">", 2))),
        And((compared("<", 1), IsNull(KEY))),
        compared("<", 1, field_id=2),
        And((compared(">", 1), compared("<", 2, field_id=2))),
    ],
    ids=str,
)
def test_what_is_not_one_range_of_the_key_is_kept_as_it_is(predicate: Any) -> None:
    assert body_of(new_bench(), predicate) == Where(predicate)


def test_bounds_of_floats_are_no_range() -> None:
    """NaN would be on one of the open sides."""
    assert _narrow(KeyRange(KEY), compared(">", 0.5, DOUBLE)) is None
    assert _narrow(KeyRange(KEY), compared(">", 5)) == KeyRange(
        KEY, lower=5, lower_inclusive=False, kind=LONG
    )


def test_a_condition_may_be_as_large_as_its_marker_and_no_larger() -> None:
    bench = new_bench()
    room = MAX_PREDICATE_BYTES - stored_bytes(Like(2, ""))
    largest = Like(2, "a" * room)
    assert stored_bytes(largest) == MAX_PREDICATE_BYTES
    assert body_of(bench, largest) == Where(largest)
    with pytest.raises(InvalidPredicate, match=f"takes {MAX_PREDICATE_BYTES + 1:} bytes"):
        body_of(bench, Like(2, "a" * (room + 1)))
    assert stored_bytes(Like(2, "é")) == stored_bytes(Like(2, "ab"))


def keys_of(bench: Bench, keys: pa.Table) -> list[Any]:
    return [marker.body for marker in key_markers(bench.ctx, bench.load(), keys)]


def test_few_keys_of_one_column_are_a_list_and_more_an_object() -> None:
    bench = new_bench()
    ids = pa.array([*range(INLINE_KEYS), 0, None], pa.int64())
    [listed] = keys_of(bench, pa.table({"id": ids}))
    assert listed == Where(In(KEY, LONG, tuple(range(INLINE_KEYS))))
    [more] = keys_of(bench, pa.table({"id": pa.array(range(INLINE_KEYS + 1), pa.int64())}))
    assert isinstance(more, Keys) and (more.rows, more.field_ids) == (INLINE_KEYS + 1, (KEY,))
    assert (more.stats[KEY].lower, more.stats[KEY].upper) == (0, INLINE_KEYS)
    [one] = keys_of(bench, pa.table({"id": pa.array([7], pa.int64())}))
    assert one == Where(In(KEY, LONG, (7,)))
    [pair] = keys_of(bench, pa.table({"id": pa.array([7], pa.int64()), "name": ["a"]}))
    assert isinstance(pair, Keys) and pair.field_ids == (KEY, 2)
    assert keys_of(bench, pa.table({"id": pa.array([None], pa.int64())})) == []
    long = "a" * (MAX_PREDICATE_BYTES // 2)
    [texts] = keys_of(bench, pa.table({"name": [long + "a", long + "b"]}))
    assert isinstance(texts, Keys), "a list that is too large for a marker"
    room = MAX_PREDICATE_BYTES - stored_bytes(In(2, TEXT, ("a", "b")))
    for more, kind in ((0, Where), (1, Keys)):
        [texts] = keys_of(bench, pa.table({"name": ["a" * (room + 1 + more), "b"]}))
        assert isinstance(texts, kind), more


@pytest.mark.parametrize(("bound", "rows"), [(1, 1), (16 * 25, 25), (16 * 50, 50), (16 * 100, 100)])
def test_objects_of_keys_stay_within_their_bound_even_if_nothing_compresses(
    bound: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MARKER_OBJECT_BYTES", bound)
    bodies = keys_of(new_bench(), pa.table({"id": pa.array(range(100), pa.int64())}))
    assert [body.rows for body in bodies] == [rows] * (100 // rows)
    bounds = [(body.stats[KEY].lower, body.stats[KEY].upper) for body in bodies]
    assert bounds == [(at, at + rows - 1) for at in range(0, 100, rows)]


def test_batches_are_sorted_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64())})  # of 16 bytes
    for most, sizes in ((1, [1] * 5), (31, [1] * 5), (32, [2, 2, 1]), (48, [3, 2]), (80, [5])):
        monkeypatch.setattr(module, "PART_BYTES", most)
        assert [len(part) for part in _parts([batch] * 5)] == sizes
    assert list(_parts([])) == []


def test_numbers_and_the_first_text_are_stored_by_their_differences() -> None:
    plain = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.int8()),
            ("c", pa.string()),
            ("d", pa.date32()),
            ("e", pa.float64()),
            ("f", pa.binary()),
        ]
    )
    numbers = {"b": "DELTA_BINARY_PACKED", "d": "DELTA_BINARY_PACKED"}
    assert _differences(plain) == {"a": "DELTA_BYTE_ARRAY", **numbers}
    assert _differences(pa.schema([("f", pa.binary())])) == {"f": "DELTA_BYTE_ARRAY"}
    assert _differences(pa.schema([("e", pa.float64())])) == {}


@pytest.mark.parametrize("by_object", [False, True])
def test_a_delete_that_has_uploaded_an_object_says_when(
    by_object: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage collection takes what is older than its boundary and in no version."""
    bench = new_bench()
    loaded = bench.load()
    changes: list[Any] = []

    def planned(ctx: Any, base: Any, plan: Any) -> Any:
        changes.append(plan(base).change)
        return Committed(base)

    monkeypatch.setattr(module, "commit_planned", planned)
    if by_object:
        keys = pa.table({"id": pa.array(range(INLINE_KEYS + 1), pa.int64())})
        module.delete_keys(bench.ctx, keys, base=loaded)
    else:
        module.delete(bench.ctx, compared("<", 1), base=loaded)
    [change] = changes
    assert change.uploaded_us == (loaded.date_us if by_object else None)
    assert change.deleted_rows is None and len(change.markers) == 1


def test_a_delete_that_hit_nothing_looks_again_where_the_table_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = new_bench()
    loaded = bench.load()
    for etag, version, markers, looks in (
        (loaded.etag, None, True, 1),
        ("other", None, True, 2),
        ("other", 3, True, 1),  # applied before
        ("other", None, False, 1),
    ):
        answers: list[Any] = []

        def planned(
            ctx: Any, base: Any, plan: Any, answers: Any = answers, version: Any = version
        ) -> Any:
            plan(base)
            answers.append(base)
            return Skipped(base, version)

        monkeypatch.setattr(module, "commit_planned", planned)
        monkeypatch.setattr(
            module, "current_base", lambda ctx, base, etag=etag: replace(loaded, etag=etag)
        )
        made = [Marker(id="m", body=Where(compared("<", 1)))] if markers else []
        module.commit_markers(bench.ctx, loaded, None, lambda _, made=made: made)
        assert len(answers) == looks, (etag, version, markers)


def test_row_groups_are_deleted_by_ordinals_that_the_file_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = new_bench()
    loaded = bench.append(5)
    [file] = loaded.state.loaded_files()
    three = replace(file, row_groups=3)
    state = State(replace(loaded.snapshot, files=Tier((), (three,))))
    base = replace(loaded, state=state)
    made: list[Any] = []

    def commit(ctx: Any, base: Any, request: Any, markers_on: Any) -> Any:
        made.extend(markers_on(None))
        return Committed(base)

    monkeypatch.setattr(module, "commit_markers", commit)
    monkeypatch.setattr(module, "current_base", lambda ctx, given: given)
    for ordinals in ([0], [2], [0, 1, 2], [2, 0, 2]):
        module.delete_row_groups(bench.ctx, file.key, ordinals, base=base)
        marker = made.pop()
        assert (marker.body, marker.file) == (RowGroups(tuple(sorted({*ordinals}))), file.key)
    for key, ordinals in (
        (file.key, []),
        (file.key, [3]),
        (file.key, [0, 3]),
        (file.key, [-1]),
        (file.key, [-1, 0]),
        ("gone", [0]),
    ):
        with pytest.raises(InvalidRequest, match="no such row groups"):
            module.delete_row_groups(bench.ctx, key, ordinals, base=base)
    assert made == []


def test_only_the_mode_of_deletes_may_be_to_erase() -> None:
    assert [module.known_mode(mode, "delete.mode") for mode in DELETE_MODES] == [*DELETE_MODES]
    for name, erases in (("delete.mode", True), ("update.mode", False)):
        with pytest.raises(InvalidRequest) as caught:
            module.known_mode("other", name)
        assert ("erase" in str(caught.value)) is erases

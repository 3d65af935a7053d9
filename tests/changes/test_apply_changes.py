"""Change streams through the table, one batch after another, against a plain model."""

from __future__ import annotations

import itertools
import math
import uuid
from datetime import timedelta

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.changes.streams import expected, table_of

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.plan.change_records import DEBEZIUM, Rank, counts_over, rank

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])
NUMBER = itertools.count()


def new_table(schema: pa.Schema = SCHEMA, **options) -> inlay.Table:
    uri = f"memory://changes-{next(NUMBER)}/t"
    return inlay.create(uri, schema, **{"primary_key": "id", **options})


def shown(table: inlay.Table) -> dict:
    rows = table.scan().to_arrow().to_pylist()
    found = {row["id"]: (row["value"], row["lsn"]) for row in rows}
    assert len(found) == len(rows)
    return found


# -- the cases that were wrong --------------------------------------------------------------------


def test_a_late_event_in_a_later_batch_does_not_win() -> None:
    t = new_table()
    t.apply_changes(table_of([("c", 1, "10", 1), ("c", 2, "20", 2)]), order="lsn", op="op")
    done = t.apply_changes(table_of([("u", 1, "99", 9), ("d", 2, None, 10)]), order="lsn", op="op")
    assert (done.inserted, done.updated, done.deleted, done.late) == (0, 1, 1, 0)
    done = t.apply_changes(table_of([("u", 1, "50", 5), ("u", 2, "25", 6)]), order="lsn", op="op")
    assert (done.committed, done.late, done.records) == (False, 2, 2)
    assert shown(t) == {1: ("99", 9)}


def test_a_key_created_and_deleted_within_one_batch_is_gone() -> None:
    t = new_table()
    done = t.apply_changes(table_of([("c", 1, "a", 1), ("d", 1, None, 2)]), order="lsn", op="op")
    assert shown(t) == {} and done.deleted == 0 and done.records == 2
    t.apply_changes(table_of([("c", 1, "a", 1)]), order="lsn", op="op")
    assert shown(t) == {}


@pytest.mark.parametrize(
    "batches", [[["c", "d"]], [["d", "c"]], [["c"], ["d"]], [["d"], ["c"]], [["c"], ["d"], ["c"]]]
)
def test_a_delete_counts_over_a_row_of_the_same_order(batches: list[list[str]]) -> None:
    t = new_table()
    for batch in batches:
        t.apply_changes(table_of([(op, 1, "a", 7) for op in batch]), order="lsn", op="op")
    assert shown(t) == {}


@pytest.mark.parametrize("op", ["DELETE ", "", None, "truncate", "t"])
def test_an_unknown_operation_refuses_the_batch(op: str | None) -> None:
    t = new_table()
    with pytest.raises(InvalidRequest, match="1 change records have an operation"):
        t.apply_changes(table_of([("c", 1, "a", 1), (op, 2, "b", 1)]), order="lsn", op="op")
    assert shown(t) == {} and t.version == 1


def test_a_batch_is_applied_once() -> None:
    t = new_table()
    batch = table_of([("c", 1, "a", 1)])
    assert t.apply_changes(batch, order="lsn", op="op", request_id="b").inserted == 1
    t.delete("id = 1")
    again = t.apply_changes(batch, order="lsn", op="op", request_id="b")
    assert again.applied_before and shown(t) == {}


# -- against the model ----------------------------------------------------------------------------

ORDERS = st.sampled_from([None, 0, 1, 2, 3, 4])
RECORDS = st.lists(
    st.tuples(st.sampled_from("ucd"), st.integers(0, 4), st.sampled_from(["x", "y", None]), ORDERS),
    max_size=24,
)


@settings(max_examples=60)
@given(RECORDS, st.sets(st.integers(0, 24)), st.integers(0, 24), st.data())
def test_any_stream_in_any_batches_gives_the_same_rows(records, cuts, repeated, data) -> None:
    records = [*records, *records[:repeated]]
    ends = sorted({*(c for c in cuts if c < len(records)), len(records)})
    batches = [records[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    t = new_table()
    for number, batch in enumerate(batches):
        done = t.apply_changes(
            table_of(batch),
            order="lsn",
            op="op",
            request_id=data.draw(st.sampled_from([None, f"{number}"])),
        )
        assert done.records == len(batch)
        before = data.draw(st.sampled_from(["", "", "", "compact", "rewrite", "alter", "gc"]))
        match before:
            case "compact":
                t.maintain.compact(small_bytes=1 << 30)
            case "rewrite":
                t.maintain.rewrite()
            case "alter":
                t.alter(rename={"value": "value2"})
                t.alter(rename={"value2": "value"})
            case "gc":
                t.maintain.collect_garbage(grace=timedelta(0))
        assert shown(t) == expected(batches[: number + 1])
    assert not t.maintain.verify().errors


WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("time", pa.float64()),
        ("seq", pa.int32()),
        ("value", pa.string()),
        ("extra", pa.list_(pa.int64())),
    ]
)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.one_of(st.none(), st.integers(0, 3)),
            st.sampled_from(["p", "q", None]),
            st.sampled_from([None, -0.0, 0.0, 1.0, math.inf, math.nan]),
            st.sampled_from([None, 1, 2]),
            st.sampled_from(["x", "y"]),
        ),
        max_size=20,
    ),
    st.integers(1, 5),
    st.booleans(),
)
def test_two_orders_null_keys_moving_partitions_and_partial_rows(records, size, soft) -> None:
    schema = WIDE.append(pa.field("gone", pa.bool_())) if soft else WIDE
    t = new_table(schema, partition_by=["part"])
    model: dict[object, tuple[Rank, dict]] = {}
    for start in range(0, len(records), size):
        batch = records[start : start + size]
        lacks = "extra" if start % 2 else None
        rows = [
            {
                "del": gone,
                "id": key,
                "part": part,
                "time": time,
                "seq": seq,
                "value": value,
                "extra": [start + n],
            }
            for n, (gone, key, part, time, seq, value) in enumerate(batch)
        ]
        data = pa.Table.from_pylist(
            rows, pa.schema([("del", pa.bool_()), *WIDE]) if rows else None
        ).drop_columns([lacks] if lacks else [])
        only = data.drop_columns(["del"]).append_column("del", data["del"])
        t.apply_changes(
            only,
            order=["time", "seq"],
            operations={"rows": ["false"], "deletes": ["true"]},
            op="del",
            nulls="equal",
            delete_to="gone" if soft else None,
        )
        newest: dict[object, tuple[Rank, dict]] = {}
        for row in rows:
            found = rank([row["time"], row["seq"]], is_delete=row["del"])
            if row["id"] not in newest or counts_over(found, newest[row["id"]][0]):
                newest[row["id"]] = (found, row)
        for key, (found, row) in newest.items():
            if key in model and not counts_over(found, model[key][0]):
                continue
            old = model[key][1] if key in model else None
            lives = old is not None and (soft or not old["del"])
            new = dict(row)
            if row["del"]:
                keeps = (
                    old
                    if lives and old is not None
                    else {"part": None, "value": None, "extra": None}
                )
                new |= {name: keeps[name] for name in ("part", "value", "extra")}
            elif lacks:
                new["extra"] = old["extra"] if lives and old is not None else None
            model[key] = (found, new)
    rows_of = [row for _, row in model.values() if soft or not row["del"]]
    names = [*WIDE.names, *(["gone"] if soft else [])]
    right = sorted(repr([row["del"] if n == "gone" else row[n] for n in names]) for row in rows_of)
    there = t.scan().to_arrow().to_pylist()
    assert sorted(repr([row[n] for n in names]) for row in there) == right


# -- what it is given -----------------------------------------------------------------------------


def test_only_the_order_of_events_counts_where_upsert_is_told_so() -> None:
    t = new_table()
    row = lambda value, lsn: pa.table({"id": [1], "value": [value], "lsn": [lsn]})  # noqa: E731
    t.upsert(row("new", 9), order="lsn", when="newer")
    assert not t.upsert(row("old", 5), order="lsn", when="newer").committed
    assert shown(t) == {1: ("new", 9)}
    with pytest.raises(InvalidRequest, match="order"):
        t.upsert(row("old", 5), when="newer")


def test_deletes_by_a_condition_on_the_data() -> None:
    t = new_table()
    data = pa.table({"id": [1, 2], "value": ["a", "b"], "lsn": [1, 1]})
    t.apply_changes(data, order="lsn", delete_when="value = 'b'")
    assert shown(t) == {1: ("a", 1)}
    t.apply_changes(data, order="lsn", delete_when="upper(value) = 'A'")
    assert shown(t) == {}
    nothing = pa.table({"id": [1], "value": pa.array([None], pa.string()), "lsn": [2]})
    with pytest.raises(InvalidRequest, match="neither TRUE nor FALSE for 1"):
        t.apply_changes(nothing, order="lsn", delete_when="value = 'b'")


@pytest.mark.parametrize(
    "condition", ["op = 'd'", "lower(op) = 'd'", "op IN ('d', 'x') AND id > 0"]
)
def test_a_condition_may_ask_for_a_column_that_only_says_what_a_record_does(condition: str) -> None:
    t = new_table()
    t.apply_changes(
        table_of([("c", 1, "a", 1), ("c", 2, "b", 1)]), order="lsn", delete_when=condition
    )
    t.apply_changes(table_of([("d", 1, None, 2)]), order="lsn", delete_when=condition)
    assert shown(t) == {2: ("b", 1)}
    more = table_of([("c", 3, "c", 1)]).append_column("more", [[1]])
    with pytest.raises(SchemaMismatch, match="more"):
        t.apply_changes(more, order="lsn", delete_when=condition)


def test_a_delete_may_lack_what_a_row_must_have() -> None:
    schema = pa.schema(
        [("id", pa.int64()), pa.field("value", pa.string(), nullable=False), ("lsn", pa.int64())]
    )
    t = new_table(schema)
    t.apply_changes(table_of([("c", 1, "a", 1), ("d", 2, None, 1)]), order="lsn", op="op")
    t.apply_changes(table_of([("d", 1, None, 2)]), order="lsn", op="op")
    assert shown(t) == {}
    with pytest.raises(SchemaMismatch):
        t.apply_changes(table_of([("c", 1, None, 3)]), order="lsn", op="op")


def test_a_column_that_the_table_lacks_is_refused_or_added() -> None:
    t = new_table()
    data = table_of([("c", 1, "a", 1)]).append_column("more", [[5]])
    with pytest.raises(SchemaMismatch, match="more"):
        t.apply_changes(data, order="lsn", op="op")
    t.set_properties(schema__evolve="add")
    t.apply_changes(data, order="lsn", op="op")
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "value": "a", "lsn": 1, "more": 5}]


def test_keys_with_a_null() -> None:
    t = new_table()
    data = pa.table({"id": pa.array([None, 1], pa.int64()), "value": ["a", "b"], "lsn": [1, 1]})
    with pytest.raises(InvalidRequest, match="1 change records have a NULL in their key"):
        t.apply_changes(data, order="lsn")
    for _ in range(2):
        t.apply_changes(data, order="lsn", nulls="equal")
    assert shown(t) == {None: ("a", 1), 1: ("b", 1)}
    done = t.apply_changes(data, order="lsn", nulls="distinct")
    assert t.count() == 3 and done.note.startswith("1 row has a NULL in its key and was inserted")


@pytest.mark.parametrize("whole", [True, False])
def test_an_upsert_says_what_a_null_in_a_key_does(whole: bool) -> None:
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("value", pa.int64())])
    t = new_table(schema, primary_key=["tenant", "id"])
    for value in (1, 2, 3):
        data = pa.table(
            {"tenant": ["a", None, None], "id": [1, 1, None], "value": [value] * 3}, schema
        )
        done = t.upsert(data if whole else data.select(["tenant", "id"]))
        assert done.note.startswith("2 rows have a NULL in their key and were inserted")
    assert t.count() == 7
    for value in (4, 5):
        data = pa.table({"tenant": [None, None], "id": [1, None], "value": [value] * 2}, schema)
        done = t.upsert(data, nulls="equal")
        assert not done.note
    assert t.count() == 3
    found = {(r["tenant"], r["id"]): r["value"] for r in t.scan().to_arrow().to_pylist()}
    assert found[None, 1] == found[None, None] == 5
    twice = pa.table({"tenant": [None, None], "id": [1, 1], "value": [1, 2]}, schema)
    with pytest.raises(InvalidRequest, match="2 rows for 1 key"):
        t.upsert(twice, nulls="equal")
    with pytest.raises(InvalidRequest, match="nulls cannot be"):
        t.upsert(twice, nulls="same")


def test_as_many_keys_with_a_null_as_may_be_listed_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inlay.ops.write.keyed_rows.MAX_LISTED_KEYS", 3)
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64())])
    t = new_table(schema, primary_key=["tenant", "id"])
    for keys in (3, 3, 4):
        data = pa.table({"tenant": [None] * keys, "id": range(keys)}, schema)
        if keys == 3:
            t.upsert(data, nulls="equal")
            continue
        with pytest.raises(InvalidRequest, match="4 keys with a NULL are replaced at once"):
            t.upsert(data, nulls="equal")
    assert t.count() == 3


def test_several_rows_of_a_key_become_one() -> None:
    t = new_table()
    t.append(pa.table({"id": [1, 1, 1], "value": ["a", "b", "c"], "lsn": [1, 3, 2]}))
    t.apply_changes(pa.table({"id": [1], "lsn": [4]}), order="lsn")
    assert t.scan().to_arrow().to_pylist() == [{"id": 1, "value": "b", "lsn": 4}]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"order": "nope"}, "nope"),
        ({"order": "id"}, "ordered by"),
        ({"order": ["lsn", "lsn"]}, "twice"),
        ({"order": "lsn", "op": "nope"}, "no column 'nope'"),
        ({"order": "lsn", "op": "op", "delete_when": "TRUE"}, "says what is a delete"),
        ({"order": "lsn", "operations": "nope"}, "cannot be 'nope'"),
        ({"order": "lsn", "op": "op", "delete_to": "value"}, "no boolean or timestamp"),
        ({"order": "lsn"}, "op"),
        ({"order": "lsn", "op": "op", "on": "nope"}, "nope"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict, match: str) -> None:
    t = new_table()
    with pytest.raises((InvalidRequest, SchemaMismatch), match=match):
        t.apply_changes(table_of([("c", 1, "a", 1)]), **options)
    assert t.version == 1


@pytest.mark.parametrize("column", ["id", "value", "lsn", "op"])
@pytest.mark.parametrize("nested", [False, True])
def test_runs_are_refused_by_column_with_what_decodes_them(column: str, nested: bool) -> None:
    """Arrow takes and compares none of them."""
    t = new_table()
    batch = table_of([("c", 1, "a", 1), ("u", 1, "b", 2)])
    at = batch.column_names.index(column)
    runs = pc.run_end_encode(batch[column].combine_chunks())
    if nested:
        runs = pa.StructArray.from_arrays([runs], ["inner"])
    with pytest.raises(SchemaMismatch, match=column) as refused:
        t.apply_changes(batch.set_column(at, column, runs), order="lsn", op="op")
    assert "run_end_decode" in refused.value.next_step


def test_a_branch_is_refused() -> None:
    t = new_table()
    with pytest.raises(InvalidRequest, match="branch"):
        t.refs.branch("b").apply_changes(table_of([("c", 1, "a", 1)]), order="lsn", op="op")


# -- what producers write -------------------------------------------------------------------------


def test_both_halves_of_an_update_of_a_snowflake_stream() -> None:
    t = new_table()
    action, is_update = "METADATA$ACTION", "METADATA$ISUPDATE"
    data = pa.table(
        {
            action: ["INSERT", "DELETE", "INSERT"],
            is_update: [False, True, True],
            "METADATA$ROW_ID": ["r2", "r1", "r1"],
            "id": [2, 1, 1],
            "value": ["b", "old", "new"],
            "lsn": [5, 5, 5],
        }
    )
    done = t.apply_changes(data, order="lsn", operations="snowflake")
    assert shown(t) == {1: ("new", 5), 2: ("b", 5)} and done.records == 2


def test_tombstones_of_kafka() -> None:
    t = new_table()
    data = pa.table({"id": [1, 2], "value": ["a", None], "lsn": [1, 1]})
    t.apply_changes(data, order="lsn", operations="kafka-tombstones")
    assert shown(t) == {1: ("a", 1)}


def test_debezium_records_as_they_come() -> None:
    """The form of its documentation: `before` and `after`, the log's position in `source`."""
    lsn = lambda at: {"connector": "postgresql", "db": "shop", "lsn": at, "txId": 555}  # noqa: E731
    row = lambda key, value: {"id": key, "value": value}  # noqa: E731
    events = [
        {"before": None, "after": row(1, "a"), "source": lsn(1), "op": "r", "ts_ms": 10},
        {"before": None, "after": row(2, "b"), "source": lsn(2), "op": "c", "ts_ms": 11},
        {"before": row(1, "a"), "after": row(1, "c"), "source": lsn(3), "op": "u", "ts_ms": 12},
        {"before": row(2, None), "after": None, "source": lsn(4), "op": "d", "ts_ms": 13},
    ]
    for batches in ([events], [[event] for event in events], [[event] for event in events[::-1]]):
        t = new_table()
        for batch in batches:
            data = pa.Table.from_pylist(batch, pa.Table.from_pylist(events).schema)
            t.apply_changes(data, order="lsn", operations="debezium")
        assert shown(t) == {1: ("c", 3)}
    with pytest.raises(SchemaMismatch, match="lsn"):
        t.apply_changes(data.drop_columns(["source"]), order="lsn", operations="debezium")


@pytest.mark.parametrize("text", [pa.string(), pa.dictionary(pa.int8(), pa.string())])
def test_a_record_that_lacks_its_row_or_changes_its_key_is_refused(text: pa.DataType) -> None:
    """A row that is left under the old key, or written as it was before, would be a silent difference."""
    schema = pa.schema([("name", pa.string()), ("n", pa.int64()), ("value", pa.string())])
    struct = pa.struct([("name", text), ("n", pa.int64()), ("value", pa.string())])
    whole = pa.schema([("op", text), ("before", struct), ("after", struct), ("lsn", pa.int64())])
    rows = [None, *({"name": n, "n": k, "value": "x"} for n in ("a", "b", None) for k in (1, 2))]
    columns = schema.append(pa.field("lsn", pa.int64()))
    t = new_table(columns, primary_key=["name", "n"])
    for at, (op, before, after) in enumerate(itertools.product("cud", rows, rows)):
        row = after or before
        if row is None or row["name"] is None:
            continue  # refused for another reason
        known = {k: v for k, v in (before or {}).items() if v is not None}
        record = {"op": op, "before": before, "after": after, "lsn": at}
        data = pa.Table.from_pylist([record], whole)
        if op != "d" and (after is None or known.items() - after.items()):
            why = "no row after" if after is None else "a change of the key"
            with pytest.raises(InvalidRequest, match=why):
                t.apply_changes(data, order="lsn", operations="debezium")
        else:
            why = op
            t.apply_changes(data, order="lsn", operations="debezium")
        assert DEBEZIUM.flat(record, columns.names, ("name", "n"))["op"] == why


def test_dms_files_as_they_come() -> None:
    """`Op` first, then the columns, then the timestamp column that the endpoint's settings name."""
    t = new_table()
    data = pa.table(
        {"Op": ["I", "I", "U", "D"], "id": [1, 2, 1, 2], "value": list("abcb"), "lsn": [1, 1, 2, 2]}
    )
    t.apply_changes(data, order="lsn", operations="dms")
    assert shown(t) == {1: ("c", 2)}


def test_a_flattened_debezium_record() -> None:
    t = new_table()
    data = table_of([("true", 1, None, 2), ("false", 2, "b", 2)]).rename_columns(
        ["__deleted", "id", "value", "lsn"]
    )
    t.apply_changes(table_of([("r", 1, "a", 1)]), order="lsn", operations="debezium")
    t.apply_changes(data, order="lsn", operations="debezium-flat")
    assert shown(t) == {2: ("b", 2)}


# -- the memory of deletes ------------------------------------------------------------------------


def test_other_listings_do_not_see_the_memory() -> None:
    uri = f"memory://changes-{next(NUMBER)}"
    t = inlay.create(f"{uri}/t", SCHEMA, primary_key="id")
    t.apply_changes(table_of([("d", 1, None, 1)]), order="lsn", op="op")
    assert inlay.tables(uri) == [f"{uri}/t"]
    assert inlay.open(f"{uri}/t/changes").count() == 1
    t.maintain.collect_garbage(grace=timedelta(0))
    assert t.maintain.collect_garbage(grace=timedelta(0)).unknown_count == 0
    assert not t.maintain.verify().errors and not t.maintain.verify().unknown
    assert inlay.open(f"{uri}/t/changes").count() == 1


def test_the_memory_is_of_one_key_and_one_order() -> None:
    t = new_table()
    t.apply_changes(table_of([("d", 1, None, 1)]), order="lsn", op="op")
    with pytest.raises(InvalidRequest, match="another key, or another order"):
        t.apply_changes(table_of([("d", 1, "x", 2)]), order="lsn", op="op", on="value")


def test_columns_may_be_renamed_and_widened() -> None:
    schema = pa.schema([("id", pa.int32()), ("value", pa.string()), ("lsn", pa.int32())])
    t = new_table(schema)
    t.apply_changes(table_of([("d", 1, None, 9)]), order="lsn", op="op")
    t.alter(widen={"id": pa.int64(), "lsn": pa.int64()})
    t.apply_changes(table_of([("d", 1 << 40, None, 1 << 40)]), order="lsn", op="op")
    t.alter(rename={"lsn": "seq"})
    late = table_of([("u", 1, "a", 5), ("u", 1 << 40, "b", 5), ("u", 2, "c", 5)])
    done = t.apply_changes(late.rename_columns(["op", "id", "value", "seq"]), order="seq", op="op")
    assert (done.late, done.inserted) == (2, 1)


def test_a_restore_loses_no_key() -> None:
    """The memory is not restored: records that the deletes hide stay hidden, and the stream repeated from
    the restored version gives what it gave before."""
    t = new_table()
    first = [("c", key, "a", 1) for key in range(4)]
    later = [("d", 1, None, 5), ("u", 2, "b", 5), ("d", 3, None, 5), ("c", 3, "again", 6)]
    t.apply_changes(table_of(first), order="lsn", op="op")
    version = t.version
    t.apply_changes(table_of(later), order="lsn", op="op")
    t.refs.restore(version=version)
    assert shown(t) == expected([first])
    t.apply_changes(table_of([("u", 1, "late", 3)]), order="lsn", op="op")
    t.apply_changes(table_of(later), order="lsn", op="op")
    assert shown(t) == expected([first, later])


@pytest.mark.parametrize("op", [None, "op"])
def test_a_frame_of_polars_is_taken(op: str | None) -> None:
    """Its texts are views, which Arrow neither filters nor takes; within structs and lists, too."""
    rows = [(1, "a"), (2, "b" * 40), (1, "c"), (2, "d")]
    frame = pl.DataFrame(
        {
            "id": [id_ for id_, _ in rows],
            "text": [text for _, text in rows],
            "inner": [{"x": text, "y": [text, None]} for _, text in rows],
            "lsn": range(4),
        }
    )
    t = inlay.create(f"memory://{uuid.uuid4().hex}/t", frame.to_arrow().schema, primary_key="id")
    deletes = {} if op is None else {"op": op}
    given = frame if op is None else frame.with_columns(pl.Series("op", ["c", "c", "u", "d"]))
    t.apply_changes(given, order="lsn", **deletes)
    kept = frame[2:] if op is None else frame[2:3]
    assert pl.from_arrow(t.refresh().scan(order_by="id", limit=9).to_arrow()).equals(kept)

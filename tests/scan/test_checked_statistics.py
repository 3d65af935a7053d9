"""Statistics of landing files are compared with their rows once, when they come."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay.errors import UnsupportedFile
from inlay.format.entry import DataFile
from inlay.format.predicate import IsNull, Operator
from inlay.ops.metadata.load import load_pointer
from inlay.ops.schema.create import create
from inlay.ops.verify.table import verify
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import Ingested, Rejected, SourceOutcome, ingest, take_over
from inlay.ops.write.upsert import upsert
from inlay.parquet.footer.fields import Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.storage.base import Location
from inlay.storage.wrapped import MeteredStore

from ..erasure import categories
from ..erasure.people import SCHEMA, People, new_people, rows
from ..erasure.test_foreign_statistics import compared, wrong_file
from .test_foreign_statistics import bounds, claiming, shown

PLACE = Location("memory", "b", "ingest/people/x.parquet")


def table(schema: pa.Schema = SCHEMA, key: str | None = "id", **properties: str) -> People:
    people = new_people()
    people = replace(people, ctx=replace(people.ctx, root="tables/other"))
    named = {f"ingest.{name}": value for name, value in properties.items()}
    create(people.ctx, schema, primary_key=[key] if key else [], properties=named)
    return people


def take(people: People, body: bytes, *, adopt: bool = False) -> SourceOutcome:
    people.time.sleep(1)
    people.store.put(PLACE.key, body)
    [outcome] = ingest(people.ctx, [IngestSource(PLACE)], adopt=adopt).outcomes
    return outcome


def landed_file(people: People) -> DataFile:
    [entry] = people.snapshot.files.inline
    return entry


def test_an_upsert_replaces_the_row_that_the_writer_denies() -> None:
    people = table()
    assert isinstance(take(people, wrong_file(20, 39)), Ingested)
    assert not landed_file(people).is_foreign
    upsert(people.ctx, rows([1, 50]))
    assert sorted(shown(people)) == [1, *range(20, 40), 50]


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_a_delete_by_key_finds_the_row_that_the_writer_denies(mode: str) -> None:
    people = table()
    take(people, wrong_file(20, 39))
    assert shown(people, compared("<", 20)) == [1]
    people.delete(compared("<", 20), mode=mode)
    assert sorted(shown(people)) == list(range(20, 40))


@pytest.mark.parametrize(("adopt", "limit"), [(True, "1000000"), (False, "0")])
def test_what_cannot_be_written_again_is_refused(adopt: bool, limit: str) -> None:
    people = table(split_bytes=limit)
    outcome = take(people, wrong_file(20, 39), adopt=adopt)
    assert isinstance(outcome, Rejected)
    assert "columns checked: id" in str(outcome.error)
    assert "ingest.check_statistics" in str(outcome.error)
    assert shown(people) == []


@pytest.mark.parametrize(
    ("check", "key", "is_checked"),
    [("none", "id", False), ("key", None, False), ("key", "name", False), ("all", None, True)],
)
def test_only_the_columns_asked_for_are_compared(
    check: str, key: str | None, is_checked: bool
) -> None:
    people = table(key=key, check_statistics=check)
    assert isinstance(take(people, wrong_file(20, 39)), Ingested)
    assert landed_file(people).is_foreign is not is_checked


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("check", ["none", "key"])
def test_a_required_column_takes_no_nulls_on_the_word_of_a_footer(check: str, adopt: bool) -> None:
    people = table(REQUIRED, None, check_statistics=check)
    outcome = take(people, holding([5, None, 7], 5, 7, nulls=0), adopt=adopt)
    assert isinstance(outcome, Rejected) and "'x' holds nulls" in str(outcome.error)
    assert shown_values(people) == []
    assert isinstance(take(people, holding([5, 6, 7], 5, 7, nulls=0), adopt=adopt), Ingested)
    assert shown_values(people) == [5, 6, 7]


def test_nanoseconds_take_no_year_on_the_word_of_a_footer() -> None:
    """Of nested columns as well."""
    near, far = pa.array([1, 2], pa.timestamp("ms")), pa.array([1, 10**15], pa.timestamp("ms"))
    kind = pa.timestamp("ns")
    for schema, wrap in (
        (pa.schema([("x", kind)]), lambda values: values),
        (
            pa.schema([("x", pa.struct([("y", kind)]))]),
            lambda values: pa.StructArray.from_arrays([values], ["y"]),
        ),
    ):
        people = table(schema, None)
        bad = take(people, claiming(one_column(wrap(far)), 1, 2, 0))
        assert isinstance(bad, Rejected) and "timestamp[ns]" in str(bad.error)
        assert isinstance(take(people, one_column(wrap(near))), Ingested)
        assert inlay.open(people.ctx.uri, context=people.ctx).scan().to_arrow().num_rows == 2


REQUIRED = pa.schema([pa.field("x", pa.int64(), False)])


def one_column(values: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": values}), sink)
    return sink.getvalue()


def holding(values: list[int | None], low: int, high: int, *, nulls: int) -> bytes:
    return claiming(one_column(pa.array(values, pa.int64())), low, high, nulls)


def shown_values(people: People) -> list[int]:
    found = inlay.open(people.ctx.uri, context=people.ctx).scan().to_arrow()
    return sorted(found["x"].to_pylist())


@pytest.mark.parametrize("writer", categories.WRITERS)
def test_files_of_other_writers_are_copied_as_they_are(writer: str) -> None:
    body = categories.WRITERS[writer](True)
    people = table(pa.schema([("id", pa.int64()), ("email", pa.string())]), check_statistics="all")
    assert isinstance(take(people, body), Ingested)
    entry = landed_file(people)
    assert entry.is_foreign and people.store.get(people.ctx.key(entry.key)).body == body


def test_nan_null_and_bounds_cut_short_contradict_nothing() -> None:
    """As honest writers leave them: NaN is outside of all bounds, which pandas and Arrow leave out."""
    nan = float("nan")
    columns = {
        "f": pa.array([nan, 1.5, -0.0, None, float("inf")]),
        "only_nan": pa.array([nan] * 5),
        "nothing": pa.array([None] * 5, pa.int64()),
        "text": ["x" * 100 + str(n) for n in range(5)],
    }
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=2)
    people = table(pa.table(columns).schema, None, check_statistics="all")
    take(people, sink.getvalue())
    assert landed_file(people).is_foreign


def test_what_checking_costs() -> None:
    """Nothing where the file came whole with its footer; else the key's chunks, once."""
    small, large = io.BytesIO(), io.BytesIO()
    pq.write_table(rows(list(range(300))), small, row_group_size=100)
    pq.write_table(rows(list(range(40_000))), large, row_group_size=10_000)
    assert len(small.getvalue()) < 64 * 1024 < len(large.getvalue())
    assert requests(small.getvalue(), "key") == requests(small.getvalue(), "none")
    checked, plain = (requests(large.getvalue(), check) for check in ("key", "none"))
    assert checked == {**plain, "get": plain["get"] + 4}


def taken_over(people: People, body: bytes) -> tuple[DataFile, ...]:
    """As a file that Spark's own writer has just written for an append."""
    people.store.put(PLACE.key, body)
    loaded = load_pointer(people.ctx)
    return take_over(people.ctx, [IngestSource(PLACE)], loaded, event="e")


def test_what_sparks_writer_wrote_is_compared_as_well() -> None:
    people = table()
    [entry] = taken_over(people, wrong_file(20, 39))
    assert not entry.is_foreign and (entry.stats[1].lower, entry.stats[1].upper) == (1, 39)
    [entry] = taken_over(people, wrong_file(1, 39))
    assert entry.is_foreign
    people = table(check_statistics="none")
    [entry] = taken_over(people, wrong_file(20, 39))
    assert entry.is_foreign
    with pytest.raises(UnsupportedFile, match="leave out rows that it has"):
        taken_over(table(split_bytes="0"), wrong_file(20, 39))


def test_files_from_before_are_found_by_verify_and_not_gone_by_where_rows_are_read() -> None:
    """The file as a whole states true bounds: one row group of it does not."""
    people = table(check_statistics="none")
    sink = io.BytesIO()
    pq.write_table(rows([1, 2, 3, 20, 21, 22]), sink, row_group_size=3)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    stats = footer.row_groups[1].column(0).statistics
    assert stats is not None
    footer.row_groups[0].column(0).meta[Meta.STATISTICS] = dict(stats)
    footer.row_groups[1].column(0).meta[Meta.STATISTICS] = {
        **stats,
        Stats.MIN: (1).to_bytes(8, "little"),
    }
    assert isinstance(take(people, body[: footer.start] + end_of_file(footer.tree)), Ingested)
    assert verify(people.ctx, depth="footers").errors == ()
    [found] = verify(people.ctx, depth="pages").errors
    assert (found.kind, found.key) == ("statistics_wrong", landed_file(people).key)
    people.delete(compared("=", 2), mode="vector")
    assert sorted(shown(people)) == [1, 3, 20, 21, 22]


def test_what_comparing_those_costs() -> None:
    sink = io.BytesIO()
    pq.write_table(rows(list(range(40_000))), sink, row_group_size=10_000)

    def used(check: str) -> dict[str, int]:
        people = table(check_statistics=check)
        store = MeteredStore(people.store)
        people = replace(people, ctx=replace(people.ctx, store=store))
        before = store.usage()
        taken_over(people, sink.getvalue())
        return dict((store.usage() - before).requests)

    plain = used("none")
    assert used("key") == {**plain, "get": plain["get"] + 4}


def requests(body: bytes, check: str) -> dict[str, int]:
    people = table(check_statistics=check)
    store = MeteredStore(people.store)
    people = replace(people, ctx=replace(people.ctx, store=store))
    people.store.put(PLACE.key, body)
    before = store.usage()
    [outcome] = ingest(people.ctx, [IngestSource(PLACE)]).outcomes
    assert isinstance(outcome, Ingested)
    return dict((store.usage() - before).requests)


@given(
    st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=6),
    bounds,
    bounds,
    st.integers(0, 6),
    st.sampled_from(["=", "<", "<=", ">", ">=", "!=", "null"]),
    st.integers(0, 9),
)
def test_whatever_statistics_say_a_filter_and_a_tombstone_miss_no_row(
    values: list[int | None], low: int | None, high: int | None, nulls: int, op: Any, value: int
) -> None:
    people = table(pa.schema([("id", pa.int64())]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), sink, row_group_size=3)
    assert isinstance(take(people, claiming(sink.getvalue(), low, high, nulls)), Ingested)
    predicate = IsNull(1) if op == "null" else compared(op, value)
    wanted = [v for v in values if _matches(v, op, value)]
    assert _sorted(shown(people, predicate)) == _sorted(wanted)
    people.delete(predicate, mode="tombstone")
    assert _sorted(shown(people)) == _sorted([v for v in values if v not in wanted])


def _matches(found: int | None, op: Operator | str, value: int) -> bool:
    if op == "null" or found is None:
        return op == "null" and found is None
    return {
        "=": found == value, "<": found < value, "<=": found <= value, ">": found > value,
        ">=": found >= value, "!=": found != value,
    }[op]  # fmt: skip


def _sorted(values: list[int | None]) -> list[str]:
    return sorted(map(str, values))

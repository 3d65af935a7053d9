"""What other writers say of their rows leaves files out, as in any scan; no row goes on their word."""

from __future__ import annotations

import io
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.format.entry import DataFile, flags_of, stats_of
from inlay.format.predicate import TRUE, Comparison, In, IsNull, Literal, Not, Operator, Predicate
from inlay.format.schema import Primitive
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_entries, load_matching, load_pointer
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.update import update
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import Converted, Element, File, Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.read.describe import entry_of, parse_object_footer
from inlay.parse import parse_assignments
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence, trusted_under

from ..erasure.people import People, new_people, rows
from ..erasure.test_foreign_statistics import LONG, compared, landed, wrong_file

MODES = ["tombstone", "vector", "surgery", "rewrite"]


def test_statistics_that_parquet_mr_1_8_2_got_wrong_are_nobodys() -> None:
    """As `fixed_length_decimal.parquet` of apache/parquet-testing: compared byte by byte, signed."""
    body = decimals_of_old_parquet_mr()
    assert pq.read_metadata(io.BytesIO(body)).row_group(0).column(0).statistics.min == Decimal(2)
    entry, chunk = described(body)
    assert entry.stats[1].lower is None and entry.stats[1].upper is None
    assert not chunk.is_stats_set


@pytest.mark.parametrize("mode", MODES)
def test_a_delete_finds_the_decimal_that_parquet_mr_1_8_2_denies(mode: str) -> None:
    people = table(pa.schema([("value", pa.decimal128(25, 2))]))
    landed(people, decimals_of_old_parquet_mr())
    kind = Primitive("decimal", 25, 2)
    one = Comparison(1, "=", Literal(kind, Decimal("1.00")))
    assert shown(people, one) == [Decimal(1)]
    people.delete(one, mode=mode)
    assert shown(people) == [Decimal(n) for n in range(2, 25)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("adopt", [False, True], ids=["copied", "adopted"])
@pytest.mark.parametrize("op", [">=", ">"])
def test_rows_that_a_writer_claims_to_match_stay(op: Operator, adopt: bool, mode: str) -> None:
    """By the bounds every row matches: the file, and each row group, would go whole."""
    people = new_people()
    landed(people, wrong_file(20, 39), adopt=adopt)
    assert sorted(shown(people, compared(op, 19))) == list(range(20, 40))
    people.delete(compared(op, 19), mode=mode)
    assert shown(people) == [1]
    rewrite(people.ctx)
    assert shown(people) == [1]


@pytest.mark.parametrize("mode", ["vector", "surgery", "rewrite"])
@pytest.mark.parametrize("predicate", [compared("=", 1), In(1, LONG, (1, 2)), compared("<", 10)])
def test_deletes_that_look_at_rows_look_at_those_that_statistics_deny(
    predicate: Predicate, mode: str
) -> None:
    people = new_people()
    landed(people, wrong_file(20, 39))
    people.delete(predicate, mode=mode)
    assert sorted(shown(people)) == list(range(20, 40))


@pytest.mark.parametrize("mode", MODES)
def test_an_update_changes_what_it_takes_away(mode: str) -> None:
    """A tombstone hits what a scan shows: were a row found that it does not hit, there would be two."""
    people = new_people()
    landed(people, wrong_file(20, 39))
    new = parse_assignments({"name": "'new'"}, people.snapshot.schema)
    update(people.ctx, new, compared("=", 1), mode=mode)
    assert sorted(shown(people)) == [1, *range(20, 40)]


@pytest.mark.parametrize("mode", MODES)
def test_an_update_by_rows_leaves_out_no_leaf_by_anothers_statistics(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a leaf of entries nor a file; a tombstone hits what a scan shows, and needs no more."""
    asked: list[bool] = []

    def matching(ctx: Any, state: State, predicate: Any, *, by_rows: bool = False) -> State:
        asked.append(by_rows)
        return load_matching(ctx, state, predicate, by_rows=by_rows)

    monkeypatch.setattr("inlay.ops.write.update.load_matching", matching)
    people = new_people()
    landed(people, wrong_file(20, 39))
    new = parse_assignments({"name": "'new'"}, people.snapshot.schema)
    update(people.ctx, new, compared("=", 1), mode=mode)
    assert asked == [mode != "tombstone"]


bounds = st.none() | st.integers(-3, 12)


@given(
    st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=6),
    bounds,
    bounds,
    st.integers(0, 6),
    st.sampled_from(["=", "<", "<=", ">", ">=", "!="]),
    st.integers(0, 9),
    st.sampled_from(["compare", "null", "not null"]),
    st.sampled_from(MODES),
)
@example([None, None, None, None, 2], None, None, 2, "=", 2, "compare", "tombstone")
def test_whatever_statistics_say_no_row_goes_that_does_not_match(
    values: list[int | None],
    low: int | None,
    high: int | None,
    nulls: int,
    op: Operator,
    value: int,
    kind: str,
    mode: str,
) -> None:
    """Of scans, deletes and rewrites: no row is shown, or taken, that does not match; where rows
    decide, none is left that does. What a scan shows is what a tombstone takes."""
    people = table(pa.schema([("id", pa.int64())]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), sink, row_group_size=3)
    landed(people, claiming(sink.getvalue(), low, high, nulls))
    predicate: Predicate = compared(op, value)
    if kind != "compare":
        predicate = IsNull(1) if kind == "null" else Not(IsNull(1))

    def matches(v: int | None) -> bool:
        if kind != "compare":
            return (v is None) == (kind == "null")
        return v is not None and {
            "=": v == value, "<": v < value, "<=": v <= value, ">": v > value, ">=": v >= value,
            "!=": v != value,
        }[op]  # fmt: skip

    seen = shown(people, predicate)
    assert all(matches(v) for v in seen)
    people.delete(predicate, mode=mode)
    left = shown(people)
    wrong = [v for v in values if matches(v)]
    taken = seen if mode == "tombstone" else wrong
    assert sorted(map(str, left)) == sorted(map(str, _without(values, taken)))
    rewrite(people.ctx)
    assert sorted(map(str, shown(people))) == sorted(map(str, left))


def test_what_is_under_a_reference_is_sure_only_where_this_library_wrote_all_of_it() -> None:
    people = new_people()
    append(people.ctx, rows([1, 2]))
    landed(people, wrong_file(20, 39))
    own, foreign = sorted(State(people.snapshot).files(), key=lambda f: f.is_foreign)
    evidence = Evidence.of_snapshot(people.snapshot)

    def sure(*entries: DataFile) -> bool:
        schema_id, stats = evidence.of_files(entries, [1])
        return bool(trusted_under(SimpleNamespace(schema_id=schema_id, stats=stats)))  # type: ignore[arg-type]

    assert (sure(own), sure(foreign), sure(own, foreign)) == (True, False, False)


def test_a_reference_of_an_older_version_is_not_relied_on() -> None:
    """It calls the bounds of ingested files exact, and does not say whose files they are."""
    people = new_people()
    append(people.ctx, rows([1, 2]))
    entries = list(State(people.snapshot).files())
    _, stats = Evidence.of_snapshot(people.snapshot).of_files(entries, [1])
    kind = Primitive("int64")
    flags = flags_of(stats[1])
    old, new = (
        SimpleNamespace(schema_id=1, stats={1: stats_of(1, 2, 0, read, kind)})
        for read in (flags & ~8, flags)
    )
    assert old.stats == new.stats and old.stats[1].exact
    assert not trusted_under(old) and trusted_under(new)  # type: ignore[arg-type]


# -- tables and files -----------------------------------------------------------------------------


def table(schema: pa.Schema) -> People:
    people = new_people()
    people = replace(people, ctx=replace(people.ctx, root="tables/other"))
    create(people.ctx, schema)
    return people


def shown(people: People, predicate: Predicate = TRUE) -> list[Any]:
    """The first column of the rows that a scan shows."""
    state = load_entries(people.ctx, load_pointer(people.ctx).state)
    column = state.snapshot.schema.fields[0].name
    scan = Scan(people.ctx, state, where=predicate, columns=[column])
    return pa.table(scan).column(0).to_pylist()


def decimals_of_old_parquet_mr() -> bytes:
    """1.00 to 24.00 as 11 bytes, the bounds in the deprecated fields alone."""
    sink = io.BytesIO()
    values = pa.array([Decimal(n) for n in range(1, 25)], pa.decimal128(25, 2))
    pq.write_table(pa.table({"value": values}), sink, store_schema=False)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    raws = [(100 * n).to_bytes(11, "big") for n in range(1, 25)]
    ordered = sorted(raws, key=lambda raw: [b - 256 * (b > 127) for b in raw])
    footer.row_groups[0].column(0).meta[Meta.STATISTICS] = {
        Stats.OLD_MIN: ordered[0],
        Stats.OLD_MAX: ordered[-1],
        Stats.NULLS: 0,
    }
    del footer.tree[File.ORDERS]
    footer.tree[File.CREATED_BY] = (
        b"parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3)"
    )
    element = footer.schema[1]
    element.pop(Element.LOGICAL, None)
    assert element[Element.CONVERTED] == Converted.DECIMAL
    return body[: footer.start] + end_of_file(footer.tree)


def claiming(body: bytes, low: int | None, high: int | None, nulls: int) -> bytes:
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        stats = {Stats.NULLS: nulls}
        for key, value in ((Stats.MIN, low), (Stats.MAX, high)):
            if value is not None:
                stats[key] = value.to_bytes(8, "little", signed=True)
        group.column(0).meta[Meta.STATISTICS] = stats
    return body[: footer.start] + end_of_file(footer.tree)


def described(body: bytes) -> Any:
    found = parse_object_footer(body, size=len(body))
    schema = schema_from_arrow(pa.schema([("value", pa.decimal128(25, 2))]))
    entry, _ = entry_of(found, key="x", size=len(body), schema=schema, stats_columns=(1,))
    return entry, found.metadata.row_group(0).column(0)


def _without(values: list[Any], taken: list[Any]) -> list[Any]:
    left = list(values)
    for value in taken:
        left.remove(value)
    return left

"""Partitioned tables as their users meet them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.plan.pruning.partitions import group_key

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("region", pa.string()),
        ("price", pa.float64()),
    ]
)
START = datetime(1969, 12, 30, tzinfo=UTC)


def table(*partition_by: str, **options: Any) -> inlay.Table:
    uri = f"memory://partition/{uuid.uuid4().hex}"
    return inlay.create(uri, SCHEMA, primary_key="id", partition_by=partition_by, **options)


def events(count: int, first: int = 0, days: int = 4) -> pa.Table:
    """Spread over `days`, in no order of them."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": list(ids),
            "at": [START + timedelta(hours=(n * 7) % (24 * days)) for n in ids],
            "region": [("eu", "us", None)[n % 3] for n in ids],
            "price": [n / 4 for n in ids],
        },
        schema=SCHEMA,
    )


def files(t: inlay.Table) -> Any:
    return t.inspect.entries()[0]


def rows(t: inlay.Table, **options: Any) -> list[dict[str, Any]]:
    return sorted(t.scan(**options).to_arrow().to_pylist(), key=lambda row: row["id"])


def each_file_is_one_partition(t: inlay.Table, by: str) -> bool:
    """By the rows read back, not by what entries say."""
    found: dict[str, set[Any]] = defaultdict(set)
    for row in t.scan(columns=[by, "_file"]).to_arrow().to_pylist():
        value = row[by]
        found[row["_file"]].add(value.date() if isinstance(value, datetime) else value)
    return all(len(values) == 1 for values in found.values())


def test_an_append_makes_a_file_for_each_partition() -> None:
    t = table("day(at)")
    t.append(events(200))
    assert len(files(t)) == 4
    assert sorted(f.partition for f in files(t)) == [(-2,), (-1,), (0,), (1,)]
    assert each_file_is_one_partition(t, "at")
    assert rows(t) == events(200).to_pylist()


def test_queries_name_columns_and_read_only_the_partitions_that_match() -> None:
    t = table("day(at)", "region")
    t.append(events(240))
    assert len(files(t)) == 12
    where = "at >= TIMESTAMP '1970-01-01 00:00:00Z' AND region = 'eu'"
    plan = t.scan(where=where).explain()
    assert (plan.files_read, plan.pruned) == (2, 10)
    before = t.usage
    found = rows(t, where=where, columns=["id"])
    requests = t.usage - before
    assert requests.total == 2, "one GET for each file that matches: they are small"
    chosen = [e for e in events(240).to_pylist() if e["region"] == "eu" and e["at"].year == 1970]
    assert found == [{"id": e["id"]} for e in chosen]
    assert t.scan(where="region IS NULL").explain().files_read == 4


def test_a_bucket_finds_a_key_in_one_file() -> None:
    t = table("bucket(8, id)", properties={"stats.columns": 0})
    t.append(events(400))
    assert len(files(t)) == 8 and not any(f.stats for f in files(t))
    assert t.scan(where="id = 17").explain().files_read == 1
    assert t.scan(where="id IN (17, 18)").explain().files_read == 2
    assert [r["id"] for r in rows(t, where="id = 17")] == [17]


def test_the_partitioning_changes_without_a_file_being_touched() -> None:
    t = table("day(at)")
    t.append(events(100))
    first = {f.key for f in files(t)}
    version = t.version
    before = t.usage
    t.set_partitioning("region", "bucket(2, id)")
    assert (t.usage - before).total == 2, "archive, swap"
    assert t.version == version + 1 and {f.key for f in files(t)} == first
    t.append(events(100, first=100))
    assert len(files(t)) == 4 + 6
    assert {f.spec_id for f in files(t)} == {1, 2}
    assert rows(t) == events(200).to_pylist()
    where = "at < TIMESTAMP '1969-12-31 00:00:00Z' AND region = 'us'"
    # Of the old files one day, of the new ones one region in two buckets.
    assert t.scan(where=where).explain().files_read <= 3
    assert len(rows(t, where=where)) == sum(
        e["region"] == "us" and e["at"].day == 30 for e in events(200).to_pylist()
    )
    t.set_partitioning()
    t.append(events(10, first=200))
    assert files(t)[-1].spec_id == 0 and t.partitioning == ()
    t.set_partitioning("day(at)")
    assert t.snapshot.spec_id == 1, "a spec the table had is taken up again"
    assert len(t.snapshot.specs) == 3


def test_setting_what_is_set_commits_nothing() -> None:
    t = table("day(at)")
    assert not t.set_partitioning("days(at)").committed
    assert t.set_partitioning("day(at)", "region", request_id="r").committed
    again = t.set_partitioning("day(at)", "region", request_id="r")
    assert not again.committed and again.version == 2


def test_two_different_changes_at_once_conflict_and_equal_ones_do_not() -> None:
    from inlay.ops.commit.driver import Conflicted, Skipped, commit
    from inlay.parse.partitioning import partition_fields
    from inlay.plan.change import Change, SetPartitioning

    t = table()
    base = t._loaded

    def change(*texts: str) -> Change:
        fields = partition_fields(texts, base.snapshot.schema)
        return Change(operation="set_partitioning", updates=(SetPartitioning(0, fields),))

    inlay.open(t.uri).set_partitioning("region")
    lost = commit(t._ctx, change("day(at)"), base=base)
    assert isinstance(lost, Conflicted) and "partitioned in another way" in lost.conflict.reason
    assert isinstance(commit(t._ctx, change("region"), base=base), Skipped)


def test_rows_written_under_the_spec_before_are_taken_with_theirs() -> None:
    t = table("day(at)")
    inlay.open(t.uri).set_partitioning("region")
    t.append(events(30))  # on a base that knows only the days
    t.refresh()
    assert {f.spec_id for f in files(t)} == {1} and t.partitioning == ("region",)
    assert t.scan(where="at < TIMESTAMP '1969-12-31 00:00:00Z'").explain().files_read == 1


def test_a_partitioning_that_cannot_be_is_refused() -> None:
    t = table()
    for text in ("day(id)", "nothing", "bucket(0, id)", "week(at)"):
        with pytest.raises(InvalidRequest):
            t.set_partitioning(text)
        with pytest.raises(InvalidRequest):
            table(text)
    assert t.version == 1


def test_a_table_remembers_a_bounded_number_of_partitionings(monkeypatch: Any) -> None:
    monkeypatch.setattr("inlay.plan.pruning.partitions.MAX_SPECS", 3)
    t = table("day(at)")
    t.set_partitioning("region")
    with pytest.raises(ConcurrentChange, match="which is the maximum"):
        t.set_partitioning("bucket(3, id)")
    t.set_partitioning("day(at)")


def test_an_empty_table_has_no_groups() -> None:
    t = table("day(at)", "region")
    assert {group_key(f) for f in files(t)} == set()


def test_updates_and_upserts_put_rows_where_they_belong() -> None:
    t = table("region")
    t.append(events(60))
    t.update({"region": "'asia'"}, where="id < 10")
    t.upsert(events(20, first=50).set_column(2, "region", pa.array(["eu"] * 20)))
    assert each_file_is_one_partition(t, "region")
    assert len(rows(t)) == 70
    asia = t.scan(where="region = 'asia'")
    assert asia.explain().files_read == 1 and asia.count() == 10
    assert {r["region"] for r in rows(t, where="id >= 50")} == {"eu"}


@pytest.mark.parametrize("mode", ["surgery", "rewrite"])
def test_a_rewritten_file_stays_in_its_partition(mode: str) -> None:
    t = table("region")
    t.append(events(60))
    t.set_partitioning("day(at)")
    t.delete("id < 10", mode=mode)
    assert sorted(str(f.partition) for f in files(t)) == ["('eu',)", "('us',)", "(None,)"]
    assert each_file_is_one_partition(t, "region")
    assert t.scan(where="region = 'eu'").explain().files_read == 1


def test_a_delete_of_whole_partitions_reads_and_writes_no_data() -> None:
    t = table("day(at)", properties={"stats.columns": 0})
    t.append(events(192))
    before = t.usage
    result = t.delete("at < TIMESTAMP '1970-01-01 00:00:00Z'")
    assert (t.usage - before).total == 2, "archive, swap"
    assert (result.removed_files, result.added_markers, result.deleted_rows) == (2, 0, 96)
    assert sorted(f.partition for f in files(t)) == [(0,), (1,)]
    result = t.delete("at < TIMESTAMP '1970-01-01 12:00:00Z'")
    assert (result.removed_files, result.added_markers) == (0, 1)
    assert {r["at"].date().day for r in rows(t)} == {1, 2}


def test_a_delete_of_other_partitions_leaves_no_marker() -> None:
    t = table("bucket(4, id)", properties={"stats.columns": 0})
    t.append(events(1))
    missing = next(n for n in range(1, 50) if not t.scan(where=f"id = {n}").explain().files_read)
    result = t.delete(f"id = {missing}")
    assert result.added_markers == 0


def test_compaction_packs_within_partitions_and_cuts_files_of_older_specs() -> None:
    t = table()
    for n in range(4):
        t.append(events(50, first=50 * n))
    t.set_partitioning("day(at)")
    for n in range(4, 8):
        t.append(events(50, first=50 * n))
    assert len(files(t)) == 4 + 4 * 4
    t.maintain.compact()
    t.maintain.compact()
    assert {f.spec_id for f in files(t)} == {1}
    assert sorted(f.partition for f in files(t)) == [(-2,), (-1,), (0,), (1,)]
    assert each_file_is_one_partition(t, "at")
    assert rows(t) == events(400).to_pylist()


def test_partitions_are_listed_with_what_they_hold() -> None:
    t = table("day(at)", "bucket(2, id)")
    t.append(events(96))
    t.delete("id = 0", mode="vector")
    t.set_partitioning("month(at)")
    t.append(events(4, first=96, days=1))
    found = t.inspect.partitions().to_pylist()
    assert len(found) == 9
    assert sum(p["rows"] for p in found) == 100
    assert sum(p["deleted_rows"] for p in found) == 1
    assert sum(p["bytes"] for p in found) == sum(f.size for f in files(t))
    named = [{v["name"]: v["value"] for v in p["partition"]} for p in found]
    assert {"at_day": "1969-12-30", "id_bucket_2": "0"} in named
    assert (named[-1], found[-1]["files"], found[-1]["rows"]) == ({"at_month": "1969-12"}, 1, 4)


def test_older_versions_are_read_under_their_partitioning() -> None:
    t = table("region")
    t.append(events(30))
    t.set_partitioning("day(at)")
    t.append(events(30, first=30))
    old = inlay.open(t.uri, version=2)
    assert old.partitioning == ("region",)
    assert old.scan(where="region = 'eu'").explain().files_read == 1
    assert len(rows(old)) == 30


SPECS = [
    "day(at)", "month(at)", "hour(at)", "year(at)", "region", "price", "bucket(3, id)",
    "bucket(5, region)", "bucket(4, at)", "truncate(1, region)", "truncate(7, id)", "id", "at",
]  # fmt: skip
CONDITIONS = [
    "id = 3", "id IN (1, 4, 90)", "id > 5 AND region != 'us'", "region IS NULL OR id < 4",
    "at < TIMESTAMP '1970-01-01 00:00:00Z'", "NOT (region = 'eu')", "region LIKE 'e%'",
    "price = 0.5", "price > 1", "at IS NULL", "region IN ('us', 'xx')",
]  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_partitioned_table_gives_what_a_plain_one_gives(data: st.DataObject) -> None:
    plain, cut = table(), table()
    steps = st.sampled_from(["append", "delete", "partition", "upsert", "compact"])
    first = 0
    for step in data.draw(st.lists(steps, min_size=2, max_size=7)):
        if step == "partition":
            texts = data.draw(st.lists(st.sampled_from(SPECS), max_size=2, unique=True))
            cut.set_partitioning(*texts)
        elif step == "delete":
            where = data.draw(st.sampled_from(CONDITIONS))
            mode = data.draw(st.sampled_from(["tombstone", "vector", "rewrite"]))
            plain.delete(where)
            cut.delete(where, mode=mode)
        elif step == "compact":
            cut.maintain.compact()
        else:
            new = data.draw(awkward_rows(first))
            first += data.draw(st.integers(0, new.num_rows))
            for t in (plain, cut):
                t.upsert(new) if step == "upsert" else t.append(new)
    assert canonical(cut) == canonical(plain)
    for where in data.draw(st.lists(st.sampled_from(CONDITIONS), max_size=4)):
        assert canonical(cut, where) == canonical(plain, where), where


@st.composite
def awkward_rows(draw: Any, first: int) -> pa.Table:
    count = draw(st.integers(1, 6))
    hours = st.none() | st.integers(-72, 72).map(lambda n: START + timedelta(hours=n))
    regions = st.none() | st.sampled_from(["eu", "us", "", "e\U0001f600"])
    prices = st.none() | st.sampled_from([0.0, -0.0, 0.5, float("nan"), float("inf")])

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    ids = list(range(first, first + count))
    return pa.table(
        {"id": ids, "at": column(hours), "region": column(regions), "price": column(prices)},
        schema=SCHEMA,
    )


def canonical(t: inlay.Table, where: str | None = None) -> list[str]:
    return sorted(map(repr, t.scan(where=where).to_arrow().to_pylist()))

"""Random streams of merges beside everything that rewrites, deletes or replaces rows, against a model.

What a merge remembers of its own files must not outlive them: a key has one row, the newest, whichever
files compaction packs and leaves, whatever others delete or a second stream merges, and whether that
happens between two merges or while one is under way; also where the process of the stream is killed on
either side of its commit and does the batch again. Everything of a merge runs but its jobs: what they do to
records is done here, so that thousands of merges take no longer than some in Spark.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.engine import PartedMerge, RecentRows, Request, load_pointer
from inlay.ops.commit.driver import commit
from inlay.ops.metadata.load import load_entries
from inlay.plan.commit.conflicts import validate
from inlay.spark.cluster import cluster
from inlay.spark.connect import connect
from inlay.spark.maintenance import compact, materialize_deletes
from inlay.spark.merge import DELETED, REPLACES, MergeResult, RecordSummary, merge

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
# A record: op, id, p, seq, pad.
Record = tuple[str, int, str, int, str]
# Key → (partition, order, padding), as the table is to be.
Model = dict[int, tuple[str, int, str]]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("p", pa.string()),
        ("seq", pa.int64()),
        ("pad", pa.string()),
    ]
)
RECORD = "op string, id bigint, p string, seq bigint, pad string"
KEYS = 120
# Keys that later batches change: of the first file most rows stay, so that it is not compacted.
HOT = 12
MERGES = 12

# What rewrites files and changes no row, may also happen while a merge is under way.
REWRITES = (*("compact",) * 6, "rewrite", "surgery of all", "second stream")
IN_SPARK = ("spark compact", "materialize", "cluster")
CHANGES = ("tombstone", "vector", "surgery", "erase", "upsert", "restore", "second stream")
# What merges the records of a batch of a query.
Merged = Callable[[Sequence[Record], RecentRows, tuple[str, int]], MergeResult]


class Beside:
    """What others do to the table."""

    def __init__(self, spark: Any, table: inlay.Table, model: Model, chance: random.Random) -> None:
        self.spark, self.table, self.model, self.chance = spark, table, model, chance
        self.second: Callable[[], None] = lambda: None

    def do(self, action: str) -> None:
        table, chance = self.table.refresh(), self.chance
        # Between the sizes of the files: some are packed, and some are left.
        small = chance.choice(table.inspect.files()["bytes"].to_pylist() or [1]) + 1
        keys = [key for key in chance.sample(range(HOT), 3) if key in self.model]
        where = f"id IN ({', '.join(map(str, keys or [-1]))})"
        match action:
            case "compact":
                table.maintain.compact(small_bytes=small)
            case "spark compact":
                compact(self.spark, table.uri, small_bytes=small)
            case "materialize":
                materialize_deletes(self.spark, table.uri, where=where)
            case "cluster":
                cluster(self.spark, table.uri, where=where)
            case "rewrite" | "surgery of all":
                table.maintain.rewrite(
                    strategy="surgery" if action == "surgery of all" else "rewrite"
                )
            case "upsert":
                for key in keys:
                    part, seq, _ = self.model[key]
                    self.model[key] = (part, seq, "theirs")
                rows = [(key, *self.model[key]) for key in keys]
                columns = zip(*rows, strict=True) if rows else [[]] * 4
                table.upsert(pa.table([pa.array(c) for c in columns], schema=SCHEMA))
            case "second stream":
                self.second()
            case "restore":
                table.refs.restore(version=table.version)
            case _:
                table.delete(where, mode=action)
                for key in keys:
                    del self.model[key]


def drawn(chance: random.Random, batch: int) -> list[Record]:
    """Some late and some twice; all keys in the first batch, so that its file is larger than others."""
    rows: list[Record] = []
    hot = chance.sample(range(HOT), chance.choice([1, 2, 4]))
    for key in hot if batch else range(KEYS):
        op = chance.choice("UUUD") if batch else "I"
        seq = 10 * batch + chance.randrange(15)
        rows.append((op, key, "ab"[key % 2], 1000 * seq + key, chance.randbytes(40).hex()))
    return rows + chance.sample(rows, min(2, len(rows)))


def newest_of(rows: Sequence[Record]) -> list[Record]:
    return list({row[1]: row for row in sorted(rows, key=lambda row: row[3])}.values())


def apply(model: Model, gone: dict[int, int], rows: Sequence[Record]) -> None:
    """`gone`: the orders of remembered deletes."""
    for op, key, p, seq, pad in newest_of(rows):
        if key in model and model[key][1] > seq:
            continue
        if op == "D":
            model.pop(key, None)
            gone[key] = max(seq, gone.get(key, -1))
        elif gone.get(key, -1) < seq:
            model[key] = (p, seq, pad)


def play(
    table: inlay.Table,
    merged: Merged,
    beside: Beside,
    merges: int,
    monkeypatch: pytest.MonkeyPatch,
    actions: Sequence[str],
) -> int:
    """Merges with others between and beside them; the number of rows that were found by position."""
    chance, model = beside.chance, beside.model
    recent, others = RecentRows(), RecentRows()
    gone: dict[int, int] = {}
    located = seconds = batch = 0
    story: list[Any] = []

    def second() -> None:
        nonlocal seconds
        seconds += 1
        rows = drawn(chance, batch + 1)
        merged(rows, others, ("second", seconds))
        apply(model, gone, rows)

    beside.second = second

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr("inlay.ops.commit.driver.commit", commit)
        beside.do(chance.choice((*actions, *("second stream",) * 3)))
        return commit(*args, **kwargs)

    def killed(*args: Any, **kwargs: Any) -> Any:
        if chance.random() < 0.5:
            commit(*args, **kwargs)
        raise KeyboardInterrupt

    for batch in range(merges):
        rows = drawn(chance, batch)
        if batch and chance.random() < 0.25:
            monkeypatch.setattr("inlay.ops.commit.driver.commit", meanwhile)
            story.append("beside")
        elif batch and chance.random() < 0.1:
            monkeypatch.setattr("inlay.ops.commit.driver.commit", killed)
            story.append("killed")
            # A batch with nothing new commits nothing, and is not killed.
            with suppress(KeyboardInterrupt):
                merged(rows, recent, ("first", batch))
            monkeypatch.setattr("inlay.ops.commit.driver.commit", commit)
            recent = RecentRows()
        located += merged(rows, recent, ("first", batch)).located
        monkeypatch.setattr("inlay.ops.commit.driver.commit", commit)
        apply(model, gone, rows)
        story.append([row[:2] for row in rows])
        # Rows of others clear what a merge remembers: mostly there are none.
        for action in chance.choices(CHANGES if chance.random() < 0.15 else actions):
            if chance.random() < 0.5:
                beside.do(action)
                story.append(action)
        found = table.refresh().scan().to_arrow().to_pylist()
        expected = [
            {"id": key, "p": p, "seq": seq, "pad": pad} for key, (p, seq, pad) in model.items()
        ]
        assert Counter(map(str, found)) == Counter(map(str, expected)), story
    return located


def table_of(new_table: NewTable, seed: int) -> inlay.Table:
    options = [{}, {"partition_by": "p"}, {"sort_by": "seq"}][seed % 3]
    properties = {"compact.strategy": "sort"} if "sort_by" in options else {}
    return new_table(SCHEMA, primary_key="id", properties=properties, **options)


def test_a_merge_waits_only_for_rows_between_its_keys(new_table: NewTable) -> None:
    """Between the bounds of each key column: streams of different tenants do not wait for each other."""
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("who", pa.string(), nullable=False)]
    )
    table = new_table(schema, primary_key=["id", "who"])
    summary = RecordSummary(2, 2, 0, (("1", "9"), ("'a'", "'a'")))
    ctx = connect(table.uri)
    merging = PartedMerge(ctx, load_pointer(ctx), request=Request.of("m"))
    merging.begin(["id", "who"], [], [])
    merging.ready([], summary.where)
    change = merging.change(merging.snapshot)
    for who, is_in_the_way in (("b", False), ("a", True)):
        table.append(pa.table({"id": [5], "who": [who]}, schema=schema))
        state = load_entries(ctx, load_pointer(ctx).state)
        assert (validate(state, change) is not None) == is_in_the_way
    # A key of a type without bounds takes none of the others'.
    assert RecordSummary(2, 2, 0, (None, ("1", "2"))).where(["x", "y"]) == '"y" BETWEEN 1 AND 2'


# -- without Spark's jobs -------------------------------------------------------------------------


@pytest.fixture
def without_jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Record]], Any]:
    """A merge whose jobs run here: the records stand in place of a DataFrame."""

    def carry_out(rows: Any, uri: str, merging: PartedMerge) -> Any:
        latest, memory = newest_of(rows), merging.memory
        table = inlay.open(uri, version=merging.snapshot.version)
        there = {row["id"]: row["seq"] for row in table.scan().to_arrow().to_pylist()}
        known: dict[int, int] = {}
        if merging.remembers:
            for key, seq, _ in zip(*inlay.open(memory.uri).scan().to_arrow().columns, strict=True):
                known[key.as_py()] = max(seq.as_py(), known.get(key.as_py(), 0))
        timely = [row for row in latest if there.get(row[1], -1) <= row[3]]
        timely = [row for row in timely if row[0] == "D" or known.get(row[1], -1) < row[3]]
        columns = [pa.array([row[place] for row in timely], f.type) for place, f in PLACES]
        columns.append(pa.array([row[0] == "D" for row in timely], pa.bool_()))
        columns.append(pa.array([row[1] in there for row in timely], pa.bool_()))
        names = [*SCHEMA.names, DELETED, REPLACES]
        batch = pa.record_batch(columns, names=names)
        if any(row[0] == "D" for row in latest):
            memory.make()
            gone = batch.filter(batch[DELETED]).select(["id", "seq"])
            memory.add(pa.Table.from_batches([gone]), merging.table.date_us)
        write = pickle.loads(pickle.dumps(merging.writer().write))
        written = write(connect(uri), [batch])
        keys = {row[1] for row in rows}
        summary = RecordSummary(len(rows), len(latest), 0, ((str(min(keys)), str(max(keys))),))
        return summary, [pickle.loads(pickle.dumps(written))]

    def records_of(merging: Any, rows: Any, *args: Any) -> Any:
        return Given(rows)

    monkeypatch.setattr("inlay.spark.merge.carry_out", carry_out)
    monkeypatch.setattr("inlay.spark.merge.records_of", records_of)
    monkeypatch.setattr("inlay.spark.merge.check_frame", lambda *given: None)
    return list


class Given(list[Record]):
    """As much of `Records` as the driver's part of a merge looks at."""

    keys: tuple[str, ...] = ("id",)
    order, kept = ("seq",), ()


PLACES = list(enumerate(SCHEMA, start=1))


@pytest.mark.parametrize(
    "seed",
    # 451: garbage collection overtakes a merge beside which another has remembered deletes.
    [
        *range(20),
        451,
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 1000) if n != 451),
    ],
)
def test_merges_beside_everything_else_are_the_models(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch, without_jobs: Any, seed: int
) -> None:
    chance = random.Random(seed)
    table = table_of(new_table, seed)

    def merged(rows: Sequence[Record], recent: RecentRows, batch: tuple[str, int]) -> MergeResult:
        return merge(without_jobs(rows), table.uri, order="seq", recent=recent, batch=batch)

    beside = Beside(None, table, {}, chance)
    located = play(table, merged, beside, MERGES, monkeypatch, REWRITES)
    assert located or seed  # nothing is tried where no row is found by position


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 30))]
)
def test_merges_in_spark_beside_everything_else_are_the_models(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    table = table_of(new_table, 1 + seed % 2)  # with partitions or in an order: it is clustered
    actions = (*REWRITES, *IN_SPARK)

    def merged(rows: Sequence[Record], recent: RecentRows, batch: tuple[str, int]) -> MergeResult:
        frame = spark.createDataFrame(list(rows), RECORD)
        return merge(frame, table.uri, order="seq", recent=recent, batch=batch)

    beside = Beside(spark, table, {}, chance)
    play(table, merged, beside, MERGES // 3, monkeypatch, actions)


@pytest.mark.parametrize("beside", ["other keys", "the same keys", "other keys and compacted"])
def test_a_delete_of_other_keys_is_no_reason_to_merge_again(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch, without_jobs: Any, beside: str
) -> None:
    """Two streams that share the memory of deletes: the jobs of one run again only if the other has deleted
    a key within its own bounds; the rows are right, and both deletes are remembered."""
    from inlay.spark import merge as module

    table = new_table(SCHEMA, primary_key="id")
    jobs: list[list[int]] = []
    carry_out = module.carry_out

    def counted(records: Any, *given: Any) -> Any:
        jobs.append([row[1] for row in records])
        return carry_out(records, *given)

    monkeypatch.setattr(module, "carry_out", counted)

    def merged(*rows: Record) -> MergeResult:
        return merge(without_jobs(rows), table.uri, order="seq")

    merged(*(("I", key, "a", 1, "") for key in range(20)))
    merged(("D", 19, "a", 2, ""))  # there is something that is remembered
    low = 11 if beside.startswith("other") else 2

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr("inlay.ops.commit.driver.commit", commit)
        merged(("D", low, "a", 9, ""), ("D", 30, "a", 9, ""))
        if beside.endswith("compacted"):
            table.refresh().maintain.compact(small_bytes=1 << 30)
        return commit(*args, **kwargs)

    jobs.clear()
    monkeypatch.setattr("inlay.ops.commit.driver.commit", meanwhile)
    told = merged(("U", 1, "a", 3, "new"), ("D", 3, "a", 3, ""), ("U", 2, "a", 4, "late"))
    again = beside != "other keys"
    # Compaction of the table does the same to its memory: whose entries a file has is not known then.
    assert jobs == [[1, 3, 2], [low, 30], *([[1, 3, 2]] if again else [])]
    assert told.committed
    gone = {3, 19, low}
    found = {row["id"]: row["pad"] for row in table.refresh().scan().to_arrow().to_pylist()}
    assert found == {
        key: {1: "new", 2: "late"}.get(key, "") for key in range(20) if key not in gone
    }
    # Every delete is known to whoever comes later.
    merged(*(("U", key, "a", 2, "late") for key in (*gone, 30)))
    assert table.refresh().scan().to_arrow().num_rows == len(found)

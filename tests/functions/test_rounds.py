"""Rounds: one message for each table with work, one turn a round, and nothing starves."""

from __future__ import annotations

import io
import json
import random
from collections import deque
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest, StoreUnavailable, TableHandedOver
from inlay.functions import rounds
from inlay.functions.requests import MaintenanceRequest
from inlay.ops.context import SystemClock
from inlay.storage.base import Head
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, ORDERS, ROUNDS, Functions, LambdaContext, from_queue

FUNCTIONS = ["rewrite", "compact", "publish", "collect_garbage"]


def fill(functions: Functions, table: str, **properties: object) -> inlay.Table:
    made = inlay.create(
        f"memory://{BUCKET}/tables/{table}",
        pq.read_schema(pa.BufferReader(ORDERS)),
        properties=properties,
    )
    made.append(pq.read_table(pa.BufferReader(ORDERS)).slice(0, 10))
    return made


def sent(functions: Functions) -> list[dict[str, Any]]:
    return [json.loads(body) for queue in ROUNDS for body in functions.queues.bodies(queue)]


def tables(functions: Functions) -> set[str]:
    return {each["table"] for each in sent(functions)}


def test_a_round_is_of_the_tables_that_have_work(functions: Functions) -> None:
    fill(functions, "idle")
    fill(functions, "deleted").delete("customer_id = 7")
    fill(functions, "small").append(pq.read_table(pa.BufferReader(ORDERS)))
    fill(functions, "shown", **{"publish.format": "v3"}).publish()
    fill(functions, "behind", **{"publish.format": "v3"})
    functions.store.put("tables/leftover/data/x.parquet", b"")
    erased = fill(functions, "erased")
    erased.delete("customer_id = 7", mode="erase")
    functions.store.put("ingest/small/a.parquet", ORDERS)
    functions.store.put("ingest/nobody/a.parquet", ORDERS)
    all_of_them = {"idle", "deleted", "small", "shown", "behind", "erased"}
    for function, event, expected in (
        ("rewrite", {}, {"deleted", "erased"}),
        ("compact", {}, {"deleted", "small", "erased"}),
        ("publish", {}, {"behind"}),
        ("collect_garbage", {}, all_of_them),
        ("collect_garbage", {"erasures_only": True}, {"erased"}),
        ("collect_garbage", {"landing_only": True}, {"small"}),
    ):
        functions.queues.sent.clear()
        told = functions.invoke(function, event)
        assert tables(functions) == expected, (function, event)
        assert told["sent"] == len(expected)
        assert all(each.keys() - {"table"} == event.keys() for each in sent(functions))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_table_that_was_handed_over_is_left_out_and_the_log_says_so(
    functions: Functions, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = fill(functions, "orders", **{"publish.format": "v3"})
    table.append(pq.read_table(pa.BufferReader(ORDERS)))
    table.delete("customer_id = 7")
    functions.replay(f"{function}.schedule")
    [body] = sent(functions)
    table.maintain.hand_over()
    objects = {info.key for info in functions.store.list("")}
    functions.queues.sent.clear()
    functions.clock.pass_days(60)
    functions.invoke(function, {})
    assert tables(functions) == set()
    # The message of a round from before it.
    assert functions.invoke(function, from_queue(body)) == {"batchItemFailures": []}
    assert functions.queues.bodies("dead-letters") == []
    assert caplog.messages.count("handed over to another catalog") == 2
    # Asked for by name it is refused by name.
    with pytest.raises(TableHandedOver):
        functions.invoke(function, {"table": "orders"})
    assert {info.key for info in functions.store.list("")} == objects


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_round_sends_is_what_its_function_takes(functions: Functions, function: str) -> None:
    table = fill(functions, "orders", **{"publish.format": "v3"})
    table.append(pq.read_table(pa.BufferReader(ORDERS)))
    table.delete("customer_id = 7")
    before = table.refresh().version
    functions.replay(f"{function}.schedule")
    [body] = sent(functions)
    assert functions.invoke(function, from_queue(body)) == {"batchItemFailures": []}
    assert functions.queues.dead == []
    done = functions.orders()
    match function:
        case "rewrite":
            assert done.inspect.tombstones().num_rows == 0
        case "compact":
            assert done.inspect.files().num_rows == 1
        case "publish":
            assert done.inspect.publication().behind == 0  # type: ignore[union-attr]
        case _:
            assert done.version == before


def test_no_round_begins_while_tables_of_the_last_one_wait(functions: Functions) -> None:
    fill(functions, "orders").delete("customer_id = 7")
    functions.replay("rewrite.schedule")
    assert functions.replay("rewrite.schedule") == {"waiting": 1}
    assert len(sent(functions)) == 1


def test_a_table_that_cannot_be_looked_at_is_sent_all_the_same(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(functions, "well").delete("customer_id = 7")
    fill(functions, "torn")
    functions.store.put("tables/torn/_latest_manifest", b"no pointer")
    functions.replay("rewrite.schedule")
    assert tables(functions) == {"well", "torn"}
    assert '"FailedPage":[1.0]' in capsys.readouterr().out.replace(" ", "")
    for body in sent(functions):
        assert functions.invoke("rewrite", from_queue(body)) == {"batchItemFailures": []}
    assert functions.queues.errors == ["CorruptTable"]
    assert functions.store.get("tables/well/_latest_manifest")


class Late(LambdaContext):
    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 0


@pytest.mark.parametrize("function", ["rewrite", "compact", "publish", "collect_garbage"])
def test_a_name_that_no_message_gives_is_left_out_and_said(
    functions: Functions, log: io.StringIO, function: str
) -> None:
    """It was a dead letter of every round, and its alarm rang for as long as the folder was there."""
    for name in ("my table", "\u00fc", "a..b", "x" * 129, "sound"):
        table = inlay.create(
            f"memory://{BUCKET}/tables/{name}", pa.schema([("id", pa.int64())]), primary_key="id"
        )
        for n in range(2):
            table.append(pa.table({"id": [2 * n, 2 * n + 1]}))
        table.delete("id = 1")
        table.set_properties(**{"publish.format": "v3"})
    assert functions.invoke(function, {}) == {"tables": 1, "sent": 1}
    assert [json.loads(body) for body in functions.queues.bodies("rounds")] == [{"table": "sound"}]
    said = [json.loads(line) for line in log.getvalue().splitlines()]
    assert sum(each.get("fate") == "left out" for each in said) == 4


def test_a_folder_of_any_name_in_the_landing_zone_is_no_letter_of_every_sweep(
    functions: Functions,
) -> None:
    functions.create_orders()
    for folder in ("my orders", "orders"):
        functions.land(f"ingest/{folder}/orders.parquet")
    assert functions.invoke("collect_garbage", {"landing_only": True}) == {"tables": 1, "sent": 1}


def test_without_time_to_look_every_table_is_sent(functions: Functions) -> None:
    for name in ("one", "two"):
        fill(functions, name)
    functions.invoke("rewrite", {}, Late())
    assert tables(functions) == {"one", "two"}


@pytest.mark.parametrize("more", [{"grace_days": 0}, {"dry_run": True}, {"life_seconds": 0}])
def test_a_round_has_no_settings_of_its_own(functions: Functions, more: dict[str, Any]) -> None:
    fill(functions, "orders")
    with pytest.raises(InvalidRequest, match="no settings of its own"):
        functions.invoke("collect_garbage", more)
    assert functions.queues.sent == []


def test_a_queue_that_does_not_answer_fails_the_round(functions: Functions) -> None:
    """The invocation fails, no round is counted: both alarms see it."""
    fill(functions, "orders").delete("customer_id = 7")
    functions.queues.broken = True
    with pytest.raises(StoreUnavailable):
        functions.replay("rewrite.schedule")


def test_a_failing_table_fails_its_own_message_only(functions: Functions) -> None:
    for name in ("one", "broken", "two"):
        fill(functions, name).delete("customer_id = 7")
    done: list[str] = []

    def work(table: str, asked: MaintenanceRequest, seconds: float) -> Mapping[str, Any]:
        if table == "broken":
            raise StoreUnavailable("it does not answer")
        done.append(table)
        return {}

    answers = {}
    for name in ("one", "broken", "two"):
        try:
            answers[name] = rounds.maintain(
                from_queue({"table": name}), LambdaContext(), work, lambda _: rounds.Round(bool)
            )
        except Exception as error:  # all messages of the batch failed: so does the invocation
            answers[name] = type(error).__name__
    assert done == ["one", "two"]
    assert answers["broken"] == "BatchProcessingError"


@pytest.mark.parametrize("many", [60, pytest.param(1_000, marks=pytest.mark.wide)])
def test_tables_with_work_are_each_done_in_one_round(functions: Functions, many: int) -> None:
    """Real tables and the real function: one delete each, by a marker."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    names = [f"t{n:04}" for n in range(many)]
    for name in names:
        table = inlay.create(f"memory://{BUCKET}/tables/{name}", rows.schema)
        table.append(rows)
        table.delete("id = 1")
    told = functions.replay("rewrite.schedule")
    assert told == {"tables": many, "sent": many}
    bodies = sent(functions)
    functions.queues.sent.clear()
    assert sorted(each["table"] for each in bodies) == names
    for body in bodies:
        assert functions.invoke("rewrite", from_queue(body)) == {"batchItemFailures": []}
    assert functions.queues.sent == []
    for name in random.Random(1).sample(names, 50):
        done = inlay.open(f"memory://{BUCKET}/tables/{name}")
        assert (done.inspect.tombstones().num_rows, done.count()) == (0, 1)
    assert functions.replay("rewrite.schedule") == {"tables": many, "sent": 0}


@pytest.mark.parametrize(
    "many",
    [
        pytest.param(100, marks=pytest.mark.wide),
        pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
def test_tables_that_need_every_kind_of_work_each_get_all_of_it(
    functions: Functions, many: int
) -> None:
    """Each has an erasure open, a delete to apply, a landed file whose event was lost, and small files:
    each kind of round has one message for each table, and after three rounds of erasures each has its
    receipt: a table waits for no more rounds than it would alone."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([3], pa.int64())}), sink)
    names = [f"t{n:04}" for n in range(many)]
    for name in names:
        table = inlay.create(f"memory://{BUCKET}/tables/{name}", rows.schema)
        table.append(rows)
        table.append(rows)
        table.append(rows.slice(1).set_column(0, "id", pa.array([4], pa.int64())))
        table.delete("id = 4")
        table.delete("id = 1", mode="erase", request_id=f"case-{name}")
        functions.store.put(f"ingest/{name}/late.parquet", sink.getvalue())
    functions.set_variable("INLAY_INGEST_QUEUE", "ingest")
    functions.clock.pass_days(0.1)
    erasures = ("collect_garbage", {"erasures_only": True})
    for function, asked in (
        ("rewrite", {}),
        ("collect_garbage", {"landing_only": True}),
        erasures,
        ("compact", {}),
        erasures,
        erasures,
        ("collect_garbage", {}),
    ):
        functions.invoke(function, asked)
        bodies = sent(functions)
        functions.queues.sent.clear()
        assert sorted(each["table"] for each in bodies) == names, (function, asked)
        for body in bodies:
            assert functions.invoke(function, from_queue(body)) == {"batchItemFailures": []}
        landed = functions.queues.bodies("ingest")
        assert functions.queues.dead == []
        functions.queues.sent.clear()
        for body in landed:
            told = functions.invoke("ingest", from_queue(json.loads(body)))
            assert told == {"batchItemFailures": []}
        functions.clock.pass_days(0.1)
    for name in names:
        assert isinstance(functions.store.head(f"tables/{name}/erasure/case-{name}.json"), Head)
        done = inlay.open(f"memory://{BUCKET}/tables/{name}")
        assert sorted(done.scan().to_arrow()["id"].to_pylist()) == [2, 2, 3]
        assert done.inspect.tombstones().num_rows == 0


class Counting:
    """Time that passes only where a slow table's data is read, and what Lambda says is left of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.began = 0.0

    def get_remaining_time_in_millis(self) -> int:
        return int(1_000 * (900 - (self.seconds - self.began)))

    def __getattr__(self, name: str) -> Any:
        return getattr(LambdaContext, name)


@pytest.mark.parametrize("many", [60, pytest.param(999, marks=pytest.mark.wide)])
def test_a_slow_table_ends_at_its_deadline_and_goes_on_with_the_next_round(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """A hundred files that take ten seconds each to read, among tables that take none: the invocation of
    the slow one commits what it has and ends before Lambda would end it, round after round, until all is
    done. The others are done in the first."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    others = [f"t{n:03}" for n in range(many)]
    for name in (*others, *["slow"] * 100):
        uri = f"memory://{BUCKET}/tables/{name}"
        inlay.create(uri, rows.schema, exist_ok=True).append(rows)
    for name in (*others, "slow"):
        inlay.open(f"memory://{BUCKET}/tables/{name}").delete("id = 1")
    time = Counting()

    def slowly(name: str) -> None:
        original = getattr(MemoryStore, name)

        def get(store: MemoryStore, key: str, *more: Any, **options: Any) -> Any:
            if key.startswith("tables/slow/data/"):
                time.seconds += 10
            return original(store, key, *more, **options)

        monkeypatch.setattr(MemoryStore, name, get)

    slowly("get")
    slowly("get_suffix")
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: time.seconds)

    def round_of(expected: set[str]) -> float:
        """The seconds of the slow table's invocation; the others have theirs."""
        functions.replay("rewrite.schedule")
        bodies = sent(functions)
        functions.queues.sent.clear()
        assert {each["table"] for each in bodies} == expected
        took = 0.0
        for body in bodies:
            time.began = time.seconds
            assert functions.invoke("rewrite", from_queue(body), time) == {"batchItemFailures": []}
            took = max(took, time.seconds - time.began)
        return took

    everything = round_of({*others, "slow"})
    assert 0.5 * 900 < everything < 900
    slow = inlay.open(f"memory://{BUCKET}/tables/slow")
    assert slow.inspect.tombstones().num_rows == 1
    rounds_of_slow = 1
    while slow.refresh().inspect.tombstones().num_rows:
        assert round_of({"slow"}) < 900
        rounds_of_slow += 1
        assert rounds_of_slow < 5
    assert rounds_of_slow > 1
    assert slow.count() == 100
    for name in random.Random(2).sample(others, 50):
        done = inlay.open(f"memory://{BUCKET}/tables/{name}")
        assert (done.inspect.tombstones().num_rows, done.count()) == (0, 1)


class Simulated:
    """Schedules, a queue and `workers` functions, in minutes: what SQS and Lambda do to `_begin`.

    `minutes` a table takes; `busy` tables have new work as soon as theirs is done; `crashing` ones end
    their function, and come again after the visibility timeout, three times at most."""

    def __init__(self, tables: int, *, workers: int, minutes: float, every: int, seed: int) -> None:
        self.names = [f"t{n}" for n in range(tables)]
        self.workers, self.minutes, self.every = workers, minutes, every
        self.random = random.Random(seed)
        self.waiting: deque[tuple[str, int]] = deque()
        self.hidden: list[tuple[float, str, int]] = []
        self.begun: dict[str, list[float]] = {name: [] for name in self.names}
        self.rounds: list[float] = []
        self.crashing: set[str] = set()
        self.letters = 0
        self.longest = 0

    # What `rounds` asks of SQS.
    def waiting_at(self, queue: str) -> int:
        return len(self.waiting)

    def send_all(self, queue: str, bodies: list[Mapping[str, Any]]) -> None:
        self.waiting.extend((str(each["table"]), 1) for each in bodies)
        self.longest = max(self.longest, len(self.waiting))

    def run(self, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rounds, "waiting_at", self.waiting_at)
        monkeypatch.setattr(rounds, "send_all", self.send_all)
        free = [0.0] * self.workers
        for now in range(int(days * 1_440)):
            if now % self.every == 0:
                found = rounds.maintain(
                    {}, LambdaContext(), lambda *_: {}, lambda _: rounds.Round(self.look, self.list)
                )
                if "sent" in found:
                    self.rounds.append(now)
            back = [each for each in self.hidden if each[0] <= now]
            self.hidden = [each for each in self.hidden if each[0] > now]
            for _, name, tries in back:
                if tries >= 3:
                    self.letters += 1
                else:
                    self.waiting.append((name, tries + 1))
            for at, until in enumerate(free):
                while until < now + 1 and self.waiting:
                    # SQS keeps no strict order.
                    self.waiting.rotate(-self.random.randrange(min(10, len(self.waiting))))
                    name, tries = self.waiting.popleft()
                    self.begun[name].append(now)
                    if name in self.crashing:
                        self.hidden.append((now + 90, name, tries))
                        until = max(until, now) + 15
                    else:
                        until = max(until, now) + self.minutes * self.random.uniform(0.5, 1.5)
                free[at] = until

    def look(self, name: str) -> bool:
        return True

    def list(self) -> list[str]:
        return self.names

    def longest_wait(self, end: float) -> float:
        """The longest time between two turns of any table, or to its first or from its last."""
        return max(
            max(b - a for a, b in zip([0.0, *at], [*at, end], strict=True))
            for at in self.begun.values()
        )


@pytest.mark.parametrize("seed", range(5))
def test_nothing_starves_though_work_never_ends(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A thousand tables that always have work, five of which end their function each time. A round takes
    some four hours of four workers, far longer than the fifteen minutes between schedules: every table
    has a turn in each, so no wait is longer than two rounds, and no more waits than there are tables."""
    simulated = Simulated(1_000, workers=4, minutes=1, every=15, seed=seed)
    simulated.crashing = set(simulated.names[:5])
    simulated.run(3, monkeypatch)
    assert 8 < len(simulated.rounds) < 20
    longest_round = max(b - a for a, b in zip(simulated.rounds, simulated.rounds[1:], strict=False))
    assert simulated.longest_wait(3 * 1_440) <= 2 * longest_round + 15
    turns = [len(at) for name, at in simulated.begun.items() if name not in simulated.crashing]
    assert max(turns) - min(turns) <= 1
    assert simulated.longest <= 1_000 + 3 * len(simulated.crashing)
    assert simulated.letters > 0


def test_where_capacity_suffices_every_schedule_begins_a_round(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = Simulated(250, workers=4, minutes=0.12, every=15, seed=1)
    simulated.run(1, monkeypatch)
    assert len(simulated.rounds) == 96
    assert {len(at) for at in simulated.begun.values()} == {96}


def test_the_rounds_of_one_function_do_not_wait_for_each_other(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep's tables still wait at the minute at which garbage is collected, each day."""
    functions.create_orders()
    functions.land()
    begun = [
        functions.invoke("collect_garbage", asked)
        for asked in ({"landing_only": True}, {"erasures_only": True}, {}, {"landing_only": True})
    ]
    assert begun == [
        {"tables": 1, "sent": 1},
        {"tables": 1, "sent": 0},
        {"tables": 1, "sent": 1},
        {"waiting": 1},
    ]
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert sum(each.get("RoundsSkipped", [0])[0] for each in metrics) == 1

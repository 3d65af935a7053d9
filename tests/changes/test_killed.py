"""One change stream through all four ways in, each batch by another, in processes that die in the middle.

Records are shuffled, repeated and cut into batches. Each batch goes its way in a process of its own, which
is killed by SIGKILL before or after a random one of its requests, or goes on to its end; a batch that was
not acknowledged comes again later, after others, as a queue would deliver it. In the end the table shows
the newest record of each key, and no batch that is sent once more makes a version.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.changes.streams import Record, expected, table_of
from tests.changes.test_side_by_side import random_stream, without_ties

import inlay
from inlay.storage.s3 import S3Store

# Python 3.12 warns of forking beside threads; those of this process are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

KEYED = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])
SETTINGS = {"ingest.as": "changes", "changes.order": "lsn", "changes.operations": "common"}
TABLE = "accounts"
# A batch takes about ten requests. None: the process lives.
LAST_REQUEST = 12
LIVES = 0.3
WAIT_SECONDS = 120.0


def die_at(number: int | None, *, after: bool, send: Any = S3Store._ask_once) -> None:
    """Kills this process by its request of that number."""
    count = itertools.count(1)

    def ask(store: S3Store, *arguments: Any, **named: Any) -> Any:
        dies = next(count) == number
        if dies and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = send(store, *arguments, **named)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    S3Store._ask_once = ask  # type: ignore[method-assign]


def by_library(uri: str, name: str, path: Path) -> None:
    inlay.open(uri).apply_changes(pq.read_table(path), order="lsn", op="op", request_id=name)


def by_command(uri: str, name: str, path: Path) -> None:
    from inlay.cli.app import app

    given = ["apply-changes", uri, str(path), "--order", "lsn", "--op", "op", "--request-id", name]
    app(given, standalone_mode=False)


def by_function(uri: str, name: str, path: Path) -> None:
    """The event of the landed file, as its queue delivers it; it landed before."""
    from tests.functions.conftest import VARIABLES, LambdaContext, Queues, load_handler

    from inlay.functions import messages, tables

    bucket = uri.split("/")[2]
    os.environ.update({**VARIABLES, "INLAY_BUCKET": f"s3://{bucket}"})
    os.environ["POWERTOOLS_SERVICE_NAME"] = "ingest"
    tables.store.cache_clear()
    tables.executor.cache_clear()
    # This process has another test's, perhaps, with its bucket.
    sys.modules.pop("inlay_function_ingest", None)
    queues = Queues()
    messages.sqs = lambda: queues  # type: ignore[assignment, return-value]
    said = load_handler("ingest").handler(
        json.loads(path.with_suffix(".json").read_text()), LambdaContext()
    )
    assert not said["batchItemFailures"] and queues.dead == []


WAYS = {"library": by_library, "command": by_command, "function": by_function}


def live(way: str, uri: str, name: str, path: Path, kill: int | None, after: bool) -> None:
    sys.stdout = sys.stderr = io.StringIO()
    die_at(kill, after=after)
    WAYS[way](uri, name, path)


def forked(way: str, *given: Any) -> bool:
    """Whether it was acknowledged."""
    process = multiprocessing.get_context("fork").Process(target=live, args=(way, *given))
    process.start()
    process.join(WAIT_SECONDS)
    assert process.exitcode in (0, -signal.SIGKILL), (way, process.exitcode)
    return process.exitcode == 0


# Merges what it is told on a line; its driver dies as `die_at` says.
SPARK = """
import json, sys
from tests.changes.test_killed import die_at
from inlay.spark import local_session
from inlay.spark.merge import merge

spark = local_session(app="killed")
print("ready", flush=True)
for line in sys.stdin:
    uri, name, path, kill, after = json.loads(line)
    die_at(kill, after=after)
    merge(spark.read.parquet(path), uri, order="lsn", op="op", request_id=name)
    print("done", flush=True)
"""


class Spark:
    """A session that is started again when it was killed."""

    process: subprocess.Popen[str] | None = None

    def __call__(self, uri: str, name: str, path: Path, kill: int | None, after: bool) -> bool:
        if self.process is None:
            where = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
            self.process = subprocess.Popen(
                [sys.executable, "-c", SPARK],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": where},
                start_new_session=True,
            )
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == "ready\n"
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([uri, name, str(path), kill, after]), file=self.process.stdin, flush=True)
        if self.process.stdout.readline() == "done\n":
            return True
        assert self.process.wait() == -signal.SIGKILL
        self.end()
        return False

    def end(self) -> None:
        if self.process is not None:  # Java, too
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def spark_beside(ways: Sequence[str]) -> Iterator[Spark]:
    spark = Spark()
    try:
        yield spark
    finally:
        spark.end()


def land(store: S3Store, path: Path) -> None:
    from tests.functions.conftest import BUCKET, Functions, landing_message

    key = f"ingest/{TABLE}/{path.name}"
    place = Functions(None, store, None, None)  # type: ignore[arg-type]
    event = json.dumps(landing_message(place, path.read_bytes(), key))
    path.with_suffix(".json").write_text(event.replace(BUCKET, store.bucket))


def cut(rng: random.Random, parts: int) -> list[list[Record]]:
    """Records shuffled, half of them twice, in batches."""
    records = without_ties(rng, [r for _ in range(3) for r in random_stream(rng, 6)])
    records += rng.sample(records, len(records) // 2)
    rng.shuffle(records)
    cuts = sorted(rng.sample(range(1, len(records)), parts - 1))
    return [records[a:b] for a, b in itertools.pairwise([0, *cuts, len(records)])]


@pytest.fixture(autouse=True)
def imported() -> None:
    """Before processes are forked, each of which would do it again."""
    from tests.functions.conftest import load_handler

    import inlay.cli.app

    assert inlay.cli.app and load_handler("ingest")


def play(store: S3Store, folder: Path, seed: int, ways: Sequence[str], parts: int = 6) -> int:
    """How many processes were killed."""
    rng = random.Random(seed)
    uri = f"s3://{store.bucket}/tables/{TABLE}"
    inlay.create(uri, KEYED, primary_key="id", properties=SETTINGS)
    batches = cut(rng, parts)
    waiting = []
    for number, batch in enumerate(batches):
        path = folder / f"{number}.parquet"
        pq.write_table(table_of(batch), path)
        way = ways[number % len(ways)] if number < len(ways) else rng.choice(ways)
        if way == "function":
            land(store, path)
        waiting.append((way, f"batch-{number}", path))
    every, killed = list(waiting), 0
    with spark_beside(ways) as spark:

        def send(way: str, name: str, path: Path, kill: int | None = None) -> bool:
            given = (uri, name, path, kill, rng.random() < 0.5)
            return spark(*given) if way == "spark" else forked(way, *given)

        while waiting:
            batch = waiting.pop(rng.randrange(len(waiting)))
            kill = None if rng.random() < LIVES else rng.randint(1, LAST_REQUEST)
            if not send(*batch, kill):
                killed += 1
                waiting.append(batch)
        t = inlay.open(uri)
        rows = t.scan().to_arrow().to_pylist()
        assert {row["id"]: (row["value"], row["lsn"]) for row in rows} == expected(batches)
        assert len({row["id"] for row in rows}) == len(rows)
        for batch in every:
            assert send(*batch)
    assert inlay.open(uri).version == t.version
    assert t.maintain.verify(depth="pages").ok
    return killed


@pytest.mark.parametrize(
    ("seed", "parts"),
    [(1, len(WAYS)), *(pytest.param(n, 6, marks=pytest.mark.wide) for n in range(2, 6))],
)
def test_a_stream_whose_processes_are_killed_ends_right(
    s3_store: S3Store, tmp_path: Path, seed: int, parts: int
) -> None:
    assert play(s3_store, tmp_path, seed, sorted(WAYS), parts) > 0


@pytest.mark.spark
@pytest.mark.wide
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
def test_and_through_spark(s3_store: S3Store, tmp_path: Path, seed: int) -> None:
    ways = ["spark", *sorted(WAYS)]
    assert play(s3_store, tmp_path, seed, ways, len(ways)) > 0

"""Two versions of the functions beside each other, with messages in flight: an upgrade, and the way back.

The other version is this code with one field and one message version more; or, with INLAY_OTHER_CODE=DIR,
another commit's (`git archive COMMIT layers functions | tar x -C DIR`), which is then the older one.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.local.runtime import FunctionPool
from inlay.local.runtime_api import Invocation, Returned
from inlay.local.stack import LocalOptions, LocalStack, environment

# Ten processes; the time-out is for what hangs.
pytestmark = [pytest.mark.functions, pytest.mark.timeout(1_500)]
ROOT = Path(__file__).parents[2]
OTHER = os.environ.get("INLAY_OTHER_CODE")
ORDERS = pq.read_table(ROOT / "events" / "orders.parquet")
# An erasure takes about three rounds of garbage collection.
_ROUNDS = 8
# How many of ten invocations the other version answers: none, a gradual shift, all, and back.
SHIFT = (0, 4, 10, 4, 0)


def other_code(into: Path) -> Path:
    if OTHER:
        return Path(OTHER)
    shutil.copytree(
        ROOT / "layers" / "inlay" / "inlay",
        into / "layers" / "inlay" / "inlay",
        ignore=shutil.ignore_patterns("__pycache__", "local", "cli", "spark"),
    )
    shutil.copytree(ROOT / "functions", into / "functions")
    package = into / "layers" / "inlay" / "inlay" / "functions"
    for name, old, new in (
        ("validation.py", "MESSAGE_VERSION = 1", "MESSAGE_VERSION = 2"),
        (
            "requests.py",
            "    mode: Mode | None = None\n",
            "    mode: Mode | None = None\n    note: str | None = None\n",
        ),
    ):
        text = (package / name).read_text()
        assert old in text
        (package / name).write_text(text.replace(old, new, 1))
    return into


class Both:
    """One function in both versions, `share` of ten invocations to the other, as a weighted alias does."""

    def __init__(self, this: FunctionPool, other: FunctionPool) -> None:
        self.this, self.other, self.share, self.asked = this, other, 0, 0
        self.answered = {"this": 0, "other": 0}
        self._lock = threading.Lock()

    def invoke(self, event: Any) -> Invocation:
        with self._lock:
            self.asked += 1
            # Spread evenly: three and ten have no common divisor.
            name = "other" if self.asked * 3 % 10 < self.share else "this"
            self.answered[name] += 1
        return (self.other if name == "other" else self.this).invoke(event)

    def close(self) -> None:
        self.this.close()
        self.other.close()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[LocalStack, dict[str, Both]]]:
    options = LocalOptions(
        template=ROOT / "template.yaml",
        parameters={"AutoCreate": "true", "GraceDays": "1"},
        schedules=False,
        retry_seconds=0,
        processes=1,
        home=tmp_path / "logs",
    )
    code = other_code(tmp_path / "other")
    with LocalStack(options) as stack, environment(stack.environment):
        made = {}
        for name, pool in stack.functions.items():
            folder = code / "functions" / name
            path = f"{folder}{os.pathsep}{code / 'layers' / 'inlay'}"
            other = FunctionPool(
                replace(pool.function, code=folder),
                environment={**pool._environment, "PYTHONPATH": path},
                log=tmp_path / "logs" / f"{name}.other.log",
                size=1,
            )
            made[name] = Both(pool, other)
        stack.functions = made  # type: ignore[assignment]  # they are invoked, no more
        try:
            yield stack, made
        finally:
            for each in made.values():
                each.close()


def land(stack: LocalStack, name: str, ids: range) -> None:
    rows = ORDERS.slice(0, len(ids))
    at = rows.schema.get_field_index("order_id")
    rows = rows.set_column(at, "order_id", pa.array(ids, rows.schema.field(at).type))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    body = sink.getvalue().to_pybytes()
    stack.s3.put_object(Bucket=stack.bucket, Key=f"ingest/orders/{name}.parquet", Body=body)


def test_no_message_is_lost_or_done_twice_forward_and_back(
    both: tuple[LocalStack, dict[str, Both]],
) -> None:
    stack, functions = both
    expected: set[int] = set()
    land(stack, "first", range(1_000, 1_020))
    stack.drain()
    expected |= set(range(1_000, 1_020))
    for step, share in enumerate(SHIFT):
        for each in functions.values():
            each.share = share
        begin = 10_000 * (step + 1)
        ids = range(begin, begin + 20)
        land(stack, f"step-{step}", ids)
        expected |= set(ids)
        stack.drain()
        # Twice each, as SQS may deliver it: an id makes it one request, whichever version hears it.
        delete = {"id": f"d-{step}", "table": "orders", "keys": {"order_id": [begin, begin + 1]}}
        erase = {
            "id": f"e-{step}",
            "table": "orders",
            "where": f"order_id = {begin + 2}",
            "mode": "erase",
        }
        newer = {"v": 2, "note": "by the newer one", "table": "orders", "id": f"n-{step}"}
        newer["where"] = f"order_id = {begin + 3}"
        for _ in range(2):
            stack.send("DeleteQueue", delete)
            stack.send("EraseQueue", erase)
            if share and not OTHER:
                stack.send("DeleteQueue", newer)
        expected -= set(ids[:3]) | ({begin + 3} if share and not OTHER else set())
        for name in ("rewrite", "compact", "publish", "collect_garbage"):
            stack.invoke(name, {"table": "orders"})  # while messages are in flight
        stack.drain()
        found = inlay.open(stack.table_uri("orders")).scan(columns=["order_id"]).to_arrow()
        assert sorted(found["order_id"].to_pylist()) == sorted(expected), f"step {step}"
    letters = {
        name: stack.dead_letters(name) for name in ("IngestQueue", "DeleteQueue", "EraseQueue")
    }
    assert [each.why for found in letters.values() for each in found] == []
    for name in ("ingest", "delete", "rewrite", "compact", "collect_garbage"):
        assert all(functions[name].answered.values()), name
    table = inlay.open(stack.table_uri("orders"))
    assert table.maintain.verify().ok
    hurry = {"grace_days": 0, "life_seconds": 0, "clock_margin_seconds": 0}
    for each in functions.values():
        each.share = 5
    for _ in range(_ROUNDS):
        for name, options in (("rewrite", {}), ("collect_garbage", hurry)):
            answer = stack.invoke(name, {"table": "orders", **options})
            assert isinstance(answer, Returned), answer
        if not table.refresh().snapshot.erasures:
            break
    assert table.refresh().snapshot.erasures == (), "each erasure ended, whoever opened it"

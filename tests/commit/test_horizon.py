"""What the ledger forgets, it refuses: beyond the horizon nothing is applied on trust."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch

import pyarrow as pa
import pytest
from tests.maintenance.bench import DAY, Bench, new_bench

from inlay.errors import RequestTooOld
from inlay.functions.requests import DeleteRequest
from inlay.ops.commit.driver import Skipped
from inlay.ops.write.append import append
from inlay.plan.change import Request
from inlay.plan.commit import apply as apply_module

ROWS = pa.table({"id": pa.array([1], pa.int64()), "name": ["once"]})


def send(bench: Bench, name: str, time_us: int) -> object:
    return append(bench.ctx, ROWS, request=Request.of(name, time_us=time_us))


def let_pass(bench: Bench, days: int) -> None:
    """Days on which requests are committed, next to nothing staying inline: whole segments of the
    ledger are forgotten, and the horizon follows."""
    with (
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_000),
        patch.object(apply_module, "INLINE_MIN_BYTES", 0),
    ):
        for day in range(days):
            bench.time.sleep(DAY)
            rows = pa.table({"id": pa.array([1_000 + day], pa.int64()), "name": ["other"]})
            append(bench.ctx, rows, request=Request.of(f"day {day}"))


def test_within_the_horizon_a_repetition_is_known() -> None:
    bench = new_bench()
    sent = bench.time.now_us()
    send(bench, "a", sent)
    let_pass(bench, 10)
    assert isinstance(send(bench, "a", sent), Skipped)
    assert bench.ids().count(1) == 1


@pytest.mark.parametrize("says_when", [False, True])
def test_a_message_that_is_sent_again_under_its_id_is_known_however_late(says_when: bool) -> None:
    """A queue's sent time is that of the repetition, long after what it repeats was applied: the ledger was
    searched from then on only, and a delete was applied twice."""
    bench = new_bench()
    at = datetime.fromtimestamp(bench.time.now_us() / 1e6, UTC).isoformat()
    asked = DeleteRequest.model_validate(
        {"id": "a", "table": "t", "where": "id = 1"} | ({"requested_at": at} if says_when else {})
    )
    append(bench.ctx, ROWS, request=asked.request("a", asked.time_us(bench.time.now_us())))
    let_pass(bench, 3)
    bench.time.sleep(DAY)
    again = asked.request("a", asked.time_us(bench.time.now_us()))
    assert isinstance(append(bench.ctx, ROWS, request=again), Skipped)
    assert ("requested_at" in asked.forwarded("a", bench.time.now_us())) == says_when


def test_a_request_from_beyond_the_horizon_is_refused_whether_or_not_it_was_applied() -> None:
    bench = new_bench(properties=[("ledger.days", 3)])
    sent = bench.time.now_us()
    send(bench, "a", sent)
    let_pass(bench, 40)
    forgotten = bench.load().snapshot.ledger.horizon_us
    assert forgotten > sent
    for name in ("a", "never sent before"):
        try:
            outcome = send(bench, name, sent)
        except RequestTooOld:
            continue
        assert isinstance(outcome, Skipped), "applied although nobody can tell whether it was"
    with pytest.raises(RequestTooOld):
        send(bench, "never sent before", sent)
    assert bench.ids().count(1) == 1


def test_a_new_request_is_applied_however_long_the_table_has_lived() -> None:
    bench = new_bench(properties=[("ledger.days", 3)])
    let_pass(bench, 40)
    send(bench, "new", bench.time.now_us())
    assert bench.ids().count(1) == 1

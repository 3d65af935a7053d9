"""Rounds: scheduled work on every table of the bucket, as far as the invocation's time goes.

Promise: no table's work is begun that could not end in time; a table that fails keeps none of the
others from their turn, and fails the invocation afterwards, so that the alarm sees it. Tables come in
random order: whoever did not get a turn this time has the same chance next time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from inlay.functions.observe import Told, logger, tell_failure
from inlay.functions.tables import table_names
from inlay.functions.verdict import fate_of

# Kept back for what an op does after its deadline: finish the unit under way and commit it.
_KEPT_BACK = 0.25

# Works on one table within so many seconds; returns what to tell of it.
Work = Callable[[str, float], Mapping[str, Any]]


# With less than this, no further piece of work of a batch is begun: enough for one constant-time delete
# whose commit has to be tried against many other writers, and for handing back the rest.
_LEAST_SECONDS = 20.0


class TimeLeft:
    """How much of an invocation's time is left for work, and whether more of it may be begun."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._kept_back = max(_LEAST_SECONDS, self._remaining() * _KEPT_BACK)

    def _remaining(self) -> float:
        return float(self._context.get_remaining_time_in_millis()) / 1_000

    def seconds(self) -> float:
        """How long work may go on before it has to wind up."""
        return max(0.0, self._remaining() - self._kept_back)

    def for_more(self) -> bool:
        return self.seconds() > 0


class RoundFailed(Told):
    """Some tables' work failed; the log says why."""


def seconds_left(context: Any) -> float:
    """How long work may go on before it has to wind up."""
    return float(context.get_remaining_time_in_millis()) / 1_000 * (1 - _KEPT_BACK)


def run_round(table: str | None, context: Any, work: Work) -> Mapping[str, Any]:
    """Do `work` on `table`, or on every table; the answer says what was done to which."""
    tables = [table] if table is not None else list(table_names())
    random.shuffle(tables)
    done: dict[str, Mapping[str, Any]] = {}
    failed: list[str] = []
    started, allowed = time.monotonic(), seconds_left(context)
    for position, name in enumerate(tables):
        left = allowed - (time.monotonic() - started)
        if left <= 0:
            logger.warning("no time left", tables=tables[position:])
            break
        try:
            done[name] = work(name, left)
        except Exception as error:
            tell_failure(error, fate=fate_of(error).value, message_id=name)
            failed.append(name)
    if failed:
        raise RoundFailed(f"{len(failed)} of {len(tables)} tables failed: {', '.join(failed[:20])}")
    return done

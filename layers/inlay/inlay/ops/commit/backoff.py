"""Backoff: how long a writer waits before its next try.

Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"), but for its unfairness: a newcomer
waits least and overtakes whoever has lost often. So the window shrinks again with the time a commit has
been waiting, to a tenth after BACKOFF_PATIENCE; and for CONTENDED_SECONDS after it has met another, in a
race or by what was committed, a writer reads the pointer before each commit (`ops.commit.base`), or the
winner, who knows the pointer, would win again. One who wins from the start meets nobody: every MAX_UNREAD
commits in a row it reads the pointer all the same, and whoever reads meanwhile has a chance. By
benchmarks/backoff.py, 4 to 40 writers at 20 ms a request make 0.89 to 1.08 of the commits of a bare loop
that never waits (2.3 where 40 saturate the server), in about half its tries, and the longest wait is at
most 1.16 of the loop's. benchmarks/contention.py measures it with processes.
"""

from __future__ import annotations

import logging

from inlay.ops.context import Context

_LOG = logging.getLogger("inlay.commit")
# Seconds.
BACKOFF_BASE = 0.02
BACKOFF_CAP = 0.6
BACKOFF_PATIENCE = 4.0
CONTENDED_SECONDS = 2.0
# Commits in a row, each within CONTENDED_SECONDS of the one before it.
MAX_UNREAD = 16


def back_off(ctx: Context, attempt: int, since: float | None = None) -> None:
    """Waits before the next try; `since`: when the first began."""
    waited = 0.0 if since is None else ctx.clock.monotonic() - since
    patience = max(0.1, 1 - waited / BACKOFF_PATIENCE)
    window = min(BACKOFF_CAP, BACKOFF_BASE * 2 ** min(attempt - 1, 10)) * patience
    seconds = ctx.random.uniform(0, window)
    _LOG.info("another writer of %s came first: try %d in %.2f s", ctx.uri, attempt + 1, seconds)
    ctx.clock.sleep(seconds)

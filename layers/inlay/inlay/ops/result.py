"""Results: what a write reports to its caller.

Promise: a result states what was committed, and the measured cost: requests that were sent, not planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.ops.commit.driver import Committed, Skipped
from inlay.storage.metered import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """One write.

    `committed` False means that nothing had to be done: `applied_before` under the same request id, or as
    the same events (then `version` is that commit), or nothing matched. `deleted_rows` None: a
    constant-time delete does not know. `requests` and `bytes_*` count what this call sent to the store and
    received. `note` states in words what was done otherwise than by default, and why.
    """

    operation: str
    committed: bool
    version: int
    commit_id: str | None = None
    added_rows: int = 0
    deleted_rows: int | None = 0
    added_files: int = 0
    removed_files: int = 0
    added_markers: int = 0
    added_bytes: int = 0
    duplicates: int = 0
    applied_before: bool = False
    attempts: int = 1
    note: str = ""
    usage: Usage = field(default_factory=lambda: Usage({}, 0, 0))

    @property
    def requests(self) -> int:
        return self.usage.total

    @property
    def bytes_up(self) -> int:
        return self.usage.bytes_up

    @property
    def bytes_down(self) -> int:
        return self.usage.bytes_down


def write_result(operation: str, outcome: Committed | Skipped, usage: Usage) -> WriteResult:
    snapshot = outcome.loaded.snapshot
    if isinstance(outcome, Skipped):
        return WriteResult(
            operation=operation,
            committed=False,
            version=outcome.version or snapshot.version,
            applied_before=outcome.applied_before,
            duplicates=len(outcome.duplicates),
            usage=usage,
        )
    commit = outcome.share or snapshot.commit
    return WriteResult(
        operation=operation,
        committed=True,
        version=snapshot.version,
        commit_id=commit.id,
        added_rows=commit.added_rows or 0,
        deleted_rows=commit.removed_rows,
        added_files=commit.added_files,
        removed_files=commit.removed_files,
        added_markers=commit.added_markers,
        added_bytes=commit.added_bytes,
        duplicates=len(outcome.duplicates),
        attempts=outcome.attempts,
        usage=usage,
    )

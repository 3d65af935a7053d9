"""Together: several appends as one change.

Promise: the merged change does exactly what its parts do one after another. That holds for changes that
only add files and remember requests: they read nothing, remove nothing and name no other file. It would
not hold for a delete: a tombstone misses the files of its own version.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.plan.change import AddFiles, Change

# Data files of one merged commit: what a pointer takes without rolling many segments at once.
MAX_FILES = 256


def only_appends(change: Change) -> bool:
    adds = all(isinstance(update, AddFiles) for update in change.updates)
    return adds and not change.requires and change.deleted_rows == 0


def may_join(changes: Sequence[Change], change: Change) -> bool:
    """Whether `change` can be merged with those (all `only_appends`). One with a request of theirs
    cannot: it is a duplicate as soon as they are committed."""
    same_operation = change.operation == changes[0].operation
    fits = sum(len(c.added) for c in (*changes, change)) <= MAX_FILES
    taken = {i for c in changes for i in _requests(c)}
    return same_operation and fits and taken.isdisjoint(_requests(change))


def merge(changes: Sequence[Change]) -> Change:
    """One change of several, each of which may be applied. The ledger remembers requests and events
    alike; the commit names a request only where it has one."""
    if len(changes) == 1:
        return changes[0]
    uploads = [c.uploaded_us for c in changes if c.uploaded_us is not None]
    return Change(
        operation=changes[0].operation,
        uploaded_us=min(uploads, default=None),
        events=tuple(r for c in changes for r in (c.request, *c.events) if r is not None),
        updates=(
            AddFiles(
                tuple(f for c in changes for f in c.added),
                {k: us for c in changes for u in c.of(AddFiles) for k, us in u.sources_us.items()},
            ),
        ),
    )


def _requests(change: Change) -> set[bytes]:
    return {r.id for r in (change.request, *change.events) if r is not None}

"""Retention: which versions expire, and from when their objects are garbage.

Promise: a version expires only if neither its age *nor* the minimum count keeps it; the current version
never expires. The table stays readable as of any time within the kept age, so the newest version older than
that age is kept too: it was current when that age began.

An expired version stays a root of garbage collection until its grace has passed (docs/design/design.md,
section 9), and for as long as a ref names it.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.format.snapshot import Snapshot
from inlay.plan.refs.refs import held_versions


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Versions `first` … `through` expire, except `held`, which a ref keeps readable."""

    first: int
    through: int
    held: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.through - self.first + 1 - len(self.held)


def plan_expiry(
    snapshot: Snapshot, *, newest_old: int | None, min_versions: int
) -> ExpiryPlan | None:
    """What to expire, or None.

    `newest_old` is the newest version committed before the age to keep, None when all are younger.
    `min_versions` counts the current version.
    """
    if newest_old is None:
        return None
    through = min(newest_old - 1, snapshot.version - max(min_versions, 1))
    first = snapshot.oldest_version
    if through < first:
        return None
    held = {version for version in held_versions(snapshot) if first <= version <= through}
    return ExpiryPlan(first, through, tuple(sorted(held)))


def expired_before(snapshot: Snapshot, *, before_us: int) -> int:
    """The newest version that expired before `before_us`: its objects, and those of all earlier versions,
    are kept by refs only. 0 when there is none."""
    return max(
        (e.through for e in snapshot.expired if e.time_us is not None and e.time_us < before_us),
        default=0,
    )

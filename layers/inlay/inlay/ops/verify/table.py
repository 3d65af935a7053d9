"""Verify: checks a whole table and reports what is wrong with it.

Promise: reads only, trusts no metadata that it has not checked, and does not stop at the first damage. A
table that only this library wrote has no errors, whatever crashed in between.

1. pointer    whole, of a known format
2. versions   the archive of each retained version, oldest first: whole, rising
3. segments   each once: there, whole, as its references say
4. entries    the newest version's against each other: sequences, markers, totals
5. listing    one LIST of the table: every object that a retained version needs, with its size
6. files      footers against entries, or every page (`depth`)
7. markers    vectors and keys decoded
8. the rest   objects that nothing needs, unknown objects, unfinished uploads

The listing comes after the pointer: what a writer adds meanwhile is younger than that read, and is not
reported as an orphan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inlay.errors import InvalidRequest, TableNotFound
from inlay.format import keys
from inlay.ops.context import Context
from inlay.ops.metadata.pointer import BrokenPointer, read_pointer
from inlay.ops.verify.steps import TableCheck
from inlay.plan.maintain.roots import Tally
from inlay.plan.verify.findings import MAX_VERSIONS, Finding, Findings, Severity

DEPTHS = ("metadata", "footers", "pages")
# Repetitions on a table that others change while something seems to be missing.
MAX_WALKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was checked and what was found. `version` is 0 when the pointer could not be read.

    At most 100 findings of a kind are listed; `counts` has them all. `orphans` are by kind of object.
    """

    version: int
    depth: str
    versions: int = 0
    segments: int = 0
    files: int = 0
    markers: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    orphans: Mapping[str, Tally] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """No error: every retained version can be read and answers correctly, as far as was checked."""
        return not self.errors


def verify(ctx: Context, *, depth: str = "footers", max_versions: int = MAX_VERSIONS) -> Verified:
    """Checks the table at `ctx`.

    `depth`: "metadata" reads metadata and lists objects; "footers" also reads each data file's footer
    and each marker object; "pages" decodes every page and checks every value against the statistics.
    Raises `TableNotFound` where there is no trace of a table, `NewerFormat`, and what the store raises.
    """
    if depth not in DEPTHS:
        raise InvalidRequest(
            f"unknown depth {depth!r}", next_step=f"It is one of {', '.join(DEPTHS)}"
        )
    if max_versions < 1:
        raise InvalidRequest("max_versions must be 1 or more", table=ctx.uri)
    for _ in range(MAX_WALKS):
        verified, etag = _walk(ctx, depth, max_versions)
        if verified.ok or etag is None:
            break
        after = read_pointer(ctx)
        if isinstance(after, BrokenPointer) or after.etag == etag:
            break
        # Others are at work: what is missing may have expired and been collected meanwhile.
    return verified


def _walk(ctx: Context, depth: str, max_versions: int) -> tuple[Verified, str | None]:
    """One pass, and the ETag of the pointer that it began at."""
    found = Findings()
    read = read_pointer(ctx)
    if isinstance(read, BrokenPointer):
        if read.etag is None and read.newest_archive is None:
            raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
        kind = "pointer_missing" if read.etag is None else "pointer_corrupt"
        newest = read.newest_archive
        newest_archive = (
            "there are no archives" if newest is None else f"the newest archive is v{newest}"
        )
        found.add(kind, keys.POINTER, f"{read.reason}; {newest_archive}")
        return _report(found, version=0, depth=depth), None
    walk = TableCheck(ctx, read.snapshot, read.raw, read.date_us, found)
    walk.versions(max_versions)
    walk.segments()
    walk.entries()
    walk.objects()
    if depth != "metadata":
        walk.files(pages=depth == "pages")
        walk.marker_objects()
    orphans, unknown, unknown_count = walk.rest()
    report = _report(
        found,
        version=read.snapshot.version,
        depth=depth,
        versions=len(walk.times),
        segments=walk.segment_count,
        files=len(walk.data),
        markers=len(walk.marks),
        bytes=sum(f.size for f in walk.data.values()),
        orphans=orphans,
        unknown=unknown,
        unknown_count=unknown_count,
    )
    return report, read.etag


def _report(found: Findings, **facts: Any) -> Verified:
    order = {severity: n for n, severity in enumerate(Severity)}
    findings = sorted(found.kept, key=lambda f: order[f.severity])
    return Verified(findings=tuple(findings), counts=dict(found.counts), **facts)

"""Findings: everything a check of a table can find, as values, with the next step for each.

Promise: a finding names the object (relative to the table root, like the metadata), states what is wrong
without repeating any row's value, and ends with the next step. `RULES` lists every kind of finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

# Findings of one kind that are kept; all are counted. A lost prefix would otherwise give millions.
MAX_PER_KIND = 100
# Archived versions that a check reads, newest first: one GET each.
MAX_VERSIONS = 10_000


class Severity(Enum):
    """`ERROR`: some version answers wrongly or not at all. `WARNING`: counts are wrong, rows are not.
    `NOTE`: nothing is wrong."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Rule:
    severity: Severity
    next_step: str


_FROM_VERSIONS = (
    "`inlay repair` restores it where the bucket keeps object versions; else restore it from a backup, "
    "or expire the versions up to it"
)
_REWRITTEN = "Find out what wrote it: no commit of this library does; restore it from a backup"
_BYPASSED = (
    "Something other than this library wrote to the table: restore the object from a backup or an earlier "
    "object version"
)
_ANEW = "Filters may miss rows: read all rows of the file and append them to a new one"

RULES = {
    "pointer_missing": Rule(Severity.ERROR, "`inlay repair` rebuilds it from the newest archive"),
    "pointer_corrupt": Rule(Severity.ERROR, "`inlay repair` rebuilds it from the newest archive"),
    "pointer_behind": Rule(
        Severity.ERROR,
        "Stop writing: the pointer was put back by hand, or archives of another table are left. "
        "`inlay repair` says how it would go on; to go back on purpose, restore the older version",
    ),
    "archive_missing": Rule(Severity.ERROR, _FROM_VERSIONS),
    "archive_corrupt": Rule(Severity.ERROR, _FROM_VERSIONS),
    "archive_differs": Rule(Severity.ERROR, "`inlay repair` writes it again from the pointer"),
    "history_contradicts": Rule(Severity.ERROR, _REWRITTEN),
    "segment_missing": Rule(Severity.ERROR, _BYPASSED),
    "segment_corrupt": Rule(Severity.ERROR, _BYPASSED),
    "segment_contradicts": Rule(Severity.ERROR, _REWRITTEN),
    "entry_twice": Rule(Severity.ERROR, _REWRITTEN),
    "sequence_wrong": Rule(Severity.ERROR, _REWRITTEN),
    "file_missing": Rule(
        Severity.ERROR,
        _BYPASSED
        + ". If it is lost, `inlay delete --where TRUE --file` and a compaction remove its entry "
        "(older versions stay broken until they expire)",
    ),
    "file_changed": Rule(Severity.ERROR, _BYPASSED),
    "file_unreadable": Rule(Severity.ERROR, _BYPASSED),
    "file_contradicts": Rule(Severity.ERROR, _BYPASSED),
    "statistics_wrong": Rule(Severity.ERROR, _ANEW),
    "partition_wrong": Rule(Severity.ERROR, _ANEW),
    "marker_changed": Rule(Severity.ERROR, _BYPASSED),
    "marker_missing": Rule(Severity.ERROR, _BYPASSED + ". Deletes are not applied without it"),
    "marker_unreadable": Rule(Severity.ERROR, _BYPASSED + ". Deletes are not applied without it"),
    "marker_contradicts": Rule(Severity.ERROR, _REWRITTEN),
    "unused_entries": Rule(
        Severity.NOTE,
        "An erasure removes what it asks for; compaction writes files without them, and the property "
        "`erasure.promised` keeps them out",
    ),
    "totals_wrong": Rule(Severity.WARNING, "`inlay repair` counts them again"),
    "dangling_marker": Rule(
        Severity.NOTE, "Readers ignore it; `inlay repair` or the next compaction drops it"
    ),
    "orphans": Rule(
        Severity.NOTE,
        "Left by writers that failed or lost, or being written: `inlay gc` deletes them after the grace",
    ),
    "orphans_unknown": Rule(
        Severity.NOTE, "Repair the errors first: garbage collection stops at them, too"
    ),
    "unknown_objects": Rule(
        Severity.NOTE, "Not Inlay's, and never deleted. Keep other data outside the table"
    ),
    "stale_uploads": Rule(Severity.NOTE, "`inlay gc` aborts them after the grace"),
    "versions_not_checked": Rule(Severity.NOTE, "Check more versions, or expire some"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `key` is relative to the table root (a URI for adopted files), None when it is about the
    table as a whole."""

    severity: Severity
    kind: str
    key: str | None
    message: str
    next_step: str

    def __str__(self) -> str:
        about = f"{self.key}: " if self.key else ""
        return f"{self.severity.value}: {about}{self.message}. {self.next_step}"


def finding(kind: str, key: str | None, message: str) -> Finding:
    rule = RULES[kind]
    return Finding(
        severity=rule.severity, kind=kind, key=key, message=message, next_step=rule.next_step
    )


@dataclass(slots=True)
class Findings:
    """The findings so far: every kind counted, at most MAX_PER_KIND of each kept."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, key: str | None, message: str) -> None:
        self.extend([finding(kind, key, message)])

    def extend(self, found: Iterable[Finding]) -> None:
        for each in found:
            self.counts[each.kind] += 1
            if self.counts[each.kind] <= MAX_PER_KIND:
                self.kept.append(each)

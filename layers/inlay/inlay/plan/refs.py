"""Refs: what tags and branches hold, and what a commit changes in them.

Promise: a ref never gets content that may be gone, and a commit on a branch changes the branch's content
and nothing of main's. The conditions on refs are checked against the base that is swapped out: a ref that
moved since the change was planned is a conflict, and the change is planned again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest
from inlay.format.entry import Marker, Where
from inlay.format.snapshot import (
    MAX_REFS,
    Commit,
    Content,
    HeadObject,
    Ref,
    Snapshot,
    Tier,
    Totals,
    with_content,
)
from inlay.plan.answers import Conflict
from inlay.plan.pruning.prune import for_content, may_match
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.plan.change import SetRefs

# In a planned ref: the version of the commit that will write it.
THIS_VERSION = -1
LEVEL_WITH_MAIN = Ref(kind="branch", version=THIS_VERSION, base=THIS_VERSION, since=THIS_VERSION)
MAIN = "main"
# The operation that merges a branch. Not "merge": in the history that is a merge of rows by key.
MERGE = "merge_branch"
# Names are used in command lines, URIs and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")


def ref_records(table: Snapshot) -> list[dict[str, Any]]:
    """Main, then tags and branches by name. `base` is the version of main that a branch can be merged on,
    `written` is whether it has content of its own, `since` when it was created or last merged."""
    main = Ref(kind="branch", version=table.version)
    return [
        {
            "name": name,
            "kind": ref.kind,
            "version": ref.version,
            "hold": ref.hold,
            "base": ref.base or None,
            "since": ref.since or None,
            "written": ref.head is not None,
        }
        for name, ref in [(MAIN, main), *sorted(table.refs.items())]
    ]


def check_name(name: object) -> str:
    """`name`, if it is valid for a ref. Raises `InvalidRequest`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == MAIN:
        raise InvalidRequest(
            f"{str(name)[:100]!r} is not a valid name for a ref",
            next_step="Up to 100 letters, digits and `._/-`, the first a letter or digit; `main` is taken",
        )
    return name


# -- what a ref shows -----------------------------------------------------------------------------


def ref_view(table: Snapshot, content: Content, since: int = 0) -> Snapshot:
    """`table` with this content, as readers see it: without the rows of erasures opened after the content
    was made. Content that nobody has written to since cannot carry the marker itself."""
    added = tuple(_later_erasures(table, content))
    markers, totals = content.markers, content.totals
    if added:
        markers = Tier(markers.segments, (*markers.inline, *added))
        totals = replace(totals, markers=totals.markers + len(added))
    replaced = max(content.replaced, since)
    return with_content(table, replace(content, markers=markers, totals=totals, replaced=replaced))


def past_view(past: Snapshot, current: Snapshot) -> Snapshot:
    """A past version as readers see it now: without the rows of erasures opened since."""
    return with_content(past, replace(ref_view(current, past), replaced=past.replaced))


def _later_erasures(table: Snapshot, content: Content) -> Iterator[Marker]:
    """The markers of erasures opened after the content was made, as far as they can hit its rows: the
    content may be from before a column of the condition was added."""
    for erasure in table.erasures:
        if erasure.predicate is None or erasure.opened_version <= content.version:
            continue
        predicate = for_content(erasure.predicate, content.schema_id, table.schemas)
        if may_match(predicate, {}, 1):
            yield Marker(
                id=erasure.id,
                body=Where(predicate),
                sequence=erasure.opened_version,
                erasure=erasure.id,
            )


def with_head(committed: Snapshot, table: Snapshot, name: str, head: HeadObject) -> Snapshot:
    """The pointer after a commit on a ref: main's content from `table`, and the ref's new head. A tag keeps
    naming the version it was made from."""
    ref = committed.refs[name]
    version = committed.version if ref.is_branch else ref.version
    return with_content(
        replace(
            committed,
            refs={**committed.refs, name: replace(ref, version=version, head=head)},
            commit=replace(committed.commit, branch=name),
        ),
        table,
    )


# -- what refs hold -------------------------------------------------------------------------------


def held_versions(snapshot: Snapshot) -> frozenset[int]:
    """Versions of main that refs need: as their content, or to compare it with main's."""
    contents = {r.version for r in snapshot.refs.values() if r.head is None}
    return frozenset(contents | {r.base for r in snapshot.refs.values() if r.base})


def heads(snapshot: Snapshot) -> frozenset[HeadObject]:
    return frozenset(r.head for r in snapshot.refs.values() if r.head is not None)


def is_retained(snapshot: Snapshot, ref: Ref) -> bool:
    """Whether the content of `ref`, read earlier, is still kept: by a ref, or by the version that made
    it."""
    if ref.head is None and ref.version in held_versions(snapshot):
        return True
    if ref.head is not None and ref.head in heads(snapshot):
        return True
    return snapshot.oldest_version <= ref.version <= snapshot.version


# -- what a commit makes of them ------------------------------------------------------------------


def validate_refs(snapshot: Snapshot, update: SetRefs) -> Conflict | None:
    """Whether a change of refs still fits this base."""
    for name, ref in update.were.items():
        if snapshot.refs.get(name) != ref:
            return Conflict(f"the ref {name} was changed by another commit")
    if len(edited_refs(snapshot, update)) > max(MAX_REFS, len(snapshot.refs)):
        return Conflict(f"a table has at most {MAX_REFS} refs")
    return None


def edited_refs(snapshot: Snapshot, update: SetRefs) -> dict[str, Ref]:
    refs = {**snapshot.refs, **update.refs}
    return {name: _dated(ref, snapshot.version) for name, ref in refs.items() if ref is not None}


def _dated(ref: Ref, version: int) -> Ref:
    def known(planned: int) -> int:
        return version if planned == THIS_VERSION else planned

    return replace(ref, version=known(ref.version), base=known(ref.base), since=known(ref.since))


def with_layout_of(snapshot: Snapshot, content: Content) -> Snapshot:
    """With the columns and the layout of `content`, and its own files."""
    return replace(
        snapshot,
        schema_id=content.schema_id,
        spec_id=content.spec_id,
        primary_key=content.primary_key,
        sort_by=content.sort_by,
        stats_columns=content.stats_columns,
    )


def net_counts(commit: Commit, before: Totals, after: Totals) -> Commit:
    """The counts of a commit that replaces the content: the differences to before."""
    return replace(
        commit,
        added_files=max(after.files - before.files, 0),
        removed_files=max(before.files - after.files, 0),
        added_rows=None,
        removed_rows=None,
        added_markers=max(after.markers - before.markers, 0),
        removed_markers=max(before.markers - after.markers, 0),
    )

"""Erasure: its phases, and what must be true before each step (docs/ERASURE.md).

Promise: an erasure goes through its phases in order, each step one commit that names the phase it
leaves, so that of two processes that advance it one wins and the other looks again; and its predicate
leaves the snapshot only when no row for it is left, here or in a version anyone may read later.

======== ======================================================= =================================
phase    what is true                                            what leads on
======== ======================================================= =================================
rewrite  readers no longer see the rows, and whatever is made    no file may hold one, no landing
         of objects older than the opening is marked, too        object older than the opening
                                                                 does: predicate, markers, all
                                                                 older versions go in one commit
purge    no current object or metadata holds a row; old ones     after the life of a reader: every
         do, and nothing needs them                              old one is deleted; deletes that
                                                                 came since are carried out and
                                                                 forgotten as well
sweep    nothing holds a row but what a writer from before the   after the life of a writer: such
         opening may still upload, for nothing: it cannot        uploads are deleted, deletes that
         commit (boundary)                                       came since forgotten; nothing is
                                                                 found any more: receipt, end
======== ======================================================= =================================
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from inlay.format.entry import ColumnStats, DataFile, Marker
from inlay.format.predicate import And, Comparison, In, Like, Not, Or, Predicate
from inlay.format.predicate_json import predicate_to_json
from inlay.format.schema import Schema, Value
from inlay.format.snapshot import Erasure, Ref, Snapshot
from inlay.plan.change import Conflict, Edit
from inlay.plan.metadata.state import State
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.pruning.prune import all_match
from inlay.plan.scan.marker_scope import marker_may_hit

Phase = Literal["rewrite", "purge", "sweep"]
REWRITE: Phase = "rewrite"
PURGE: Phase = "purge"
SWEEP: Phase = "sweep"
# AWS: a Lambda lives at most 15 minutes. The longest life of a writer and of a reader must be told
# where others take part (Spark jobs, notebooks).
LIFE_SECONDS = 900.0

_TABLE_ROOT = re.compile(r"(?P<before>(?:.*/)?)tables/(?P<table>.+)")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why an erasure cannot go on: `what` is a kind (file, landing, hold, time …), `name` which one."""

    what: str
    name: str
    reason: str


def landing_prefix(root: str) -> str | None:
    """Where objects of this table land, by the layout of docs/design/design.md, section 2; None elsewhere.

    >>> landing_prefix("lake/tables/events")
    'lake/ingest/events/'
    """
    match = _TABLE_ROOT.fullmatch(root)
    return f"{match['before']}ingest/{match['table']}/" if match else None


def predicate_digest(predicate: Predicate, key: bytes | None) -> str | None:
    """HMAC-SHA256 of the predicate's JSON; None without a key, since a plain hash of a short predicate
    is found by trying."""
    if key is None:
        return None
    text = json.dumps(predicate_to_json(predicate), sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode("utf-8"), "sha256").hexdigest()


def named_defaults(predicate: Predicate, schemas: Iterable[Schema]) -> frozenset[str]:
    """Columns whose default is a value that the predicate names. It stands in the schema that old files are
    read by, and no rewrite takes it out of there."""
    named = [n for n in _conditions(predicate) if isinstance(n, Comparison | In | Like)]
    return frozenset(
        ".".join(path)
        for schema in schemas
        for path, column in schema.walk()
        if column.default is not None
        and any(n.field_id == column.id and _is_named(n, column.default) for n in named)
    )


def _conditions(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that a row is selected by: not what it is asked not to be."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from _conditions(part)
    elif not isinstance(predicate, Not):
        yield predicate


def _is_named(node: Comparison | In | Like, value: Value) -> bool:
    if isinstance(node, Comparison) and node.op != "=":
        return False
    only = ColumnStats(lower=value, upper=value, null_count=0)
    return all_match(node, {node.field_id: only}, 1)


def find_erasure(snapshot: Snapshot, erasure_id: str) -> Erasure | None:
    return next((e for e in snapshot.erasures if e.id == erasure_id), None)


def concerns(marker: Marker, erasure: Erasure) -> bool:
    """Whether a marker must be gone before the erasure goes on: its own, and every older one, because
    those name values of rows too, and hide rows that are still there. After phase `rewrite` nothing says
    any more which rows a delete that came since may name: every one is held to the erasure."""
    if marker.erasure is not None:
        return marker.erasure == erasure.id
    return erasure.phase != REWRITE or (marker.sequence or 0) <= erasure.opened_version


def unclean_files(state: State, erasures: Iterable[Erasure]) -> dict[str, dict[str, DataFile]]:
    """By erasure and key: files that may still hold rows of it, or rows that deletes hide which it is
    concerned with. Each pair of a file and a marker is looked at once, however many erasures there are."""
    evidence = Evidence.of_snapshot(state.snapshot)
    found: dict[str, dict[str, DataFile]] = {e.id: {} for e in erasures}
    open_ = tuple(erasures)
    held = [(m, [e.id for e in open_ if concerns(m, e)]) for m in state.markers()]
    held = [(marker, ids) for marker, ids in held if ids]
    for entry in state.files() if held else ():
        for marker, ids in held:
            if marker_may_hit(marker, entry, evidence):
                for erasure_id in ids:
                    found[erasure_id][entry.key] = entry
    return found


def on_ref(name: str | None) -> str:
    """Which content a file is waited for in, where it is not main's."""
    return "" if name is None else f" (for {name})"


def is_purged(state: State, ref: Ref, erasure: Erasure) -> bool:
    """Whether what a ref holds says nothing of the erasure any more: it has a head, without a mark of
    rows that the erasure concerns and without a dead entry, whose statistics may."""
    tiers = (state.snapshot.files, state.snapshot.markers)
    marked = any(concerns(m, erasure) for m in state.markers())
    return (
        ref.head is not None and not marked and not any(s.dead for t in tiers for s in t.segments)
    )


def holds(snapshot: Snapshot) -> list[str]:
    """Names under a legal hold."""
    return sorted(name for name, ref in snapshot.refs.items() if ref.hold)


def validate_erasure(state: State, edit: Edit) -> Conflict | None:
    """Whether an edit of an erasure fits this base. A step that was taken already, by another process
    or before a crash, is a conflict: whoever planned looks again."""
    if not edit.erasures and not edit.close_erasures:
        return None
    were: list[Erasure] = []
    for erasure_id in (*(e.id for e in edit.erasures), *edit.close_erasures):
        before = find_erasure(state.snapshot, erasure_id)
        if (before.phase if before is not None else None) != edit.erasure_phase:
            return Conflict(f"erasure {erasure_id} is not in phase {edit.erasure_phase} any more")
        if before is not None:
            were.append(before)
    if not edit.ends_rewriting or edit.leaves_deletes:
        return None
    for erasure_id, files in unclean_files(state, were).items():
        if files:
            return Conflict(f"files still have to be rewritten for erasure {erasure_id}")
    if edit.erasure_phase != REWRITE:
        return None
    if dict(edit.refs_were) != dict(state.snapshot.refs):
        return Conflict("branches or tags changed since they were found clean")
    if holds(state.snapshot):
        return Conflict("a legal hold keeps erasures from ending")
    if edit.searched is not None and any(f.key not in edit.searched for f in state.files()):
        return Conflict("files came since the last look")
    return None

"""Erasure: its phases, and the condition for each step. docs/ERASURE.md, "Phases", has what holds in each.

Promise: an erasure goes through its phases in order. Each step is one commit that names the phase it
leaves, so if two processes advance the erasure, one wins and the other reads the new state. The predicate
leaves the snapshot only when no row it selects is left, in this version or in any version that can still be
read.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable

from inlay.errors import InvalidRequest
from inlay.format.entry import ColumnStats, DataFile, Marker
from inlay.format.predicate import (
    Comparison,
    In,
    Like,
    Predicate,
    conditions,
    field_ids,
)
from inlay.format.schema import Field, Schema, Value
from inlay.format.snapshot import Erasure, Phase, Ref, Snapshot
from inlay.plan.change import Conflict
from inlay.plan.metadata.state import State
from inlay.plan.pruning.literals import condition_on, plainly
from inlay.plan.pruning.prune import Evidence, all_match, may_match
from inlay.plan.scan import marker_may_hit
from inlay.record import Record

REWRITE: Phase = "rewrite"
PURGE: Phase = "purge"
SWEEP: Phase = "sweep"
# AWS: a Lambda runs at most 15 minutes. Set the longest read and write where others take part (Spark
# jobs, notebooks).
LIFE_SECONDS = 900.0

_TABLE_ROOT = re.compile(r"(?P<before>(?:.*/)?)tables/(?P<table>.+)")


class Waiting(Record):
    """Why an erasure cannot advance: `what` is a kind (file, landing, hold, time …), `name` which one."""

    what: str
    name: str
    reason: str


def landing_prefix(root: str) -> str | None:
    """The landing prefix of this table, by a deployment's layout (docs/LANDING.md); None elsewhere.

    >>> landing_prefix("lake/tables/events")
    'lake/ingest/events/'
    """
    match = _TABLE_ROOT.fullmatch(root)
    return f"{match['before']}ingest/{match['table']}/" if match else None


def landing_zone(root: str, given: str | None) -> str | None:
    """Where files land for the table at `root`: a prefix of keys. `given` None: as `landing_prefix` has it;
    "": nowhere (it would be the whole bucket, and every table in it a landed object). Raises
    `InvalidRequest` for what is no folder beside the table: nothing would be found under a URI, and under
    half a name what landed for other tables, too."""
    if given is None:
        return landing_prefix(root)
    own = f"{root}/"
    is_folder = given.endswith("/") and not given.startswith("/") and "://" not in given
    if given and (not is_folder or own.startswith(given) or given.startswith(own)):
        raise InvalidRequest(
            f"{given!r} is no prefix under which files land",
            next_step="Give the folder's whole key in the table's bucket, with a slash at its end and "
            f"outside of the table, as {landing_prefix(root) or 'ingest/people/'!r}",
        )
    return given or None


def key_id(key: bytes) -> str:
    """Which HMAC key a digest was made with, without a hint of it."""
    return hmac.new(key, b"inlay: the name of this key", "sha256").hexdigest()[:16]


def predicate_digest(text: str, key: bytes | None, *, table: str, erasure: str) -> str | None:
    """`<key id>:<HMAC-SHA256>` of what was asked: the ids of table and erasure, and the condition's text
    (`format_predicate`). With the ids in it the receipts of one person in two tables have nothing in
    common; the text, unlike the predicate with its field ids, is known outside the table. None without a
    key, because a short condition could be found from a plain hash by trial."""
    if key is None:
        return None
    message = json.dumps([table, erasure, text], ensure_ascii=True, separators=(",", ":"))
    return f"{key_id(key)}:{hmac.new(key, message.encode('ascii'), 'sha256').hexdigest()}"


def named_defaults(predicate: Predicate, schemas: Iterable[Schema]) -> frozenset[str]:
    """Columns whose default is a value that the predicate names, or that its condition on them selects.
    The default is part of the schema that old files are read under, and no rewrite removes it."""
    comparisons = [
        n for n in conditions(plainly(predicate)) if isinstance(n, Comparison | In | Like)
    ]
    of_columns = {n: condition_on(predicate, n) for n in field_ids(predicate)}
    return frozenset(
        ".".join(path)
        for schema in schemas
        for path, column in schema.walk()
        if column.default is not None
        and (
            any(n.field_id == column.id and _is_named(n, column.default) for n in comparisons)
            or _selects(of_columns.get(column.id), column)
        )
    )


def _selects(condition: Predicate | None, column: Field) -> bool:
    only = ColumnStats(lower=column.default, upper=column.default, null_count=0, has_nan=False)
    return condition is not None and may_match(condition, {column.id: only}, 1)


def _is_named(node: Comparison | In | Like, value: Value) -> bool:
    if isinstance(node, Comparison) and node.op != "=":
        return False
    only = ColumnStats(lower=value, upper=value, null_count=0)
    return all_match(node, {node.field_id: only}, 1)


def concerns(marker: Marker, erasure: Erasure) -> bool:
    """Whether a marker must be gone before the erasure goes on: its own markers, and every older one, since
    those may name values of its rows and hide rows that are still there. After phase `rewrite` the
    predicate is gone, and no delete committed since can be shown not to name such rows: all count."""
    if marker.erasure is not None:
        return marker.erasure == erasure.id
    return erasure.phase != REWRITE or (marker.sequence or 0) <= erasure.opened_version


def unclean_files(state: State, erasures: Iterable[Erasure]) -> dict[str, dict[str, DataFile]]:
    """By erasure and key: files that may still hold rows of the erasure, or rows hidden by deletes that it
    concerns. Each pair of file and marker is evaluated once, however many erasures there are."""
    evidence = Evidence.of_snapshot(state.snapshot)
    open_ = tuple(erasures)
    unclean: dict[str, dict[str, DataFile]] = {e.id: {} for e in open_}

    def concerned(marker: Marker) -> list[str]:
        if marker.erasure is not None:  # mostly: a thousand have a marker each
            return [marker.erasure] if marker.erasure in unclean else []
        return [e.id for e in open_ if concerns(marker, e)]

    held = [(marker, ids) for marker in state.markers() if (ids := concerned(marker))]
    for entry in state.files() if held else ():
        for marker, ids in held:
            if marker_may_hit(marker, entry, evidence):
                for erasure_id in ids:
                    unclean[erasure_id][entry.key] = entry
    return unclean


def ref_suffix(name: str | None) -> str:
    """The ref whose content an erasure waits for, if it is not main's."""
    return "" if name is None else f" (for {name})"


def is_purged(state: State, ref: Ref, erasure: Erasure) -> bool:
    """Whether the content of a ref is clean of the erasure: it has a head, no marker that the erasure
    concerns, and no dead entry, whose statistics could name values."""
    tiers = (state.snapshot.files, state.snapshot.markers)
    marked = any(concerns(m, erasure) for m in state.markers())
    return (
        ref.head is not None and not marked and not any(s.dead for t in tiers for s in t.segments)
    )


def legal_holds(snapshot: Snapshot) -> list[str]:
    """Names of tags under a legal hold."""
    return sorted(name for name, ref in snapshot.refs.items() if ref.hold)


def validate_phase(
    snapshot: Snapshot, erasure_ids: Iterable[str], phase: str | None
) -> Conflict | None:
    """Whether erasures are in a phase (None: not open). A step that was taken already, by another process
    or before a crash, is a conflict: whoever planned looks again."""
    phases = {erasure.id: erasure.phase for erasure in snapshot.erasures}
    for erasure_id in erasure_ids:
        if phases.get(erasure_id) != phase:
            return Conflict(f"erasure {erasure_id} is no longer in phase {phase}")
    return None


def validate_clean(state: State, erasure_ids: Iterable[str]) -> Conflict | None:
    """Whether no file may hold rows of erasures any more."""
    ids = frozenset(erasure_ids)
    erasures = [erasure for erasure in state.snapshot.erasures if erasure.id in ids]
    for erasure_id, files in unclean_files(state, erasures).items():
        if files:
            return Conflict(f"files still have to be rewritten for erasure {erasure_id}")
    return None

"""The receipt of an erasure: what was done, by what it can be checked again, and what it does not reach.

Promise: a receipt says nothing that was not found out when it was written, holds no value and no digest of
what was erased but its keyed one, and stays small however large the table is: what is long stands in lists
beside it, whose SHA-256 it has. `verify_receipt` holds a receipt to the bucket, any time later.

Lists are frames of kind `erasure_list` at `evidence/<version>-<step>-<id>.json`. They are written
before the step they are about is taken, so a crash loses none, and serve every erasure that took the step
together:

    look    what the last look opened, when the predicate was last known
    gone    the object versions that a sweep then deleted
    left    what was there when the receipt was written
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from inlay.errors import CorruptTable, InvalidRequest
from inlay.format.frame import MAX_FRAME_BYTES, decode_frame, encode_frame
from inlay.format.keys import (
    EVIDENCE,
    POINTER,
    PUBLISHED_POINTER,
    RECEIPTS,
    VERSION_HINT,
    ObjectKind,
    archive_version,
    classify,
    receipt_key,
)
from inlay.format.properties import Properties
from inlay.format.snapshot import Erasure, Snapshot
from inlay.ops.context import Context
from inlay.ops.erase.last_look import LastLook
from inlay.ops.metadata.load import LoadedTable, read_main
from inlay.plan.metadata.ledger import LedgerSalt
from inlay.storage.base import Got, ObjectVersion

RECEIPT_KIND = "erasure"
LIST_KIND = "erasure_list"
# Entries of each kind that a receipt carries itself; their number is always whole, and a list has all.
MAX_NAMED = 100
DAY_US = 86_400_000_000

# Keys that this library makes up, all of them at random or by counting: they name nothing. Others (an
# orphan that somebody put under `data/`) may.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(
    rf"data/\d{{4}}/\d\d/\d\d/\d\d/{_UUID}\.parquet|tombstone/\d{{4}}/\d\d/\d\d/\d\d/{_UUID}\.(?:del|puffin)"
    rf"|manifest/segments/{_UUID}|manifest/v\d{{8,}}\.json|_latest_manifest"
)

# Objects that are written over and over: nothing is said of their content.
SWAPPED = (POINTER, PUBLISHED_POINTER, VERSION_HINT)

# What no table can delete; how long each lasts is for the deployment to say.
OUT_OF_REACH = (
    "messages in queues",
    "dead letters",
    "function logs",
    "access logs of the bucket",
    "CloudTrail data events",
    "replicas of the bucket",
    "backups",
    "exports and originals of adopted files",
)
# What a service keeps at most, whatever the deployment says (Amazon SQS, quotas of messages).
MOST_DAYS: Mapping[str, float] = {"messages in queues": 14, "dead letters": 14}


@dataclass(frozen=True, slots=True)
class List:
    """A list as a receipt names it: its key, the SHA-256 of its bytes, how many entries it has."""

    key: str
    sha256: str
    entries: int

    @property
    def as_json(self) -> dict[str, object]:
        return {"key": self.key, "sha256": self.sha256, "entries": self.entries}


def is_ours(key: str) -> bool:
    """Whether a key, relative to the table root, is one that this library made up."""
    return _OURS.fullmatch(key) is not None


def _write_list(
    ctx: Context,
    version: int,
    step: str,
    erasures: Sequence[str],
    body: Mapping[str, Any],
    entries: int,
) -> List:
    key = f"{EVIDENCE}{version:08d}-{step}-{ctx.new_id()}.json"
    data = encode_frame(
        LIST_KIND, {"step": step, "version": version, "erasures": sorted(erasures), **body}
    )
    ctx.write_once(key, data)
    return List(key, sha256(data).hexdigest(), entries)


def write_look(ctx: Context, look: LastLook, erasures: Sequence[str]) -> List:
    files = sorted(look.files.values(), key=lambda f: f.entry.key)
    body = {
        "looked_us": look.date_us,
        "files": [[f.entry.key, f.how, f.failure is None] for f in files],
        "kept": [k.as_json for k in look.kept],
        "key_values": dict(sorted(look.key_values.items())),
        "foreign": sum(f.entry.is_foreign for f in files),
        "columns": list(look.columns),
        "searched_in_part": look.searched_in_part,
        "requests": look.requests,
        "bytes": look.bytes,
    }
    return _write_list(ctx, look.version, "look", erasures, body, len(files))


def write_gone(
    ctx: Context,
    version: int,
    erasures: Sequence[str],
    found: Iterable[ObjectVersion],
    uploads: int,
) -> List:
    """What is about to be deleted: keys that are this library's own, with version ids; how many others."""
    prefix = ctx.key("")
    named = [(v.key.removeprefix(prefix), v.version_id) for v in found]
    ours = sorted([key, version_id] for key, version_id in named if is_ours(key))
    body = {"objects": ours, "others": len(named) - len(ours), "uploads": uploads}
    return _write_list(ctx, version, "gone", erasures, body, len(named))


def write_left(
    ctx: Context, version: int, erasures: Sequence[str], found: Iterable[ObjectVersion]
) -> List:
    """What is there: [key, ETag, version id, bytes, kind]. What is swapped is not among it."""
    prefix = ctx.key("")
    rows = []
    for v in found:
        key = v.key.removeprefix(prefix)
        if classify(key) is not ObjectKind.RECEIPT and key not in SWAPPED:
            rows.append([key, v.etag, v.version_id, v.size, classify(key).value])
    return _write_list(ctx, version, "left", erasures, {"objects": sorted(rows)}, len(rows))


def load_lists(ctx: Context, since_version: int) -> list[tuple[List, dict[str, Any]]]:
    """The lists written on `since_version` or later, oldest first."""
    prefix = ctx.key(EVIDENCE)
    listed = ctx.store.list(prefix, start_after=f"{prefix}{max(since_version - 1, 0):08d}~")
    keys = [info.key.removeprefix(ctx.key("")) for info in listed]

    def load(key: str) -> tuple[List, dict[str, Any]]:
        body, digest = _read_list(ctx, key)
        return List(key, digest, len(body.get("files", body.get("objects", ())))), body

    return list(ctx.map(load, keys))


def _read_list(ctx: Context, key: str) -> tuple[dict[str, Any], str]:
    got = ctx.store.get(ctx.key(key))
    if not isinstance(got, Got):
        raise CorruptTable("a list that a receipt names is gone", table=ctx.uri, key=key)
    return decode_frame(LIST_KIND, got.body, key=key), sha256(got.body).hexdigest()


# -- what a receipt says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is the same for all erasures that end together: `left` is everything under the table's prefix
    after the last deletion, `later` (version, operation) of deletes that came after the step to `sweep`,
    `landing` how many objects older than the erasures are left in the landing zone (None: not looked)."""

    versions: Sequence[ObjectVersion]
    left: List
    lists: Sequence[tuple[List, dict[str, Any]]]
    later: Sequence[tuple[int, str]]
    pending: Sequence[str]
    landing: int | None
    retention_days: Mapping[str, float]
    deleted: int


def receipt_of(ctx: Context, loaded: LoadedTable, erasure: Erasure, facts: Facts) -> dict[str, Any]:
    """The body of a receipt."""
    snapshot: Snapshot = loaded.snapshot
    mine = [(made, body) for made, body in facts.lists if erasure.id in body["erasures"]]
    looks = [(made, body) for made, body in mine if body["step"] == "look"]
    gone = [(made, body) for made, body in mine if body["step"] == "gone"]
    salt = LedgerSalt.of(snapshot.properties)
    unknown = [v for v in facts.versions if _kind(ctx, v) is ObjectKind.UNKNOWN]
    body: dict[str, Any] = {
        "table": snapshot.table_id,
        "id": erasure.id,
        "predicate_hmac_sha256": erasure.digest,
        "opened_version": erasure.opened_version,
        "opened_us": erasure.opened_us,
        "swept_us": erasure.swept_us,
        "ended_version": snapshot.version,
        "ended_us": loaded.date_us,
        "rewritten_objects": erasure.objects,
        "removed_rows": erasure.rows,
        "deleted_objects": erasure.deleted + facts.deleted,
        "oldest_version": snapshot.oldest_version,
        "gone": [made.as_json for made, _ in gone],
        "left": facts.left.as_json,
        "unknown_objects": {
            "count": len(unknown),
            "objects": [_named(ctx, v) for v in unknown[:MAX_NAMED]],
        },
        "landing_older_objects": facts.landing,
        "later_deletes": {
            "count": len(facts.later),
            "versions": [list(each) for each in facts.later[:MAX_NAMED]],
            "pending": list(facts.pending[:MAX_NAMED]),
        },
        "other_erasures": sorted(e.id for e in snapshot.erasures if e.id != erasure.id)[:MAX_NAMED],
        "ledger": {
            "salted_since": None if salt is None else salt.since,
            "unsalted_before": None if salt is None else salt.plain_before,
            "unsalted_until_us": None
            if salt is None or not salt.plain_before
            else loaded.date_us + Properties(snapshot.properties).number("ledger.days") * DAY_US,
        },
        "out_of_reach": [
            _reach(name, loaded.date_us, facts.retention_days) for name in OUT_OF_REACH
        ],
    }
    body["look"] = None if not looks else _look_of(*looks[-1])
    return dict(sorted(body.items()))


def _look_of(made: List, found: Mapping[str, Any]) -> dict[str, Any]:
    how = [row[1] for row in found["files"]]
    return {
        "list": made.as_json,
        "version": found["version"],
        "looked_us": found["looked_us"],
        "files": len(how),
        "judged_by_rows": how.count("rows"),
        "judged_by_own_bounds": how.count("bounds"),
        "newer": how.count("newer"),
        "unsearched": sum(not row[2] for row in found["files"]),
        "statistics_not_believed": found["foreign"],
        "columns": found.get("columns"),
        "searched_in_part": found.get("searched_in_part"),
        "key_values": dict(list(found["key_values"].items())[:MAX_NAMED]),
        "kept": found["kept"][:MAX_NAMED],
        "kept_count": len(found["kept"]),
        "requests": found["requests"],
        "bytes": found["bytes"],
    }


def _kind(ctx: Context, version: ObjectVersion) -> ObjectKind:
    return classify(version.key.removeprefix(ctx.key("")))


def _named(ctx: Context, version: ObjectVersion) -> list[str]:
    return [version.key.removeprefix(ctx.key("")), version.etag, version.version_id]


def _reach(name: str, ended_us: int, days: Mapping[str, float]) -> dict[str, object]:
    """Until when it may hold what was said before the end; None: nobody knows."""
    known = days.get(name, MOST_DAYS.get(name))
    until = None if known is None else ended_us + int(known * DAY_US)
    return {"what": name, "until_us": until}


def check_retention(days: Mapping[str, float]) -> Mapping[str, float]:
    """Raises `InvalidRequest` for names that no receipt has."""
    for name in days:
        if name not in OUT_OF_REACH:
            raise InvalidRequest(
                f"a receipt says nothing of {name!r}",
                next_step=f"It names: {', '.join(OUT_OF_REACH)}",
            )
    return days


def encode_receipt(body: Mapping[str, Any]) -> bytes:
    """Canonical: members in order of their names, no white space; the frame's digest is the last.
    Never compressed: people read it."""
    ordered = json.loads(json.dumps(body, sort_keys=True))
    return encode_frame(RECEIPT_KIND, ordered, plain_bytes=MAX_FRAME_BYTES)


# -- verification ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptCheck:
    """What became of what a receipt says. `problems` contradict it; `deleted_since` objects that were left
    then are gone by now, as objects go; `unchanged` are as they were. `named` is what the receipt itself
    says is kept, unknown or out of reach: nothing to mend, but to be known."""

    id: str
    problems: tuple[str, ...]
    named: tuple[str, ...]
    unchanged: int
    deleted_since: int
    still_gone: int
    came_since: int


def verify_receipt(ctx: Context, name: str) -> ReceiptCheck:
    """Hold a receipt to the bucket. `name` is the erasure's id or the receipt's key in the table.

    Raises `InvalidRequest` when there is no such receipt, `CorruptTable` when it, or a list it names, was
    damaged.
    """
    key = name if name.startswith(RECEIPTS) else receipt_key(name)
    got = ctx.store.get(ctx.key(key))
    if not isinstance(got, Got):
        raise InvalidRequest(
            f"there is no receipt {key}",
            next_step="`inlay erase-status` lists erasures that have not ended yet",
            table=ctx.uri,
        )
    body = decode_frame(RECEIPT_KIND, got.body, key=key)
    problems: list[str] = []
    if body["table"] != read_main(ctx).snapshot.table_id:
        problems.append("the receipt is of another table")
    if "left" not in body:
        raise InvalidRequest(
            f"{key} is of a library that wrote no lists: only its own digest could be checked",
            table=ctx.uri,
        )
    lists = {step: list(_lists_of(ctx, body, step, problems)) for step in ("gone", "left", "look")}
    prefix = ctx.key("")
    now = {(v.key.removeprefix(prefix), v.version_id): v for v in ctx.store.list_versions(prefix)}
    keys_now = {key for (key, _), version in now.items() if not version.marker}
    still_gone = 0
    for found in lists["gone"]:
        for gone_key, version_id in found["objects"]:
            # Without versions a key has one content; keys are never written twice.
            if (gone_key, version_id) in now and gone_key not in SWAPPED:
                problems.append(f"{gone_key} was deleted and is there again")
            else:
                still_gone += 1
    unchanged = deleted_since = 0
    left: set[tuple[str, str]] = set()
    for found in lists["left"]:
        for left_key, etag, version_id, _, _ in found["objects"]:
            left.add((left_key, version_id))
            there = now.get((left_key, version_id))
            if there is None:
                deleted_since += left_key not in keys_now
                if left_key in keys_now and classify(left_key) is not ObjectKind.UNKNOWN:
                    problems.append(f"{left_key} has another version than it had")
            elif there.etag != etag:
                problems.append(f"{left_key} has another content than it had")
            else:
                unchanged += 1
    for there_key, _ in now.keys() - left:
        version = archive_version(there_key)
        if version is not None and version < body["oldest_version"]:
            problems.append(f"{there_key} is of a version that had ended")
    return ReceiptCheck(
        id=body["id"],
        problems=tuple(problems),
        named=tuple(_kept_by(body)),
        unchanged=unchanged,
        deleted_since=deleted_since,
        still_gone=still_gone,
        came_since=sum(classify(k) is not ObjectKind.RECEIPT for k, _ in now.keys() - left),
    )


def _lists_of(
    ctx: Context, body: Mapping[str, Any], step: str, problems: list[str]
) -> Iterator[dict[str, Any]]:
    named = {
        "gone": body["gone"],
        "left": [body["left"]],
        "look": [body["look"]["list"]] if body["look"] else [],
    }[step]
    for each in named:
        try:
            found, digest = _read_list(ctx, each["key"])
        except CorruptTable as error:
            problems.append(f"{each['key']}: {error.message}")
            continue
        if digest != each["sha256"]:
            problems.append(f"{each['key']} is not the list that the receipt names")
        yield found


def _kept_by(body: Mapping[str, Any]) -> Iterator[str]:
    look = body["look"] or {"kept": [], "key_values": {}}
    yield from (f"kept: {kind} {name} ({detail})" for kind, name, detail in look["kept"])
    yield from (f"key-value {name} of {n} files" for name, n in look["key_values"].items())
    if look.get("searched_in_part"):
        yield (
            f"{look['searched_in_part']} files of other writers were searched in {look['columns']} alone"
        )
    yield from (f"unknown object {key}" for key, *_ in body["unknown_objects"]["objects"])
    yield from (
        f"version {version} ({operation}) came after the sweep"
        for version, operation in body["later_deletes"]["versions"]
    )
    for each in body["out_of_reach"]:
        until = each["until_us"]
        yield f"out of reach: {each['what']}" + ("" if until is None else f" until {until}")

"""The receipt of an erasure: what was done, evidence to check it by, and what it does not cover.

Promise: a receipt contains only what was established when it was written, nothing of another erasure, no
value and no digest of what was erased except its keyed one, and stays small however large the table is:
long lists are stored beside it, and it has their SHA-256. `ops.erase.check_receipt` compares a receipt with
the bucket at any later time.

Lists are frames of kind `erasure_list` at `evidence/<version>-<step>-<id>.json`. They are written before
the step they are about, so a crash loses none, and serve all erasures that took the step together, without
naming them (`is_about`):

    look    what the last check opened, and what it found of these erasures while they were still known
    waive   landed objects that an operator has decided not to wait for
    gone    the object versions that a sweep then deleted
    left    what existed when the receipt was written
    pass    the digests of the receipts that were written together, signed (`plan.receipt_chain`)
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from numbers import Real
from typing import Any

from inlay.errors import CorruptTable, InvalidRequest
from inlay.format.codec import MAX_FRAME_BYTES, decode_frame, encode_frame
from inlay.format.keys import (
    EVIDENCE,
    MEMORY,
    POINTER,
    PUBLISHED_POINTER,
    RECEIPTS,
    VERSION_HINT,
    ObjectKind,
    classify,
    receipt_key,
)
from inlay.format.shape import COUNT, TIME, Map, Row, fits
from inlay.format.snapshot import Erasure, Snapshot
from inlay.ops.context import Context
from inlay.ops.erase.last_look import (
    WITHHELD,
    Findings,
    LastCheck,
    SearchedFile,
    how_known,
    shown_name,
)
from inlay.ops.erase.signing import Signer, envelope_of
from inlay.ops.maintain.expire import DAY_US
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.metadata.memory import has_memory
from inlay.plan.metadata.state import LedgerSalt
from inlay.plan.receipt_chain import Chain, Pass, digest_of, statement_of
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import Head, ObjectVersion

RECEIPT_KIND = "erasure"
LIST_KIND = "erasure_list"
# How long anything outside of the table may be said to last.
MAX_RETENTION_DAYS = 1_000_000
# Entries of each kind in the receipt itself; counts are always complete, and a list has all entries.
MAX_NAMED = 100

# Keys that this library generates, at random or by counting: they name nothing. Others (an orphan that
# somebody put under `data/`) may.
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(
    rf"data/\d{{4}}/\d\d/\d\d/\d\d/{_UUID}\.parquet|tombstone/\d{{4}}/\d\d/\d\d/\d\d/{_UUID}\.(?:del|puffin)"
    rf"|manifest/segments/{_UUID}|manifest/v\d{{8,}}\.json|_latest_manifest"
)

# Objects that are overwritten regularly: nothing is recorded about their content.
SWAPPED = (POINTER, PUBLISHED_POINTER, VERSION_HINT)

# Receipts stay, the memory of deletes is a table with receipts of its own, and decisions hold no values.
APART = (ObjectKind.RECEIPT, ObjectKind.MEMORY, ObjectKind.DECISION)

# What no table can delete; how long each is kept is for the deployment to state.
OUT_OF_REACH = (
    "messages in queues",
    "dead letters",
    "function logs",
    "access logs of the bucket",
    "CloudTrail data events",
    "replicas of the bucket",
    "backups",
    "folders of INLAY_CACHE_DIR on readers' machines",
    "exports and originals of adopted files",
    "logs, manifests and delete files of adopted tables",
    "originals ingested from outside the landing zone",
)
# What a service keeps at most, whatever the deployment says (Amazon SQS, quotas of messages).
MOST_DAYS: Mapping[str, float] = {"messages in queues": 14, "dead letters": 14}


# What is read of receipts and lists, of this library's and of earlier ones: whoever may write to the bucket
# may have written them.
_LIST_REF = {"key": str, "sha256": str}
_RECEIPT = {
    "id": str,
    "table": str,
    "number?": COUNT,
    "predicate_hmac_sha256?": (str, None),
    "predicate_key?": (str, None),
    "opened_version": COUNT,
    "opened_us": TIME,
    "ended_version": COUNT,
    "ended_us": TIME,
    "oldest_version": COUNT,
    "rewritten_objects": COUNT,
    "removed_rows": COUNT,
    "deleted_objects": COUNT,
}
_RECEIPT_WITH_LISTS = {
    **_RECEIPT,
    "gone": [_LIST_REF],
    "left": _LIST_REF,
    "unknown_objects": {"objects": [Row.of(str, open=True)]},
    "later_deletes": {"versions": [Row.of(COUNT, str)]},
    "out_of_reach": [{"what": str, "until_us": (TIME, None)}],
    "landing_older_objects?": (COUNT, None),
    "older_receipts?": COUNT,
    "came_after_look?": ({"count": COUNT}, None),
    "look": (
        {
            "list": _LIST_REF,
            "looked_us": TIME,
            "kept": [Row.of(str, str, str)],
            "key_values": Map(COUNT),
            "columns?": ([str], None),
            "searched_in_part?": (COUNT, None),
            "perhaps?": [Row.of(str, str, COUNT)],
            "rows_with?": ([Row.of(str, COUNT, COUNT)], None),
            "landed?": [Row.of(str, str, str, str)],
            **dict.fromkeys(("files", "judged_by_rows", "judged_by_own_bounds"), COUNT),
            **dict.fromkeys(("newer", "unsearched", "requests", "bytes"), COUNT),
        },
        None,
    ),
}
_LIST = {"step": str, "version": COUNT, "erasures": ([str], {"salt": str, "tags": [str]})}
_LISTS: Mapping[str, Mapping[str, Any]] = {
    "look": {**_LIST, "looked_us": TIME, "originals?": [Row.of(str, COUNT)]},
    "gone": {**_LIST, "objects": [Row.of(str, str)]},
    "left": {**_LIST, "objects": [Row.of(str, str, str, COUNT, str)]},
    "pass": {**_LIST, "statement": str, "receipts": [str], "envelope": (dict, None)},
}


class List(Record):
    """A list as a receipt refers to it: its key, the SHA-256 of its bytes, its number of entries."""

    key: str
    sha256: str
    entries: int

    @property
    def as_json(self) -> dict[str, object]:
        return {"key": self.key, "sha256": self.sha256, "entries": self.entries}


def receipts_since(ctx: Context, since_us: int) -> Iterator[str]:
    """The keys, under the table's root, of the receipts that were written after a time: one listing."""
    for info in ctx.store.list(ctx.key(RECEIPTS)):
        if info.modified_us > since_us and info.key.endswith(".json"):
            yield ctx.relative(info.key)


def is_ours(key: str) -> bool:
    """Whether a key, relative to the table root, was generated by this library."""
    return _OURS.fullmatch(key) is not None


def _tag(salt: str, erasure_id: str) -> str:
    return sha256(f"{salt} {erasure_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_about(body: Mapping[str, Any], erasure_id: str) -> bool:
    """Whether a list serves an erasure. It has tags in place of ids, which are salted: whoever is handed
    the list for one erasure does not learn whose others took the step (but can test an id that they know).
    Libraries before receipts had numbers wrote the ids."""
    about = body["erasures"]
    if isinstance(about, list):
        return erasure_id in about
    return _tag(about["salt"], erasure_id) in about["tags"]


def _row_of(file: SearchedFile) -> list[Any]:
    """The key of a file that is not the table's own may be data (`mail=…/`)."""
    entry = file.live.entry
    key = WITHHELD if entry.adopted else entry.key
    return [key, entry.newest_rows, entry.sequence or 0, entry.is_foreign, file.failure is None]


def _how_known(row: Sequence[Any], opened_version: int) -> tuple[str, bool]:
    """(how the file is known to hold no row, whether it could be searched), of a row of a look; libraries
    before receipts had numbers wrote just that."""
    if isinstance(row[1], str):
        return row[1], row[2]
    return how_known(row[1], row[2], row[3], opened_version), row[4]


def waived_content(version: ObjectVersion) -> tuple[str, str, int]:
    """By what a waiver knows a content: the key of a landed object may be a name, and receipts stay."""
    return version.version_id, version.etag, version.size


class Lists(Mutable):
    """The lists of a table. `written` are those of this run, as they are stored, by key: it need not read
    them again."""

    ctx: Context
    written: dict[str, bytes] = field(default_factory=dict)

    def write(
        self,
        version: int,
        step: str,
        erasures: Iterable[str],
        body: Mapping[str, Any],
        entries: int,
    ) -> List:
        salt = self.ctx.new_id()
        key = f"{EVIDENCE}{version:08d}-{step}-{self.ctx.new_id()}.json"
        tags = sorted(_tag(salt, name) for name in erasures)
        about = {"step": step, "version": version, "erasures": {"salt": salt, "tags": tags}}
        data = encode_frame(LIST_KIND, {**about, **body})
        self.ctx.write_once(key, data)
        self.written[key] = data
        return List(key, sha256(data).hexdigest(), entries)

    def write_looks(self, look: LastCheck, findings: Mapping[str, Findings]) -> None:
        """A list for all erasures of which the same was found: most often, one."""
        alike: dict[Findings, list[str]] = defaultdict(list)
        for name, own in findings.items():
            alike[own].append(name)
        files = sorted(look.files.values(), key=lambda f: f.live.entry.key)
        shared = {
            "looked_us": look.table.date_us,
            "files": [_row_of(f) for f in files],
            "key_values": dict(sorted(look.key_values.items())),
            "foreign": sum(f.live.entry.is_foreign for f in files),
            "searched_in_part": look.searched_in_part,
            "originals": [list(row) for row in look.originals.items()],
            "originals_since": look.table.snapshot.oldest_version,
            "requests": look.requests,
            "bytes": look.bytes,
        }
        for own, names in alike.items():
            body = {
                **shared,
                "columns": own.columns,
                "open_columns": own.open_columns,
                "kept": [k.as_json for k in own.kept],
                "perhaps": own.perhaps,
                "rows_with": own.rows_with,
                "landed": [
                    [shown_name(o.version.key, look.texts), o.kind.value, o.said, o.where]
                    for o in own.landed
                    if o.said != "nothing"
                ],
                "landed_searched": dict(sorted(Counter(o.kind.value for o in own.landed).items())),
            }
            self.write(look.table.snapshot.version, "look", names, body, len(files))

    def write_waiver(
        self,
        version: int,
        erasures: Sequence[str],
        waived: Sequence[tuple[str, ObjectVersion]],
        reason: str,
    ) -> None:
        """Each object under the name that a receipt may have of it."""
        body = {"objects": [[name, *waived_content(v)] for name, v in waived], "reason": reason}
        self.write(version, "waive", erasures, body, len(waived))

    def waivers(self, erasures: Sequence[Erasure]) -> dict[str, frozenset[tuple[str, str, int]]]:
        """By erasure: the contents of landed objects that it does not wait for."""
        waived: dict[str, frozenset[tuple[str, str, int]]] = {}
        for _, body in self.since(min(e.opened_version for e in erasures)):
            if body["step"] == "waive":
                contents = frozenset((row[1], row[2], row[3]) for row in body["objects"])
                for erasure in erasures:
                    if is_about(body, erasure.id):
                        waived[erasure.id] = waived.get(erasure.id, frozenset()) | contents
        return waived

    def write_gone(
        self,
        version: int,
        erasures: Iterable[str],
        versions: Iterable[ObjectVersion],
        uploads: int,
    ) -> None:
        """What is about to be deleted: keys of this library, with version ids; the number of others."""
        named = [(self.ctx.relative(v.key), v.version_id) for v in versions]
        ours = sorted([key, version_id] for key, version_id in named if is_ours(key))
        body = {"objects": ours, "others": len(named) - len(ours), "uploads": uploads}
        self.write(version, "gone", erasures, body, len(named))

    def write_left(
        self, version: int, erasures: Iterable[str], versions: Iterable[ObjectVersion]
    ) -> List:
        """What exists: [key, ETag, version id, bytes, kind], without objects that are swapped."""
        named = ((self.ctx.relative(v.key), v) for v in versions)
        rows = [
            [key, v.etag, v.version_id, v.size, classify(key).value]
            for key, v in named
            if classify(key) not in APART and key not in SWAPPED
        ]
        return self.write(version, "left", erasures, {"objects": sorted(rows)}, len(rows))

    def since(
        self, version: int, list_keys: Iterable[str] | None = None
    ) -> list[tuple[List, dict[str, Any]]]:
        """Those written on `version` or later, oldest first. One GET for each that this run has not
        written, and a listing, unless the caller has just made one of the whole table: `list_keys`."""
        ctx, after = self.ctx, f"{EVIDENCE}{max(version - 1, 0):08d}~"
        if list_keys is None:
            listed = ctx.store.list(ctx.key(EVIDENCE), start_after=ctx.key(after))
            list_keys = (ctx.relative(info.key) for info in listed)
        names = sorted(k for k in list_keys if k.startswith(EVIDENCE) and k > after)
        # What else somebody put there is an unknown object.
        keys = [key for key in names if classify(key) is ObjectKind.RECEIPT]

        def load(key: str) -> tuple[List, dict[str, Any]]:
            own = self.written.get(key)
            body, digest = read_list(ctx, key) if own is None else _decoded_list(ctx, key, own)
            listed = len(body.get("files", body.get("objects", body.get("receipts", ()))))
            return List(key, digest, listed + body.get("others", 0)), body

        return list(ctx.map(load, keys))


def read_list(ctx: Context, key: str) -> tuple[dict[str, Any], str]:
    answer = ctx.get(key)
    if answer is None:
        raise CorruptTable("a list that a receipt names is gone", table=ctx.uri, key=key)
    return _decoded_list(ctx, key, answer.body)


def _decoded_list(ctx: Context, key: str, data: bytes) -> tuple[dict[str, Any], str]:
    body = decode_frame(LIST_KIND, data, key=key)
    step = body.get("step")
    if not fits(body, _LISTS.get(step, _LIST) if isinstance(step, str) else _LIST):
        raise CorruptTable(f"{key} is not a list that an erasure wrote", table=ctx.uri, key=key)
    return body, sha256(data).hexdigest()


class Facts(Record, kw_only=True):
    """What is the same for all erasures that end together: `left` is everything under the table's prefix
    after the last deletion, `later` is (version, operation) of deletes committed after the step to `sweep`,
    `landing` the number of objects older than the erasures that are left in the landing zone (None: not
    checked), `ending` how many erasures end together."""

    versions: Sequence[ObjectVersion]
    left: List
    lists: Sequence[tuple[List, dict[str, Any]]]
    later: Sequence[tuple[int, str]]
    pending: Sequence[str]
    landing: int | None
    retention_days: Mapping[str, float]
    deleted: int
    ending: int


def receipt_of(
    ctx: Context, loaded: LoadedTable, erasure: Erasure, facts: Facts, chain: Chain
) -> dict[str, Any]:
    """The body of the next receipt of the chain."""
    snapshot: Snapshot = loaded.snapshot
    mine = [(evidence, body) for evidence, body in facts.lists if is_about(body, erasure.id)]
    looks = [(evidence, body) for evidence, body in mine if body["step"] == "look"]
    salt = LedgerSalt.of(snapshot.properties)
    # An erasure that a library without key ids took to `purge` has the digest alone.
    made_with, _, digest = (erasure.digest or "").rpartition(":")
    objects = [(ctx.relative(v.key), v) for v in facts.versions]
    unknown = [[k, v.etag, v.version_id] for k, v in objects if classify(k) is ObjectKind.UNKNOWN]
    receipts = {k for k, v in objects if classify(k) is ObjectKind.RECEIPT and not v.marker}
    body: dict[str, Any] = {
        **chain.next_link,
        "table": snapshot.table_id,
        "id": erasure.id,
        "predicate_hmac_sha256": digest or None,
        "predicate_key": made_with or None,
        "opened_version": erasure.opened_version,
        "opened_us": erasure.opened_us,
        "swept_us": erasure.swept_us,
        "ended_version": snapshot.version,
        "ended_us": loaded.date_us,
        "rewritten_objects": erasure.objects,
        "removed_rows": erasure.rows,
        "deleted_objects": erasure.deleted + facts.deleted,
        "oldest_version": snapshot.oldest_version,
        "gone": [evidence.as_json for evidence, body in mine if body["step"] == "gone"],
        "waived": [
            {**evidence.as_json, "reason": body["reason"]}
            for evidence, body in mine
            if body["step"] == "waive"
        ],
        "left": facts.left.as_json,
        "unknown_objects": {"count": len(unknown), "objects": unknown[:MAX_NAMED]},
        "landing_older_objects": facts.landing,
        "later_deletes": {
            "count": len(facts.later),
            "versions": [list(version) for version in facts.later[:MAX_NAMED]],
            "pending": list(facts.pending[:MAX_NAMED]),
        },
        "older_receipts": len(receipts - {evidence.key for evidence, _ in mine}),
        "other_erasures": len(snapshot.erasures) - facts.ending,
        "ledger": {
            "salted_since": None if salt is None else salt.since,
            "unsalted_before": None if salt is None else salt.plain_before,
            "unsalted_until_us": None
            if salt is None or not salt.plain_before
            else loaded.date_us + snapshot.settings.number("ledger.days") * DAY_US,
        },
        "out_of_reach": [
            {"what": name, "until_us": _held_until(name, loaded.date_us, facts.retention_days)}
            for name in OUT_OF_REACH
        ],
    }
    if has_memory(snapshot):
        body["remembered_deletes"] = _remembered(ctx, loaded, erasure)
    body["look"] = None if not looks else _look_of(*looks[-1], erasure.opened_version)
    body["came_after_look"] = _came_after(ctx, facts.versions, looks[-1][1] if looks else None)
    return dict(sorted(body.items()))


def _remembered(ctx: Context, loaded: LoadedTable, erasure: Erasure) -> dict[str, Any]:
    """What change streams remember of deletes: keys and orders, in a table of its own. Those of the rows
    that were erased are gone, by the receipt there. Those of rows that were deleted before, which a
    condition on other columns than the key could not find, and of later ones, stay until `until_us`."""
    key = f"{MEMORY}/{receipt_key(erasure.id)}"
    days = loaded.snapshot.settings.number("changes.remember_days")
    return {
        "table": MEMORY,
        "receipt": key if isinstance(ctx.store.head(ctx.key(key)), Head) else None,
        "until_us": loaded.date_us + days * DAY_US,
    }


def _came_after(
    ctx: Context, versions: Iterable[ObjectVersion], look: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Data files under the prefix that the last look did not open: they came with later commits."""
    if look is None:
        return None
    opened = {row[0] for row in look["files"]}
    keys = {ctx.relative(v.key) for v in versions if v.is_latest and not v.marker}
    came = sorted(k for k in keys - opened if classify(k) is ObjectKind.DATA)
    return {"count": len(came), "files": [k if is_ours(k) else WITHHELD for k in came[:MAX_NAMED]]}


def _look_of(made: List, look: Mapping[str, Any], opened_version: int) -> dict[str, Any]:
    rows = [_how_known(row, opened_version) for row in look["files"]]
    how = [known for known, _ in rows]
    listed = {name: look.get(name, []) for name in ("perhaps", "kept", "landed", "originals")}
    return {
        **{name: look.get(name) for name in _OF_A_LOOK},
        **{name: entries[:MAX_NAMED] for name, entries in listed.items()},
        **{f"{name}_count": len(entries) for name, entries in listed.items()},
        "originals_count": sum(n for _, n in listed["originals"]),
        "list": made.as_json,
        "files": len(how),
        "judged_by_rows": how.count("rows"),
        "judged_by_own_bounds": how.count("bounds"),
        "newer": how.count("newer"),
        "unsearched": sum(not is_searched for _, is_searched in rows),
        "statistics_not_believed": look["foreign"],
        "key_values": dict(list(look["key_values"].items())[:MAX_NAMED]),
    }


# What a receipt has of its last look as the list has it.
_OF_A_LOOK = (
    *("version", "looked_us", "columns", "searched_in_part", "open_columns", "rows_with"),
    *("landed_searched", "originals_since", "requests", "bytes"),
)


def _held_until(name: str, ended_us: int, days: Mapping[str, float]) -> int | None:
    """Until when it may hold what existed before the end; None: unknown."""
    known = days.get(name, MOST_DAYS.get(name))
    return None if known is None else ended_us + int(known * DAY_US)


def check_retention(days: Mapping[str, float]) -> Mapping[str, float]:
    """Raises `InvalidRequest` for names that no receipt has, and for what is no number of days: a receipt
    would say until when data lasts, or not be written at all, at the very end."""
    for name, lasts in days.items():
        if name not in OUT_OF_REACH:
            raise InvalidRequest(
                f"a receipt does not cover {name!r}",
                next_step=f"It names: {', '.join(OUT_OF_REACH)}",
            )
        is_number = isinstance(lasts, Real) and not isinstance(lasts, bool)
        if not is_number or not 0 <= lasts < MAX_RETENTION_DAYS:
            raise InvalidRequest(
                f"{name} cannot keep data for {str(lasts)[:50]!r} days",
                next_step="Give a number from 0, below a million",
            )
    return days


def encode_receipt(body: Mapping[str, Any]) -> bytes:
    """Canonical: members in order of their names, no white space; the frame's digest is the last. Never
    compressed: people read it."""
    ordered = json.loads(json.dumps(body, sort_keys=True))
    return encode_frame(RECEIPT_KIND, ordered, plain_bytes=MAX_FRAME_BYTES)


def decode_receipt(data: bytes, *, key: str) -> dict[str, Any]:
    """The members of a receipt, of whatever library. Raises `CorruptTable` where it is none."""
    body = decode_frame(RECEIPT_KIND, data, key=key)
    if not fits(body, _RECEIPT_WITH_LISTS if "left" in body else _RECEIPT):
        raise CorruptTable(f"{key} is not a receipt that an erasure wrote", key=key)
    return body


def write_pass(
    ctx: Context,
    loaded: LoadedTable,
    before: Chain,
    receipts: Mapping[str, bytes],
    signer: Signer | None,
) -> Chain:
    """The chain with these receipts (by erasure, in order), whose pass has been written and signed."""
    statement = statement_of(
        loaded.snapshot.table_id,
        before,
        list(receipts.values()),
        version=loaded.snapshot.version,
        ended_us=loaded.date_us,
    )
    body = {
        "statement": statement.decode("ascii"),
        "receipts": [digest_of(data) for data in receipts.values()],
        "envelope": None if signer is None else envelope_of(statement, signer),
    }
    pass_list = Lists(ctx).write(loaded.snapshot.version, "pass", receipts, body, len(receipts))
    after = reduce(Chain.with_receipt, receipts.values(), before)
    return replace(after, made_by=pass_list.key, statement=digest_of(statement))


def read_pass(ctx: Context, key: str) -> Pass:
    """Raises `CorruptTable` where there is none."""
    body, _ = read_list(ctx, key)
    if body["step"] != "pass":
        raise CorruptTable(f"{key} is not a pass of erasures", table=ctx.uri, key=key)
    return Pass.of(key, body["statement"], body["receipts"], body["envelope"])

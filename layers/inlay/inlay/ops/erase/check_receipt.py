"""The check of a receipt, at any later time and from any machine that may read the bucket.

Promise: `verify_receipt` writes nothing, and trusts the operator in nothing that it can look at. It
compares the receipt with the chain of receipts (`plan.receipt_chain`) and, given the public key, with the
signature on its pass; with the lists that it names; and these with the bucket as it is now. Given the
condition it compares that with the receipt's digest (which needs the HMAC key) and *runs the last look
again*, on the bucket as it is: the rows of every live file of main, branches and tags that the condition
may select, whatever deletes hide, all that the last look of an erasure searches, and the landing zone.

What contradicts the receipt is a problem. What the receipt itself says is left, or what came with later
versions, is no contradiction, and is named.

It costs a GET for each receipt and each pass of the table, one listing, and with a condition what a last
look costs (docs/COST.md, Erasing).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from inlay.errors import CorruptTable, InvalidRequest, NewerFormat
from inlay.format.keys import (
    RECEIPTS,
    ObjectKind,
    archive_version,
    classify,
    receipt_key,
)
from inlay.format.predicate import Predicate
from inlay.format.snapshot import Erasure, Snapshot
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.landing import check_landing
from inlay.ops.erase.last_look import (
    LastCheck,
    findings_of,
    look_for,
    named_by_older_files,
    search_files,
)
from inlay.ops.erase.receipt import APART, SWAPPED, decode_receipt, read_list, read_pass
from inlay.ops.erase.signing import is_signed, signed_by
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.refs import RefContents, each_content
from inlay.parquet.read.reader import Reader
from inlay.parse import format_predicate
from inlay.plan.erasure import PURGE, key_id, landing_prefix, predicate_digest
from inlay.plan.pruning.prune import Evidence
from inlay.plan.receipt_chain import Chain, Pass, against_chain, digest_of
from inlay.plan.scan import plan_scan
from inlay.record import Mutable, Record
from inlay.storage.base import Got, ObjectVersion

if TYPE_CHECKING:
    from inlay.ops.erase.p256 import PublicKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Asked(Record, kw_only=True):
    """What an auditor says was erased. `key` is the HMAC key of the deployment; without it the condition
    can be looked for, but not compared with the receipt's digest, which is over its text: `as_asked`
    is that text where a column has had another name since."""

    predicate: Predicate
    key: bytes | None = None
    as_asked: str | None = None


class ReceiptCheck(Mutable, kw_only=True):
    """The comparison of a receipt with the bucket. `problems` contradict it; `deleted_since` objects that
    existed then have been deleted since, as is normal; `unchanged` are as they were. `named` is what the
    receipt itself lists as kept, unknown or not covered, and what came later: nothing to correct, but to be
    known. `number` is its place in the table's chain (None: from before there was one); `signed` says by
    whom its pass is signed and whether that was checked; `missing` are numbers of receipts that the chain
    has and the bucket lacks; `rows` is how many rows the condition selects now (None: not asked)."""

    id: str
    problems: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    unchanged: int = 0
    deleted_since: int = 0
    still_gone: int = 0
    came_since: int = 0
    number: int | None = None
    signed: str = "no: whoever may write to the bucket may have written it"
    missing: tuple[int, ...] = ()
    rows: int | None = None

    def contradict(self, *problems: str) -> None:
        self.problems += problems

    def name(self, *what: str) -> None:
        self.named += what


def _get(ctx: Context, name: str) -> tuple[str, bytes]:
    """(key, bytes) of a receipt by its erasure's id, else by its key: an id may look like one."""
    if any("\ud800" <= c < "\ue000" for c in name):  # an argument that was not UTF-8
        raise InvalidRequest(f"no erasure has the id {name!r}", table=ctx.uri)
    for key in [receipt_key(name), *([name] if name.startswith(RECEIPTS) else [])]:
        answer = ctx.get(key)
        if answer is not None:
            return key, answer.body
    raise InvalidRequest(
        f"there is no receipt of {name!r}",
        next_step="`inlay erase-status` lists erasures that have not ended yet",
        table=ctx.uri,
    )


def read_receipt(ctx: Context, name: str) -> dict[str, Any]:
    """What a receipt says: unchecked. Raises as `verify_receipt`."""
    key, data = _get(ctx, name)
    return decode_receipt(data, key=key)


def read_receipts(ctx: Context) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What all receipts of the table's prefix say: unchecked; and keys of what is none. A GET each."""
    receipts, unread = [], []
    for key, data in _bodies(ctx):
        try:
            receipts.append(decode_receipt(data, key=key))
        except (CorruptTable, NewerFormat):
            unread.append(key)
    return receipts, tuple(unread)


def verify_receipt(
    ctx: Context, name: str, *, asked: Asked | None = None, public_key: PublicKey | None = None
) -> ReceiptCheck:
    """Compares a receipt with the bucket. `name` is the erasure's id or the receipt's key in the table.

    Raises `InvalidRequest` when there is no such receipt, `CorruptTable` when it is damaged.
    """
    key, data = _get(ctx, name)
    body = decode_receipt(data, key=key)
    # Before the pointer: each receipt that was there is in its chain, or of an erasure that is still open.
    bodies = list(_bodies(ctx))
    loaded = load_pointer(ctx)
    check = ReceiptCheck(id=body["id"])
    if body["table"] != loaded.snapshot.table_id:
        check.contradict("the receipt is of another table")
    elif loaded.snapshot.version < body["ended_version"]:
        check.contradict(
            f"the pointer is at version {loaded.snapshot.version}, and the erasure ended at "
            f"{body['ended_version']}: the pointer was set back"
        )
    if key != receipt_key(body["id"]):
        check.contradict(f"it is the receipt of erasure {body['id']!r}, copied to {key}")
    _against_chain(ctx, check, body, data, bodies, loaded.snapshot, public_key)
    if "left" not in body:
        raise InvalidRequest(
            f"{key} was written by a library without lists: only its own digest could be checked",
            table=ctx.uri,
        )
    _against_bucket(ctx, check, body)
    if asked is not None:
        _against_condition(ctx, check, body, loaded, asked)
    return check


def _against_chain(
    ctx: Context,
    check: ReceiptCheck,
    body: Mapping[str, Any],
    data: bytes,
    bodies: Iterable[tuple[str, bytes]],
    snapshot: Snapshot,
    public_key: PublicKey | None,
) -> None:
    chain = Chain.of(snapshot.properties)
    passes, unread = _passes(ctx, chain)
    by_digest = _by_digest(check, bodies)
    problems, by_number, missing = against_chain(chain, passes, body["table"], by_digest)
    check.contradict(*unread, *problems)
    if not unread:
        check.contradict(*_beside_chain(by_digest, passes, snapshot))
    check.missing = tuple(missing)
    check.contradict(*(f"receipt number {n} of the chain is missing or changed" for n in missing))
    check.number = body.get("number")
    if check.number is None:
        first = passes[-1].said["version"] if passes else None
        if first is not None and body["ended_version"] >= first:
            check.contradict("it has no number, although the table had a chain by then")
        else:
            check.name("the receipt is from before receipts were numbered and signed")
        if public_key is not None:
            check.contradict("it is not signed")
        return
    pass_ = by_number.get(check.number)
    if pass_ is None:
        check.contradict(f"the chain has no receipt number {check.number}")
        return
    if pass_.receipts[check.number - pass_.numbers.start] != digest_of(data):
        check.contradict(
            f"it is not the receipt that {pass_.key} has as number {check.number}: it was changed since"
        )
    keys = ", ".join(signed_by(pass_.envelope))
    if public_key is None:
        if keys:
            check.signed = f"by {keys} as it says, not checked: give the public key"
        return
    # Keys rotate, so another pass may be signed with another one; or not at all, by whoever made it.
    signed = {
        receipt.key: is_signed(receipt.statement, receipt.envelope, public_key)
        for receipt in passes
    }
    if signed.pop(pass_.key):
        check.signed = f"by {public_key.key_id}, checked"
    else:
        check.contradict(f"{pass_.key} is not signed with that key")
    check.name(
        *(
            f"{key} is not signed with that key: which receipts are missing there was not checked"
            for key, by_key in signed.items()
            if not by_key
        )
    )


def _passes(ctx: Context, chain: Chain) -> tuple[list[Pass], list[str]]:
    """From the last back, as far as they can be read; and why the next one cannot. One GET each."""
    passes: list[Pass] = []
    key, last = chain.made_by, chain.count
    while key is not None and last > 0:
        try:
            pass_ = read_pass(ctx, key)
        except (CorruptTable, NewerFormat) as error:
            return passes, [f"{key}, the pass of receipt {last}, cannot be read: {error.message}"]
        passes.append(pass_)
        # Numbers fall, or the walk would not end on a forged chain.
        before = pass_.said["previous_pass"]
        last, key = min(last, pass_.numbers.start) - 1, None if before is None else before["list"]
    return passes, []


def _by_digest(
    check: ReceiptCheck, bodies: Iterable[tuple[str, bytes]]
) -> dict[str, Mapping[str, Any]]:
    """The receipts under their own names, by digest; what is none is named."""
    receipts: dict[str, Mapping[str, Any]] = {}
    for key, data in bodies:
        try:
            body = decode_receipt(data, key=key)
        except (CorruptTable, NewerFormat):
            check.name(f"{key} is no receipt")
            continue
        if key == receipt_key(body["id"]):
            receipts[digest_of(data)] = body
    return receipts


def _beside_chain(
    receipts: Mapping[str, Mapping[str, Any]], passes: Iterable[Pass], snapshot: Snapshot
) -> Iterator[str]:
    """Receipts of the table that its chain has not: the pointer was set back to an earlier one, or somebody
    put them there. That of an open erasure was left by a run that crashed, or is under way."""
    chained = {digest for made in passes for digest in made.receipts}
    open_ = {erasure.id for erasure in snapshot.erasures}
    for digest in receipts.keys() - chained:
        other = receipts[digest]
        is_ours = other["table"] == snapshot.table_id and "number" in other
        if is_ours and other["id"] not in open_:
            yield (
                f"the receipt of erasure {other['id']!r} has number {other['number']}, and the chain does "
                "not have it: the pointer was set back, or the receipt is forged"
            )


def _bodies(ctx: Context) -> Iterator[tuple[str, bytes]]:
    keys = [info.key for info in ctx.store.list(ctx.key(RECEIPTS))]
    for key, answer in zip(keys, ctx.map(ctx.store.get, keys), strict=True):
        if isinstance(answer, Got):
            yield ctx.relative(key), answer.body


def _against_bucket(ctx: Context, check: ReceiptCheck, body: Mapping[str, Any]) -> None:
    problems: list[str] = []
    lists = {step: list(_lists_of(ctx, body, step, problems)) for step in ("gone", "left", "look")}
    listed_now = ctx.store.list_versions(ctx.key(""))
    now = {(ctx.relative(v.key), v.version_id): v for v in listed_now}
    # A key is never written twice, but those swapped: neither what readers get nor, below it or below a
    # delete marker, what whoever asks for older versions gets.
    bodies: dict[str, list[ObjectVersion]] = defaultdict(list)
    for (key, _), version in now.items():
        if not version.marker:
            bodies[key].append(version)
    current = {key for (key, _), v in now.items() if v.is_latest and not v.marker}
    recorded: dict[str, set[str]] = defaultdict(set)
    stated: set[tuple[str, str]] = set()
    unchanged = deleted_since = 0
    others: list[str] = []
    for listed in lists["left"]:
        for left_key, etag, version_id, _, _ in listed["objects"]:
            stated.add((left_key, version_id))
            recorded[left_key].add(etag)
            there = now.get((left_key, version_id))
            if there is None:
                deleted_since += left_key not in current
                if left_key in current and classify(left_key) is not ObjectKind.UNKNOWN:
                    others.append(f"{left_key} has another version than it had")
            elif there.etag != etag:
                others.append(f"{left_key} has another content than it had")
            else:
                unchanged += 1
    for left_key, etags in recorded.items():
        later = [v for v in bodies[left_key] if (left_key, v.version_id) not in stated]
        written_again = any(v.etag not in etags for v in later)
        if written_again and classify(left_key) is not ObjectKind.UNKNOWN:
            others.append(f"{left_key} was written again, with another content")
    if len(others) > 1 and not unchanged:
        others = [
            "no object is the one that was left: a copy of a folder or bucket has ETags and versions of "
            "its own. Check the receipt where it was written, or the copy with the condition (--where)"
        ]
    problems += others
    still_gone = 0
    for listed in lists["gone"]:
        for gone_key, version_id in listed["objects"]:
            again = (gone_key, version_id) in now
            again = again or (bool(bodies[gone_key]) and gone_key not in recorded)
            if again and gone_key not in SWAPPED and classify(gone_key) not in APART:
                problems.append(f"{gone_key} was deleted and exists again")
            else:
                still_gone += 1
    for there_key, _ in now.keys() - stated:
        number = archive_version(there_key)
        if number is not None and number < body["oldest_version"]:
            problems.append(f"{there_key} is of a version that had ended")
    check.contradict(*problems)
    check.name(*_kept_by(body), *_originals(ctx, lists["look"]))
    check.unchanged, check.deleted_since, check.still_gone = unchanged, deleted_since, still_gone
    check.came_since = sum(classify(k) is not ObjectKind.RECEIPT for k, _ in now.keys() - stated)


def _lists_of(
    ctx: Context, body: Mapping[str, Any], step: str, problems: list[str]
) -> Iterator[dict[str, Any]]:
    list_keys = {
        "gone": body["gone"],
        "left": [body["left"]],
        "look": [body["look"]["list"]] if body["look"] else [],
    }[step]
    for named_list in list_keys:
        try:
            content, digest = read_list(ctx, named_list["key"])
        except (CorruptTable, NewerFormat) as error:
            problems.append(f"{named_list['key']}: {error.message}")
            continue
        if digest != named_list["sha256"] or content["step"] != step:
            problems.append(f"{named_list['key']} is not the list that the receipt names")
        else:
            yield content


def _originals(ctx: Context, looks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The originals that a look listed, and whether they exist now."""
    for look in looks:
        counts = dict(look.get("originals", ()))
        now = look_for(ctx, counts)
        for name, n in counts.items():
            if now[name] == "unknown":
                yield f"{n} originals {name} could not be looked for"
        present = sorted(name for name in counts if now[name] == "there")
        yield from (f"original {name} of an adopted file still exists" for name in present)


_SAID = {
    "names": "names what was erased, and stays",
    "perhaps": "may name what was erased",
    "waived": "was not waited for",
}


def _kept_by(body: Mapping[str, Any]) -> Iterator[str]:
    look = body["look"] or {"kept": [], "key_values": {}}
    yield from (f"kept: {kind} {name} ({detail})" for kind, name, detail in look["kept"])
    yield from (f"key-value {name} of {n} files" for name, n in look["key_values"].items())
    yield from (
        f"{f'{kind} {place}'.rstrip()} ({n}) may have what the condition on {look['columns']} selects"
        for kind, place, n in look.get("perhaps", ())
    )
    if look.get("searched_in_part"):
        yield (
            f"{look['searched_in_part']} files of other writers were searched in {look['columns']} alone"
        )
    came = body.get("came_after_look") or {"count": 0}
    if came["count"]:
        yield f"{came['count']} data files came after the last look and were not searched"
    yield from (
        f"landed object {key} ({kind}): {_SAID.get(verdict, verdict)}{f' ({where})' if where else ''}"
        for key, kind, verdict, where in look.get("landed", ())
    )
    if body.get("landing_older_objects"):
        yield f"{body['landing_older_objects']} objects older than the erasure are left in the landing zone"
    yield from (f"unknown object {key}" for key, *_ in body["unknown_objects"]["objects"])
    if body.get("older_receipts"):
        yield f"{body['older_receipts']} receipts and lists of other erasures were not searched"
    yield from (
        f"version {version} ({operation}) came after the sweep"
        for version, operation in body["later_deletes"]["versions"]
    )
    for keeper in body["out_of_reach"]:
        until = keeper["until_us"]
        known = "" if until is None else f" until {_EPOCH + timedelta(microseconds=until):%Y-%m-%d}"
        yield f"out of reach: {keeper['what']}{known}"


def _against_condition(
    ctx: Context, check: ReceiptCheck, body: Mapping[str, Any], loaded: LoadedTable, asked: Asked
) -> None:
    """Compares the digest, and runs the last look on the bucket as it is now."""
    predicate, snapshot = asked.predicate, loaded.snapshot
    digest, made_with = body.get("predicate_hmac_sha256"), body.get("predicate_key")
    if digest is None or made_with is None:
        check.name("the receipt has no digest that a condition can be compared with")
    elif asked.key is None:
        check.name("the condition was not compared with the digest: give the HMAC key")
    elif key_id(asked.key) != made_with:
        check.contradict(f"the digest was made with another key: {made_with}")
    else:
        text = asked.as_asked or format_predicate(predicate, snapshot.schema)
        own = predicate_digest(text, asked.key, table=body["table"], erasure=body["id"])
        if own != f"{made_with}:{digest}":
            check.contradict("the receipt is of another condition")
            check.name("where a column was renamed since, its text is another: give it --as-asked")
    loaded = with_entries(ctx, loaded)
    contents = list(each_content(ctx, loaded))
    ended = body["ended_version"]
    check.rows = 0
    for key, added_by, rows in _rows_now(ctx, contents, predicate):
        check.rows += rows
        fault = f"{rows} rows that the condition selects are in {key}"
        if added_by > ended:
            check.name(f"{fault}, which came with version {added_by}, later")
        else:
            check.contradict(f"{fault}, whose rows are as old as version {added_by}")
    look = LastCheck({body["id"]: predicate}, {body["id"]: body["opened_version"]}, loaded)
    search_files(ctx, look, contents)
    check.contradict(
        *(
            f"{key} names a value of the condition beside its rows"
            for key in named_by_older_files(ctx, look)
        )
    )
    kept = findings_of(ctx, look)[body["id"]].kept
    check.name(*(f"now: {place.kind} {place.name} ({place.detail})" for place in kept))
    prefix = landing_prefix(ctx.root)
    if prefix is not None:
        now = Erasure(
            id=body["id"],
            predicate=predicate,
            text="",
            phase=PURGE,
            opened_version=body["opened_version"],
            opened_us=loaded.date_us,
        )
        zone = check_landing(ctx, loaded, [now], prefix)[body["id"]]
        check.name(*(f"now: {w.what} {w.name}: {w.reason}" for w in zone.waiting))
        check.name(
            *(
                f"now: landed object {o.version.key} ({o.kind.value}): {_SAID[o.said]} ({o.where})"
                for o in zone.others
                if o.said != "nothing"
            )
        )


def _rows_now(
    ctx: Context, contents: RefContents, predicate: Predicate
) -> Iterator[tuple[str, int, int]]:
    """(file, the version that added its newest rows, how many the condition selects) for each file with
    any, as stored: deletes hide none."""
    tasks: dict[str, tuple[Any, Any]] = {}
    for _, content in contents:
        snapshot = content.snapshot
        plan = plan_scan(
            content.state.files(), (), predicate, evidence=Evidence.of_snapshot(snapshot)
        )
        tasks |= {task.file.key: (task, snapshot.schema) for task in plan.tasks}

    def count(file: tuple[Any, Any]) -> int:
        task, schema = file
        # This runs in a task of the executor: waiting for other tasks of it could block for ever.
        read = Reader(ctx.objects, InlineExecutor()).positions([task], schema)
        return sum(len(positions) for _, positions in read)

    for (task, _), rows in zip(tasks.values(), ctx.map(count, tasks.values()), strict=True):
        if rows:
            yield task.file.key, task.file.newest_rows, rows

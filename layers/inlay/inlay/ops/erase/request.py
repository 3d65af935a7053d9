"""Erase: rows become invisible at once, and every byte of them is removed soon after (docs/ERASURE.md).

Promise: from the commit of `open_erasure` no reader sees the rows. Calling `advance_erasures` and
`collect_garbage` often enough completes it, whatever crashed in between and however often a call is
repeated: the snapshot alone defines what remains to be done. At the end no object, object version or upload
under the table's prefix or its landing zone holds a row, a statistic or the predicate, and a receipt states
so.

`advance_erasures` rewrites files and deletes nothing; deletion, and the steps that follow it, are part of
`collect_garbage` (`ops.erase.finish`), which alone has the permission.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from inlay.errors import InvalidRequest, RefNotFound
from inlay.format.keys import RECEIPTS, receipt_key
from inlay.format.predicate import FALSE, Predicate
from inlay.format.snapshot import Erasure, Snapshot
from inlay.notebook import Shown
from inlay.ops.commit.driver import (
    Committed,
    Skipped,
    already_applied,
    commit_planned,
    current_base,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.erase.landing import check_landing
from inlay.ops.erase.last_look import Landing
from inlay.ops.maintain.rewrite import plan_erased, rewrite_erased
from inlay.ops.maintain.rewrite_file import ResourceLimits
from inlay.ops.maintain.units import Budget, Failure, Run, with_entries
from inlay.ops.metadata.load import (
    LoadedTable,
    load_again,
    load_content,
    load_entries,
    load_pointer,
    read_main,
)
from inlay.ops.metadata.memory import has_memory, memory_context
from inlay.ops.refs import each_content
from inlay.ops.task_runner import TaskRunner
from inlay.ops.write.delete import marker_of, stored_bytes
from inlay.parse import format_predicate
from inlay.plan.change import AddMarkers, Change, MoveBoundary, OnlyHolds, OpenErasure, Request
from inlay.plan.erasure import (
    REWRITE,
    Waiting,
    landing_zone,
    legal_holds,
    ref_suffix,
    unclean_files,
)
from inlay.plan.metadata.state import State
from inlay.plan.pruning.literals import any_of
from inlay.plan.pruning.prune import Evidence, lacks_columns_of, may_match
from inlay.plan.refs import ref_view
from inlay.record import Record, replace
from inlay.storage.base import Head


class ErasureStatus(Record, kw_only=True):
    """The state of an erasure, and what it waits for. Time travel to versions before `opened_version` ends
    with it; branches and tags continue, without the rows."""

    id: str
    phase: str
    text: str
    opened_version: int
    opened_us: int
    objects: int
    rows: int
    waiting: tuple[Waiting, ...] = ()


class AdvanceResult(Record, Shown, kw_only=True):
    """`files` were rewritten or dropped, `removed_rows` removed from them (including other deletes' rows).
    `left` files were out of the budget; `erasures` is what each open erasure waits for. `foreign` are
    objects adopted in place that hold erased rows: their owner has to delete them."""

    version: int
    commit_id: str | None = None
    commits: int = 0
    files: int = 0
    removed_rows: int = 0
    input_bytes: int = 0
    written_bytes: int = 0
    left: int = 0
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    foreign: tuple[str, ...] = ()
    erasures: tuple[ErasureStatus, ...] = ()


# The longest name of a file system; keys of S3 are longer.
MAX_RECEIPT_NAME = 255


def open_erasure(
    ctx: Context,
    predicate: Predicate,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Opens the erasure of the rows for which `predicate` is TRUE: one commit.

    Its id is the request's, or a new one. Raises `InvalidRequest` when a legal hold keeps a version that
    may hold such rows, and when there is a receipt of that id.
    """
    erasure_id = request.text if request is not None else ctx.new_id()
    return open_each(ctx, {erasure_id: predicate}, base=base, request=request)


def open_each(
    ctx: Context,
    asked: Mapping[str, Predicate],
    *,
    base: LoadedTable | None = None,
    request: Request | None,
) -> Committed | Skipped:
    """Opens an erasure of each of these conditions under its id, all in one commit: each gets a receipt of
    its own. Raises what `open_erasure` raises, and `InvalidRequest` for more than `MAX_AT_ONCE`; none is
    open then."""
    ctx = replace(ctx, branch=None)
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    _refuse_too_many(ctx, asked)
    _refuse_taken(ctx, loaded.snapshot, list(asked), ended=request is not None)
    opened = commit_planned(ctx, loaded, lambda now: _opening(ctx, now, asked, request))
    if isinstance(opened, Skipped):
        return opened
    return replace(opened, note=_will_end(opened.loaded.snapshot))


def _opening(
    ctx: Context, loaded: LoadedTable, asked: Mapping[str, Predicate], request: Request | None
) -> Change:
    snapshot = loaded.snapshot
    any_predicate = any_of(list(asked.values()))
    _refuse_holds(ctx, snapshot, any_predicate)
    _refuse_dropped_columns(ctx, snapshot, any_predicate)
    # First: an erasure whose table has forgotten the rows must not leave their keys here.
    if has_memory(snapshot):
        if ctx.hold is not None:
            raise InvalidRequest(
                f"{ctx.uri} remembers deletes of change streams, which are erased by a commit of their own",
                next_step="Erase on this table alone, and on the others in the transaction",
                table=ctx.uri,
            )
        from inlay.ops.erase.remembered import remembered_by  # few tables take change streams

        memory_ctx = memory_context(ctx)
        for erasure_id, predicate in asked.items():
            memory = load_pointer(memory_ctx)
            remembered = remembered_by(ctx, loaded, memory, predicate)
            if remembered != FALSE:
                own = Request.of(erasure_id)
                open_erasure(memory_ctx, remembered, base=memory, request=own)
    # Contents of branches and tags get one of the same name when they are read (`plan.refs.ref_view`).
    markers = tuple(
        replace(marker_of(ctx, loaded, predicate), id=erasure_id, erasure=erasure_id)
        for erasure_id, predicate in asked.items()
    )
    erasures = (
        Erasure(
            id=erasure_id,
            predicate=predicate,
            text=format_predicate(predicate, snapshot.schema),
            phase=REWRITE,
            opened_version=0,
            opened_us=0,
        )
        for erasure_id, predicate in asked.items()
    )
    return Change(
        operation="erase",
        request=request,
        # Writers in progress have read the rows before: what they upload can no longer be committed.
        updates=(AddMarkers(markers), MoveBoundary(None), *map(OpenErasure, erasures)),
        requires=(OnlyHolds({name: snapshot.refs[name] for name in legal_holds(snapshot)}),),
        deleted_rows=None,
    )


# Of one request. Each is in the pointer twice, in its marker and in the erasure, until its files have been
# rewritten: every commit until then writes that again, compressed.
MAX_AT_ONCE = 1_000
MAX_BYTES_AT_ONCE = 256 * 1024


def _refuse_too_many(ctx: Context, predicates: Mapping[str, Predicate]) -> None:
    size = sum(map(stored_bytes, predicates.values()))
    if len(predicates) > MAX_AT_ONCE or (len(predicates) > 1 and size > MAX_BYTES_AT_ONCE):
        raise InvalidRequest(
            f"{len(predicates):,} erasures, whose conditions take {size:,} bytes, are more than one "
            f"request may open: {MAX_AT_ONCE:,}, and {MAX_BYTES_AT_ONCE:,} bytes",
            next_step="Send the keys in several requests: those that are open together are erased together",
            table=ctx.uri,
        )


def _refuse_taken(ctx: Context, snapshot: Snapshot, ids: Sequence[str], *, ended: bool) -> None:
    """`ended`: also where an erasure of that id has ended. One request for each id, or a listing."""
    open_ = {erasure.id for erasure in snapshot.erasures}
    for erasure_id in ids:
        if len(receipt_key(erasure_id)) - len(RECEIPTS) > MAX_RECEIPT_NAME:
            raise InvalidRequest(
                f"an erasure's id names its receipt and is too long for that: {erasure_id[:50]!r}…",
                next_step="Use an id of at most 80 letters, or 250 of a to z, digits and `_.-~`",
                table=ctx.uri,
            )
        if erasure_id in open_:
            raise InvalidRequest(
                f"erasure {erasure_id!r} is open already",
                next_step="Use another request id for another erasure",
                table=ctx.uri,
            )
    # Of an erasure that the ledger has forgotten, or of a table that was here before.
    for erasure_id in _with_receipt(ctx, ids) if ended else ():
        raise InvalidRequest(
            f"erasure {erasure_id!r} has ended, and its receipt is there",
            next_step="Use another request id: each erasure has a receipt of its own",
            table=ctx.uri,
        )


def _with_receipt(ctx: Context, ids: Sequence[str]) -> list[str]:
    by_key = {ctx.key(receipt_key(erasure_id)): erasure_id for erasure_id in ids}
    if len(by_key) == 1:
        [key] = by_key
        return [*ids] if isinstance(ctx.store.head(key), Head) else []
    # What many of one request have in common is the beginning of their names.
    first, last = min(by_key), max(by_key)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    listed = ctx.store.list(first[:same])
    return [by_key[info.key] for info in listed if info.key in by_key]


def _will_end(snapshot: Snapshot) -> str:
    """What the erasure ends besides the rows: to be known before it is too late to keep it by a tag."""
    kinds = {
        kind: sorted(name for name, ref in snapshot.refs.items() if ref.kind == kind)
        for kind in ("branch", "tag")
    }
    parts = [
        "once the files are rewritten, "
        f"versions {snapshot.oldest_version} to {snapshot.version - 1} can no longer be read"
    ]
    if kinds["branch"]:
        parts.append(f"branches that can then no longer be merged: {', '.join(kinds['branch'])}")
    if kinds["tag"]:
        parts.append(f"tags that lose the rows, and are kept: {', '.join(kinds['tag'])}")
    return "; ".join(parts)


def _refuse_holds(ctx: Context, snapshot: Snapshot, predicate: Predicate) -> None:
    for name in legal_holds(snapshot):
        ref = snapshot.refs[name]
        held = ref_view(snapshot, load_content(ctx, snapshot, ref))
        state = load_entries(ctx, State(held))
        evidence = Evidence.of_snapshot(held)
        if any(may_match(predicate, evidence.of(f), f.rows) for f in state.files()):
            raise InvalidRequest(
                f"the legal hold {name!r} keeps version {ref.version}, which may hold such rows",
                next_step="Lift the hold first; an erasure and a hold cannot both be obeyed",
                table=ctx.uri,
                version=ref.version,
            )


def _refuse_dropped_columns(ctx: Context, snapshot: Snapshot, predicate: Predicate) -> None:
    """Where a branch dropped a column of the condition, its files may still hold the values, and the branch
    has no way to select the rows by them."""
    for name, ref in sorted(snapshot.refs.items()):
        schema_id = load_content(ctx, snapshot, ref).schema_id
        if lacks_columns_of(predicate, schema_id, snapshot.schemas):
            raise InvalidRequest(
                f"{name!r} has dropped a column that the condition asks for",
                next_step=f"Merge or drop {name!r} first, or select the rows by columns it still has",
                table=ctx.uri,
            )


def advance_erasures(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    deadline_seconds: float | None = None,
    memory_bytes: int | None = None,
    runner: TaskRunner | None = None,
) -> AdvanceResult:
    """Rewrites the files that open erasures still concern, as far as the budget allows: main's, then those
    of every branch and tag, which get heads of their own by it. Rows are counted as stored in the file:
    those hidden by other deletes are removed as well. With a `runner` its processes rewrite the files."""
    ctx = replace(ctx, branch=None)
    main = current_base(ctx, base)
    if not main.snapshot.erasures:
        return AdvanceResult(version=main.snapshot.version)
    if has_memory(main.snapshot):
        advance_erasures(
            memory_context(ctx), deadline_seconds=deadline_seconds, memory_bytes=memory_bytes
        )
    deadline = None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds
    budget = Budget(deadline=deadline, held_bytes=lambda work: work.held_bytes)
    # Another process has another clock.
    limits = ResourceLimits(deadline if runner is None else None, memory_bytes)
    runs: list[Run] = []
    foreign: list[str] = []
    waiting_files = 0
    for content_ctx, loaded in contents_to_clean(ctx, main):
        if any(run.commits for run in runs) and budget.is_over(ctx):
            remaining = with_entries(content_ctx, loaded).state
            waiting_files += len(
                plan_erased(remaining, frozenset(f.key for f in remaining.files()))
            )
            continue
        try:
            before = with_entries(content_ctx, loaded)
            run = rewrite_erased(content_ctx, before, budget, limits, runner)
        except RefNotFound:
            ref = content_ctx.branch
            if ref is None or ref in read_main(ctx).snapshot.refs:
                raise
            continue  # dropped meanwhile: nothing of it is left to clean
        runs.append(run)
        adopted = {f.key for f in before.state.files() if f.adopted}
        foreign += [k for d in run.done if d.unit.erased for k in d.unit.inputs if k in adopted]
    units_done = [d for run in runs for d in run.done]
    failures = tuple(f for run in runs for f in run.failures)
    reasons = {f.key: str(f.error) for f in failures}
    # Main after its own run, unless refs were cleaned since: their heads are in the pointer.
    after = runs[0].loaded if len(runs) == 1 else load_again(ctx, main)
    return AdvanceResult(
        version=max([main.snapshot.version, *(r.loaded.snapshot.version for r in runs)]),
        commit_id=next((r.loaded.snapshot.commit.id for r in reversed(runs) if r.commits), None),
        commits=sum(r.commits for r in runs),
        files=len(units_done),
        removed_rows=sum(d.removed_rows for d in units_done),
        input_bytes=sum(d.read_bytes for d in units_done),
        written_bytes=sum(d.written_bytes for d in units_done),
        left=waiting_files + sum(r.left for r in runs),
        skipped=sum(r.skipped for r in runs),
        failures=failures,
        foreign=tuple(foreign),
        # The process that rewrites need not have access to the landing zone.
        erasures=_status_of(ctx, after, "", reasons),
    )


def contents_to_clean(ctx: Context, main: LoadedTable) -> Iterator[tuple[Context, LoadedTable]]:
    """The contents to be cleaned: `main`, just read, and what each branch and tag shows when its turn
    comes. A legal hold protects a tag; without open erasures there is nothing to clean."""
    if not main.snapshot.erasures:
        return
    yield ctx, main
    for name in sorted(n for n, r in main.snapshot.refs.items() if not r.hold):
        content_ctx = replace(ctx, branch=name)
        try:
            yield content_ctx, load_again(content_ctx, main)
        except RefNotFound:
            continue  # dropped meanwhile


def erase_status(ctx: Context, *, landing: str | None = None) -> tuple[ErasureStatus, ...]:
    """Every open erasure, with what it waits for. `landing` is the landing prefix: by default from the
    table's location, "" not to check it."""
    ctx = replace(ctx, branch=None)
    prefix = landing_zone(ctx.root, landing)
    return _status_of(ctx, load_pointer(ctx), prefix, {})


def _status_of(
    ctx: Context, loaded: LoadedTable, prefix: str | None, failures: Mapping[str, str]
) -> tuple[ErasureStatus, ...]:
    """Of each open erasure: every content and the landing zone are looked at once for all."""
    erasures = loaded.snapshot.erasures
    if not erasures:
        return ()
    loaded = with_entries(ctx, loaded)
    held = legal_holds(loaded.snapshot)
    unclean = [(n, unclean_files(c.state, erasures)) for n, c in each_content(ctx, loaded)]
    rewriting = [e for e in erasures if e.phase == REWRITE]
    landed = check_landing(ctx, loaded, rewriting, prefix) if rewriting and prefix else {}

    def waits_for(erasure: Erasure) -> Iterator[Waiting]:
        is_first, why = False, "a delete committed since has to be applied"
        match erasure.phase:
            case "rewrite":
                is_first, why = True, "it has to be rewritten"
            case "purge":
                reason = "readers of old versions may still be running"
                yield Waiting("time", "collect_garbage", reason)
            case "sweep":
                reason = "writers from before may still be running"
                yield Waiting("time", "collect_garbage", reason)
        for name, files in unclean:
            for key in () if is_first and name in held else files[erasure.id]:
                yield Waiting("file", key, failures.get(key, why + ref_suffix(name)))
        for name in held if is_first else ():
            yield Waiting("hold", name, "a legal hold keeps old versions")
        landing = landed.get(erasure.id, Landing())
        yield from landing.waiting
        for version in (*landing.ingested, *landing.dead):
            yield Waiting("landing", version.key, "collect_garbage has to delete it")
        for upload in landing.uploads:
            yield Waiting("landing", upload.key, "collect_garbage has to abort the upload")

    return tuple(
        ErasureStatus(
            id=erasure.id,
            phase=erasure.phase,
            text=erasure.text,
            opened_version=erasure.opened_version,
            opened_us=erasure.opened_us,
            objects=erasure.objects,
            rows=erasure.rows,
            waiting=tuple(waits_for(erasure)),
        )
        for erasure in erasures
    )

"""`t.maintain`: what keeps a table fast and small, and what checks and mends it. No row changes, but by
`delete_row_groups`.

Each runs on the newest version of what is open, and the table moves on to what it made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from inlay import arguments
from inlay.format.snapshot import make_note
from inlay.plan.change import Request
from inlay.plan.erasure import LIFE_SECONDS
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS
from inlay.plan.verify import MAX_VERSIONS
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.format.predicate import Predicate
    from inlay.ops import collect_garbage as gc_op
    from inlay.ops.commit.driver import WriteResult
    from inlay.ops.context import Context
    from inlay.ops.erase.copies import LockedCopies
    from inlay.ops.erase.signing import Signer
    from inlay.ops.hand_over import HandOverResult, TakeBackResult
    from inlay.ops.maintain import compact as compact_op
    from inlay.ops.maintain import expire as expire_op
    from inlay.ops.maintain import rewrite as rewrite_op
    from inlay.ops.metadata.load import LoadedTable
    from inlay.ops.publish.settle import Settled
    from inlay.ops.verify import repair as repair_op
    from inlay.ops.verify import table as verify_op
    from inlay.plan.surgery import Strategy
    from inlay.table import Table

R = TypeVar("R")
# What a rewrite counts of the files that open erasures concern, as of its own.
_COUNTED = ("commits", "files", "removed_rows", "input_bytes", "written_bytes", "left", "skipped")


class HasVersion(Protocol):
    """What maintenance returns: with the version of the table after it."""

    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=HasVersion)


@arguments.all_checked
class Maintain:
    """Compaction, rewriting, expiry, garbage, checks and mending of one table: `t.maintain`."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def compact(
        self,
        *,
        target_bytes: int | None = None,
        small_bytes: int | None = None,
        max_bytes: int | None = None,
        deadline_seconds: float | None = None,
        memory_bytes: int | None = None,
        dry_run: bool = False,
    ) -> compact_op.CompactResult:
        """Merge files smaller than `small_bytes` into files of about `target_bytes` (by default the
        properties `compact.small_file_bytes` and `write.target_file_bytes`), cluster rows as the
        property `compact.strategy` says, apply deletes, and merge metadata.

        Work that would read more than `max_bytes`, end after `deadline_seconds` or need more than
        `memory_bytes` is left, and counted in the result. `dry_run` plans and writes nothing.
        """
        from inlay.ops.maintain import compact as compact_op

        return self._maintain(
            lambda ctx, base: compact_op.compact(
                ctx,
                base=base,
                target_bytes=target_bytes,
                small_bytes=small_bytes,
                max_bytes=max_bytes,
                deadline_seconds=deadline_seconds,
                memory_bytes=memory_bytes,
                dry_run=dry_run,
            )
        )

    def rewrite(
        self,
        *,
        where: str | Predicate | None = None,
        strategy: Strategy = "auto",
        max_bytes: int | None = None,
        deadline_seconds: float | None = None,
        memory_bytes: int | None = None,
        dry_run: bool = False,
    ) -> rewrite_op.RewriteResult:
        """Remove deleted rows from the files that hold them: from all files, or from those that may hold
        a row for which `where` is TRUE.

        `strategy` is "surgery" (only row groups with deleted rows are rewritten), "rewrite" (the whole
        file) or "auto" (the cheaper one for each file). Work that would read more than `max_bytes`, end
        after `deadline_seconds` or need more than `memory_bytes` is left, and counted in the result.
        `dry_run` plans and writes nothing. Raises `InvalidRequest`, `ConcurrentChange`.

        Open erasures are taken on first, whatever `max_bytes` is: their rows go from every file of main and
        of all branches and tags. The result counts these files, too.
        """
        from inlay.ops.maintain import rewrite as rewrite_op

        predicate = None if where is None else self._table._condition(where).predicate

        def run(ctx: Context, base: LoadedTable) -> rewrite_op.RewriteResult:
            if not base.snapshot.erasures or dry_run:
                return rewritten(ctx, base)
            from inlay.ops.erase.request import advance_erasures

            erased = advance_erasures(
                ctx, deadline_seconds=deadline_seconds, memory_bytes=memory_bytes
            )
            done = rewritten(ctx, None)
            return replace(
                done,
                commit_id=done.commit_id or erased.commit_id,
                failures=(*erased.failures, *done.failures),
                **{name: getattr(erased, name) + getattr(done, name) for name in _COUNTED},
            )

        def rewritten(ctx: Context, base: LoadedTable | None) -> rewrite_op.RewriteResult:
            return rewrite_op.rewrite(
                ctx,
                base=base,
                where=predicate,
                strategy=strategy,
                max_bytes=max_bytes,
                deadline_seconds=deadline_seconds,
                memory_bytes=memory_bytes,
                dry_run=dry_run,
            )

        return self._maintain(run)

    def settle(self) -> Settled:
        """Make of every delete at most one deletion vector for each file: scans then evaluate no predicate,
        and other engines can share the vectors. Rows stay as they are."""
        from inlay.ops.publish.settle import settle

        return self._maintain(settle)

    def delete_row_groups(
        self,
        file: str,
        ordinals: Sequence[int],
        *,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Delete whole row groups of one data file (`t.inspect.files()` names them)."""
        from inlay.ops.write.delete import delete_row_groups

        groups = arguments.ordinals(ordinals)
        with self._table._writing("delete", make_note(message, metadata)) as write:
            request = Request.named(request_id, f"{file}:{list(groups)}")
            write.outcome = delete_row_groups(
                write.ctx, file, groups, base=self._table._loaded, request=request
            )
        return write.result

    def expire(
        self,
        *,
        days: float | None = None,
        min_versions: int | None = None,
        dry_run: bool = False,
    ) -> expire_op.ExpireResult:
        """End time travel to versions superseded more than `days` ago, keeping the newest
        `min_versions` (by default the properties `history.days` and `history.min_versions`) and every
        version a tag or branch holds. `collect_garbage` then deletes their objects."""
        from inlay.ops.maintain import expire as expire_op

        return self._maintain_all(
            lambda ctx, base: expire_op.expire(
                ctx, base=base, days=days, min_versions=min_versions, dry_run=dry_run
            )
        )

    def collect_garbage(
        self,
        *,
        grace: timedelta | None = None,
        clock_margin_seconds: float = CLOCK_MARGIN_SECONDS,
        life_seconds: float = LIFE_SECONDS,
        hmac_key: bytes | None = None,
        signer: Signer | None = None,
        copies: LockedCopies | None = None,
        landing: str | None = None,
        retention_days: Mapping[str, float] | None = None,
        dry_run: bool = False,
    ) -> gc_op.CollectResult:
        """Delete objects that no version, tag or branch needs and that have not been needed for `grace`
        (by default the property `gc.grace_days`); finish open erasures as far as possible.

        `grace` must be longer than the longest read and the longest upload. `clock_margin_seconds` is
        how far clocks of the store may differ: younger objects are kept whatever the grace.
        For erasures, `life_seconds` is the longest one read or write may take, `hmac_key` gives
        receipts a digest of what was asked, `signer` signs them (`inlay.ops.erase.p256.KeyFile`),
        `copies` puts copies under S3 Object Lock elsewhere (`inlay.engine.LockedCopies`),
        `landing` is the prefix that landed objects are cleared from (None: `ingest/<table>/` beside
        `tables/<table>`; "": none), and `retention_days` states in receipts how
        long queues, logs and other places outside the table keep rows. `dry_run` only reports.
        """
        from inlay.ops import collect_garbage as gc_op

        seconds = arguments.seconds(grace, "grace")
        return self._maintain_all(
            lambda ctx, base: gc_op.collect_garbage(
                ctx,
                base=base,
                grace_seconds=seconds,
                clock_margin_seconds=clock_margin_seconds,
                life_seconds=life_seconds,
                hmac_key=hmac_key,
                signer=signer,
                copies=copies,
                landing=landing,
                retention_days=retention_days,
                dry_run=dry_run,
            )
        )

    def verify(
        self, *, depth: str = "footers", max_versions: int = MAX_VERSIONS
    ) -> verify_op.Verified:
        """Check the table as it is in the store now, with all its branches. Reads only.

        `depth` is "metadata", "footers" (also footers and marker objects) or "pages" (also every row).
        `max_versions` is how many archived versions are checked, newest first.
        """
        from inlay.ops.verify import table as verify_op

        return verify_op.verify(
            replace(self._table._ctx, branch=None), depth=depth, max_versions=max_versions
        )

    def repair(self, *, dry_run: bool = True) -> repair_op.Repaired:
        """Mend what can be mended safely; a dry run by default. `inlay.repair(uri)` is for a table that
        cannot be opened."""
        from inlay.ops.verify import repair as repair_op

        result = repair_op.repair(replace(self._table._ctx, branch=None), dry_run=dry_run)
        if result.mends and not dry_run:
            self._table._move_on()
        return result

    def waive(self, key: str, *, reason: str, landing: str | None = None) -> tuple[str, ...]:
        """Let open erasures end though the landed object `key`, as it is now, may hold what they erase;
        their receipts list it with the reason. Returns the erasures' ids. Raises `InvalidRequest` when none
        waits for it."""
        from inlay.ops.erase.waive import waive_landed

        return waive_landed(self._table._ctx, key, reason=reason, landing=landing)

    def withdraw(self) -> bool:
        """Take the published table away: other engines cannot read it any more. The property
        `publish.format` becomes none. Returns whether there was one."""
        from inlay.ops.publish.publish import withdraw

        self._table.set_properties(publish__format="none")
        return withdraw(self._table._ctx)

    def hand_over(self) -> HandOverResult:
        """Give the table to another catalog: it is published, and from then on writes, maintenance,
        erasures and collection refuse (`TableHandedOver`), from every handle. Register `metadata` of the
        result there.

        Raises `Unpublishable`, `InvalidRequest` while an erasure is under way, `ConcurrentChange`.
        """
        from inlay.ops.hand_over import hand_over

        return self._maintain_main(hand_over)

    def take_back(self, *, discard: bool = False) -> TakeBackResult:
        """Take a table back that was handed over. What others wrote under its root meanwhile is not in it:
        with `discard` it is given up, and collected. Raises `InvalidRequest`, which names such objects, or
        those that others have deleted."""
        from inlay.ops.hand_over import take_back

        return self._maintain_main(lambda ctx: take_back(ctx, discard=discard))

    def _maintain(self, operation: Callable[[Context, LoadedTable], V]) -> V:
        """Run `operation` on the newest version of what is open, and move on to what it made."""
        self._table._writable()
        self._table.refresh()
        result = operation(self._table._ctx, self._table._loaded)
        if result.version != self._table.version:
            self._table._move_on()
        return result

    def _maintain_all(self, operation: Callable[[Context, LoadedTable | None], V]) -> V:
        """The same for the table with all its branches, whichever is open."""
        if self._table._ctx.branch is None:
            return self._maintain(operation)
        main = replace(self._table._ctx, branch=None)
        return self._maintain(lambda ctx, base: operation(main, None))

    def _maintain_main(self, operation: Callable[[Context], R]) -> R:
        result = operation(self._table._ctx)
        if self._table._at is None:
            self._table._move_on()
        return result

"""One commit over several tables: what users call. Everything here forwards to `inlay.ops.transaction`.

::

    with inlay.transaction(request_id="order-4711") as tx:
        tx.append(orders, rows)
        tx.delete(stock, "sku = 'A-1'")
    tx.versions  # {"s3://…/orders": 12, "s3://…/stock": 80}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.errors import InlayError, InvalidRequest, RequestReused, a_type
from inlay.ops.commit.driver import (
    Committed,
    Skipped,
    WriteResult,
    already_applied,
    current_base,
    let_others_in,
    write_result,
)
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.read.scan import ArrowStream
from inlay.ops.transaction import (
    Hold,
    Part,
    Planned,
    Result,
    check_parts,
    commit_parts,
    load_together,
)
from inlay.plan.change import Request
from inlay.record import Mutable, field, replace, secret
from inlay.storage.wrapped import NO_USAGE, Usage
from inlay.table import Table, connect, open

if TYPE_CHECKING:
    from inlay.ops.local_files import LocalFiles
    from inlay.ops.write.ingest import IngestResult


# Verbs whose rows may come as a stream.
_READ_ONCE = frozenset(("append", "upsert", "overwrite", "apply_changes"))
_READ_AGAIN = (pa.Table, pa.RecordBatch, ArrowStream)
_MANY = "it makes as many commits as it needs"
_NOT_ALL_AT_ONCE = {
    "compact": _MANY,
    "rewrite": _MANY,
    "expire": _MANY,
    "collect_garbage": "it deletes objects, which nothing brings back",
    "publish": "what it shows is read from another pointer",
    "set_partitioning": "what is under way under the old one is refused then",
    "branch": "what is written to it needs it first",
    "fast_forward": "merge does it where main has not changed",
    "drop_ref": "it is gone at once for those who read it",
    "create": "a table that is not there cannot be prepared",
    "adopt": "a table that is not there cannot be prepared",
    "copy_to": "a table that is not there cannot be prepared",
    "drop": "a table that is gone cannot be prepared",
    "repair": "it mends what a transaction has to rest on",
    "hand_over": "another catalog has the table then",
}


class _Entry(Mutable, eq=False):
    """A table of the transaction: the caller's handle, and what the transaction does to it."""

    table: Table
    part: Part
    does: str = "read"
    result: WriteResult | None = None
    returned: Any = None  # by the verb: the result, or what has it
    before: Usage = NO_USAGE


@secret("_entries", "_ended")
class Transaction(Mutable):
    """Changes of several tables, made by `inlay.transaction()`, that are committed together at the end of
    its `with` block: one version of each table, or nothing at all.

    Each verb is that of `Table`, with the table first, and returns what it would: rows are uploaded and
    counted then, and versions are as they will be if nobody commits meanwhile; `results` has them as they
    are. A table takes one of them, and may have been `read` before.
    """

    request_id: str | None = None
    requested_us: int | None = None
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _ended: bool = False

    # -- the verbs ----------------------------------------------------------------------------

    def read(self, table: Table) -> Table:
        """The newest version of a table, which must still be that when the transaction is committed, else
        it raises `ConcurrentChange`: what is written may be computed from it."""
        self._check(table)
        if table._ctx.table_id in self._entries:
            raise InvalidRequest(
                f"{table.uri} takes part already", next_step="Read it first", table=table.uri
            )
        loaded = current_base(table._ctx, table._loaded)
        part = Part(table._ctx, loaded, fixed=True)
        self._entries[part.table_id] = _Entry(table, part)
        return Table(table._ctx, loaded)

    def append(self, table: Table, data: Any, **options: Any) -> WriteResult:
        return self._do(table, "append", data, **options)

    def ingest(
        self, table: Table, uris: Sequence[str | os.PathLike[str]], **options: Any
    ) -> IngestResult:
        """Refused where it takes a commit before it, as for new columns, or of change records."""
        self._do(table, "ingest", uris, **options)
        done: IngestResult = self._entries[table._loaded.pointer.table_id].returned
        return done

    def delete(self, table: Table, where: Any = None, **options: Any) -> WriteResult:
        """With `mode="erase"` the erasure bears the transaction's request id, with a receipt of each table;
        of several keys each has its own, `REQUEST.1`, `REQUEST.2` …."""
        return self._do(table, "delete", where, **options)

    def update(self, table: Table, assignments: Mapping[str, Any], **options: Any) -> WriteResult:
        return self._do(table, "update", assignments, **options)

    def upsert(self, table: Table, data: Any, **options: Any) -> WriteResult:
        return self._do(table, "upsert", data, **options)

    def overwrite(self, table: Table, data: Any, **options: Any) -> WriteResult:
        return self._do(table, "overwrite", data, **options)

    def apply_changes(self, table: Table, data: Any, **options: Any) -> WriteResult:
        return self._do(table, "apply_changes", data, **options)

    def alter(self, table: Table, **options: Any) -> WriteResult:
        return self._do(table, "alter", **options)

    def merge(self, table: Table, branch: str, **options: Any) -> WriteResult:
        """Brings what a branch did into main."""
        return self._do(table, "refs.merge", branch, **options)

    def restore(self, table: Table, **options: Any) -> WriteResult:
        return self._do(table, "refs.restore", **options)

    def tag(self, table: Table, name: str, **options: Any) -> WriteResult:
        """Names the version that the table has before this transaction."""
        return self._do(table, "refs.tag", name, **options)

    def set_properties(self, table: Table, named: Mapping[str, object]) -> WriteResult:
        return self._do(table, "set_properties", named)

    def run(
        self,
        operations: Any,
        *,
        open: Callable[[str], Table] = open,
        files: Callable[[Sequence[str]], LocalFiles] | None = None,
    ) -> list[WriteResult | None]:
        """Operations that are written as data, each as the verb of its name would do it
        (`inlay commit --help`)::

            tx.run([
                {"append": "./orders", "rows": [{"id": 1, "sku": "A-1"}]},
                {"delete": "./carts", "where": "id = ?", "params": [7]},
            ])

        All of them are checked before the first is done. `open` gives the table of a name, `files` local
        files of rows; without it they are refused. Raises `InvalidRequest`, and what the verbs raise.
        """
        from inlay.table.operations import read_operations, run_operation

        return [
            run_operation(self, operation, open, files) for operation in read_operations(operations)
        ]

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_ALL_AT_ONCE:
            raise InvalidRequest(
                f"{name} is not part of a transaction: {_NOT_ALL_AT_ONCE[name]}",
                next_step=f"Call {name} of each table, before or after the transaction",
            )
        raise AttributeError(f"a transaction has no {name!r}")

    # -- what became of it --------------------------------------------------------------------

    @property
    def results(self) -> tuple[WriteResult, ...]:
        """What each verb did, in their order."""
        return tuple(e.result for e in self._entries.values() if e.result is not None)

    @property
    def by_table(self) -> dict[str, WriteResult]:
        """The same by the tables' URIs."""
        return {e.table.uri: e.result for e in self._entries.values() if e.result is not None}

    @property
    def versions(self) -> dict[str, int]:
        """The version that each table has, by its URI."""
        return {e.table.uri: e.part.base.snapshot.version for e in self._entries.values()}

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._commit()
        self._ended = True

    # -- inside -------------------------------------------------------------------------------

    def _check(self, table: Table) -> None:
        if self._ended:
            raise InvalidRequest(
                "this transaction has ended", next_step="Begin another: inlay.transaction()"
            )
        if not isinstance(table, Table):
            raise InvalidRequest(
                f"a table takes part in a transaction, not {a_type(table)}",
                next_step="Open it first: inlay.open(uri)",
            )
        table._writable()
        if table._ctx.branch is not None:
            raise InvalidRequest(
                f"the branch {table.ref!r} of {table.uri} cannot take part in a transaction",
                next_step="Open the table without ref=, or commit to the branch alone",
                table=table.uri,
            )

    def _do(self, table: Table, verb: str, *positional: Any, **options: Any) -> WriteResult:
        self._check(table)
        if "request_id" in options:
            raise InvalidRequest(
                "the transaction has the request id, for all of its tables",
                next_step="inlay.transaction(request_id=…)",
                table=table.uri,
            )
        if verb == "delete" and options.get("mode") == "erase":
            options["request_id"] = self.request_id
        # What can be read once is planned once.
        again = verb not in _READ_ONCE or isinstance(positional[0], _READ_AGAIN)
        does = f"{verb}:{_shape(positional)}:{_shape(options)}"

        def run(shadow: Table, _: Hold) -> Any:
            return attrgetter(verb)(shadow)(*positional, **options)

        done = self.planned(table, run, does=does, again=again)
        result: WriteResult = getattr(done, "write", done)
        return result

    def planned(
        self, table: Table, run: Callable[[Table, Hold], Any], *, does: str, again: bool = True
    ) -> Any:
        """What `run` does to the table that it is given, whose commit the `Hold` that it is given takes for
        the transaction; the result of `run`. For work that is planned elsewhere, as by Spark's executors.
        `does` says what it is, for repeated requests; `again`: it can be run again."""
        self._check(table)
        table_id = table._loaded.pointer.table_id
        entry = self._entries.get(table_id)
        others = [e.part for e in self._entries.values() if e is not entry]
        if entry is not None and entry.result is not None:
            others.append(entry.part)
        ctx, base = table._ctx, entry.part.base if entry else table._loaded
        part = Part(ctx, base, fixed=entry is not None)
        check_parts([*others, part])  # before rows are uploaded
        if not self._entries:
            let_others_in(ctx, base)
        made = _Entry(table, part, does=does, before=ctx.usage)

        def plan(on: LoadedTable) -> Planned | None:
            hold = Hold()
            shadow = Table(replace(ctx, hold=hold), on)
            made.returned = run(shadow, hold)
            returned = getattr(made.returned, "write", made.returned)
            if not isinstance(returned, WriteResult):  # of Spark
                returned = write_result(does, Skipped(shadow._loaded))
            made.result = returned
            made.part.base = shadow._loaded if hold.taken is None else hold.taken.base
            return hold.taken

        try:
            taken = plan(base)
        except InlayError:
            if not self._may_be_applied(part):
                raise
            # What it did is there: a column to be added, an erasure, a branch that is gone.
            taken = None
            made.returned = made.result = write_result(does, Skipped(base))
        if taken is not None:
            part.change = taken.change
        if part.fixed:
            part.base = base
        if again:
            part.replan = plan
        self._entries[table_id] = made
        return made.returned

    def _may_be_applied(self, part: Part) -> bool:
        """Whether the table knows the request's id: the commit then compares the rest of the request."""
        if self.request_id is None:
            return False
        try:
            known = already_applied(part.ctx, part.base, Request.of(self.request_id))[1]
        except RequestReused:
            return True
        return known is not None

    def _commit(self) -> None:
        entries = list(self._entries.values())
        if not entries:
            return
        participants = sorted((e.part.table_id, e.does) for e in entries)
        request = Request.named(self.request_id, f"transaction:{participants}")
        if request is not None:
            request = replace(request, time_us=self.requested_us)
        for entry, done in zip(
            entries, commit_parts([e.part for e in entries], request), strict=True
        ):
            entry.part.base = entry.table._loaded = done.loaded
            if entry.result is not None:
                usage = entry.table._ctx.usage - entry.before
                entry.result = replace(_as_committed(entry.result, done), usage=usage)


def _as_committed(planned: WriteResult, done: Result) -> WriteResult:
    version = done.loaded.snapshot.version
    if isinstance(done, Committed):
        commit_id = done.loaded.snapshot.commit.id
        return replace(planned, version=version, commit_id=commit_id, attempts=done.attempts)
    return replace(
        planned,
        committed=False,
        commit_id=None,
        version=done.version or version,
        applied_before=done.applied_before,
        added_rows=0,
        added_files=0,
        removed_files=0,
        added_markers=0,
        added_bytes=0,
        deleted_rows=0,
    )


def _shape(value: Any) -> str:
    """What makes two requests of one id the same, as far as it is known before rows are read."""
    if isinstance(value, pa.Table | pa.RecordBatch):
        return f"{','.join(value.schema.names)}:{value.num_rows}"
    if isinstance(value, Mapping):
        return f"{sorted((str(k), _shape(v)) for k, v in value.items())}"
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if isinstance(value, Sequence):
        return f"{[_shape(item) for item in value]}"
    return type(value).__name__


def transaction(*, request_id: str | None = None, requested_us: int | None = None) -> Transaction:
    """Several tables in one commit: each gets one version, or none does.

    ::

        with inlay.transaction(request_id="order-4711") as tx:
            tx.append(orders, rows)
            tx.update(stock, {"pieces": "pieces - 1"}, where="sku = 'A-1'")

    The block ends with the commit; if it raises, nothing is committed. Any tables may take part that are in
    one kind of store, in any of its buckets. Each change holds as a commit on its table alone would (a
    snapshot for each table); what is computed from a table read by `tx.read(t)` is serializable. Repeated
    with the same `request_id` it changes nothing; with `requested_us`, when it was made, one that is older
    than what the tables remember is refused (`RequestTooOld`). Raises `ConcurrentChange`,
    `CommitContention`, `OutcomeUnknown` (send it again under its id), and what the operations raise.
    """
    return Transaction(request_id=request_id, requested_us=requested_us)


def snapshot(tables: Sequence[Table | str | os.PathLike[str]]) -> list[Table]:
    """The tables, by handle or URI, as they all were at one moment: of a transaction over several of them
    all is there, or nothing. Raises `CommitContention` where they change faster than they are read."""
    if isinstance(tables, str | os.PathLike) or not tables:
        raise InvalidRequest("snapshot takes a list of tables", next_step="inlay.snapshot([a, b])")
    contexts = [t._ctx if isinstance(t, Table) else connect(t) for t in tables]
    loaded = load_together(contexts)
    return [Table(ctx, table) for ctx, table in zip(contexts, loaded, strict=True)]


__all__ = ["Transaction", "snapshot", "transaction"]

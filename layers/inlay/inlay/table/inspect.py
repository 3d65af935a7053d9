"""`t.inspect`: what a table consists of. Everything here only reads.

What the columns of these tables mean is in docs/INSPECTION.md, and in the metadata of their fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inlay import arguments
from inlay.format.properties import PROPERTIES, is_published
from inlay.ops.inspect.versions import version_records
from inlay.ops.metadata.load import load_ledger
from inlay.parse import Values, parse_predicate
from inlay.plan.metadata.state import State
from inlay.plan.refs import ref_records
from inlay.record import replace
from inlay.table.notebook import show_inspected

if TYPE_CHECKING:
    import pyarrow as pa

    from inlay.format.entry import DataFile, Marker
    from inlay.format.predicate import Predicate
    from inlay.ops.erase.check_receipt import ReceiptCheck
    from inlay.ops.erase.request import ErasureStatus
    from inlay.ops.erase.subject import SubjectReport
    from inlay.ops.inspect.report import Report
    from inlay.ops.publish.status import PublicationStatus
    from inlay.table import Params, Table

# One GET a version: a screenful for a person; a program asks for more.
HISTORY_LIMIT = 100


@arguments.all_checked
class Inspect:
    """The files, versions, deletes and refs of one table, as of when it was read: `t.inspect`."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table
        show_inspected()

    def files(self) -> pa.Table:
        """The data files of this snapshot: sizes, deletes, partition, bounds of columns."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.files_table(self._table._state())

    def partitions(self) -> pa.Table:
        """The partitions of this snapshot that have files."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.partitions_table(self._table._state())

    def tombstones(self) -> pa.Table:
        """The delete markers of this snapshot, and what each still hits."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.tombstones_table(self._table._state())

    def segments(self) -> pa.Table:
        """The metadata segments of this snapshot."""
        from inlay.ops.inspect import tables as inspect_op

        state = self._table._loaded.state if self._table._at is None else State(self._table._at)
        return inspect_op.segments_table(inspect_op.load_tree(self._table._ctx, state))

    def ledger(self) -> pa.Table:
        """The events and requests that are remembered, and the last batch of each stream."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.ledger_table(load_ledger(self._table._ctx, self._table._state()))

    def entries(self) -> tuple[tuple[DataFile, ...], tuple[Marker, ...]]:
        """The live data files and delete markers of this snapshot, as values of the format."""
        state = self._table._state()
        return tuple(state.files()), tuple(state.markers())

    def columns(self) -> pa.Table:
        """The columns of this snapshot and the fields within them: type, default, id, comment."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.columns_table(self._table.snapshot.schema)

    def schemas(self) -> pa.Table:
        """What changed of the columns, and in which version, the oldest first."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.schemas_table(self._table.snapshot.schemas)

    def properties(self) -> dict[str, str | None]:
        """Every property, with its default where none is set."""
        defaults = {name: known.default for name, known in PROPERTIES.items()}
        return {**defaults, **self._table.properties}

    def transaction(self) -> dict[str, Any] | None:
        """The transaction over several tables that this one is prepared for, while nobody has decided it:
        its `id`, when it `began_us`, and its `tables`. Who writes from `deadline_us` on ends it."""
        loaded = self._table._loaded
        if loaded.transaction is None or not loaded.undecided:
            return None
        transaction = loaded.transaction
        tables = [participant.uri for participant in transaction.participants]
        times = {"began_us": transaction.began_us, "deadline_us": transaction.deadline_us}
        return {"id": transaction.id, **times, "tables": tables}

    def refs(self) -> pa.Table:
        """Main, then all tags and branches, as of when this table was read."""
        from inlay.ops.inspect import tables as inspect_op

        return inspect_op.refs_table(self._table._loaded.pointer)

    def history(self, *, limit: int = HISTORY_LIMIT) -> pa.Table:
        """The newest versions that can still be read, newest first; one GET each. What the columns of
        this and the tables below mean is in docs/INSPECTION.md, and in the metadata of their fields."""
        from inlay.ops.inspect import history as history_op

        return history_op.history(self._table._ctx, self._table._loaded.pointer, limit=limit)

    def ref_records(self) -> list[dict[str, Any]]:
        """What `refs` has, as plain values: Arrow is not imported for it."""
        return ref_records(self._table._loaded.pointer)

    def history_records(self, *, limit: int = HISTORY_LIMIT) -> list[dict[str, Any]]:
        """What `history` has, as plain values: Arrow is not imported for it."""
        return version_records(self._table._ctx, self._table._loaded.pointer, limit=limit)

    def snapshots(self) -> pa.Table:
        """Every version that can still be read, newest first, those held by a ref included."""
        from inlay.ops.inspect import history as history_op

        return history_op.snapshots(self._table._ctx, self._table._loaded.pointer)

    def diff(self, since_version: int, to_version: int | None = None) -> pa.Table:
        """What happened after `since_version`, up to and with `to_version` (None: this one), summed up
        by operation; one GET for each version. `changes` has the rows."""
        from inlay.ops.inspect import history as history_op

        since = arguments.whole_number(since_version, "since_version")
        to = self._table.version
        if to_version is not None:
            to = arguments.whole_number(to_version, "to_version")
        return history_op.differences(self._table._ctx, self._table._loaded.pointer, since, to)

    def report(self, where: str | Predicate | None = None) -> Report:
        """What `inlay inspect` shows, with what a query for `where` would read."""
        from inlay.ops.inspect.report import make_report

        if where is None:
            return make_report(self._table._ctx, self._table._loaded.pointer, self._table._state())
        condition = self._table._condition(where)
        return make_report(
            self._table._ctx,
            self._table._loaded.pointer,
            self._table._state(),
            condition.predicate,
            calculated="" if condition.calculated is None else condition.text,
        )

    def publication(self) -> PublicationStatus | None:
        """Which version is published, how far it is behind, and what keeps it there; None for a table that
        is not to be published. One request."""
        if not is_published(self._table._loaded.pointer.properties):
            return None
        from inlay.ops.publish.status import publication_status

        return publication_status(
            replace(self._table._ctx, branch=None), self._table._loaded.pointer
        )

    def erasures(self, *, landing: str | None = None) -> tuple[ErasureStatus, ...]:
        """The erasures that are under way, and what each waits for; `landing` "" does not look at files
        that have landed."""
        from inlay.ops.erase.request import erase_status

        return erase_status(self._table._ctx, landing=landing)

    def receipts(self) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """The receipts of erasures that have ended, and the keys of what is no receipt; one GET each."""
        from inlay.ops.erase.check_receipt import read_receipts

        return read_receipts(self._table._ctx)

    def receipt(self, name: str) -> dict[str, Any]:
        """One of them, by the erasure's id or the receipt's key."""
        from inlay.ops.erase.check_receipt import read_receipt

        return read_receipt(self._table._ctx, name)

    def check_receipt(
        self,
        name: str,
        where: str | None = None,
        *,
        params: Params = None,
        as_asked: str | None = None,
        key: bytes | None = None,
        public_key: bytes | None = None,
    ) -> ReceiptCheck:
        """A receipt held to the bucket. `where`: what was to be erased, compared with the receipt's digest
        (`key`) and looked for again in all that is there; `as_asked`: its text when it was asked, if a
        column was renamed since. `public_key`: a PEM that has to have signed it."""
        from inlay.ops.erase.check_receipt import Asked, verify_receipt
        from inlay.ops.erase.p256 import PublicKey

        asked = None
        if where is not None:
            values = None if params is None else Values(params)
            predicate = parse_predicate(where, self._table.snapshot.schema, values)
            if values is not None:
                values.check_used()
            asked = Asked(predicate=predicate, key=key, as_asked=as_asked)
        signed_with = None if public_key is None else PublicKey(public_key)
        return verify_receipt(self._table._ctx, name, asked=asked, public_key=signed_with)

    def search(self, texts: str | Sequence[str], *, ignore_case: bool = False) -> SubjectReport:
        """Every place that has one of the texts, in rows of any column and beside rows, whatever deletes
        hide: what `inlay subject search` shows. Reads all columns of text once."""
        from inlay.ops.erase.subject import search_subject

        searched = arguments.texts(texts, "texts")
        return search_subject(self._table._ctx, searched, ignore_case=ignore_case)

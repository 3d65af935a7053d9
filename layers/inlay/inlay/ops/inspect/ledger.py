"""The ledger of applied events, requests and streams, as an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from inlay.format.snapshot import LedgerRecord
from inlay.ops.inspect.columns import COUNT, TIME, Column, table_of
from inlay.plan.metadata.state import State, ledger_records
from inlay.plan.metadata.tree import open_tree


@dataclass(frozen=True, slots=True)
class _Applied:
    kind: str
    id: str
    body: str | None = None
    version: int | None = None
    time_us: int | None = None
    batch: int | None = None


LEDGER: tuple[Column[_Applied], ...] = (
    Column(
        "kind",
        pa.string(),
        "event, request, or stream (the last batch of a streaming query)",
        lambda a: a.kind,
    ),
    Column(
        "id",
        pa.string(),
        "digest of its identity, hexadecimal; of a stream its query id",
        lambda a: a.id,
    ),
    Column("body", pa.string(), "digest of a request's content, hexadecimal", lambda a: a.body),
    Column("version", COUNT, "version that applied it", lambda a: a.version),
    Column("time", TIME, "commit time of that version", lambda a: a.time_us),
    Column("batch", COUNT, "last batch of a stream that was committed", lambda a: a.batch),
)


def ledger_table(state: State) -> pa.Table:
    """One row for each event and request that is remembered, oldest first, then the streams. All segments
    of the ledger must be loaded."""
    ledger = state.snapshot.ledger
    records: list[LedgerRecord] = []
    for leaf in open_tree(ledger.records.segments, state.contents.nodes).leaves:
        records += ledger_records(leaf, state.contents.ledger[leaf.id])
    records += ledger.records.inline
    rows = [
        _Applied(
            "event" if r.body is None else "request",
            r.id.hex(),
            None if r.body is None else r.body.hex(),
            r.version,
            r.time_us,
        )
        for r in records
    ]
    rows += [_Applied("stream", query, batch=batch) for query, batch in ledger.streams.items()]
    return table_of(LEDGER, rows)

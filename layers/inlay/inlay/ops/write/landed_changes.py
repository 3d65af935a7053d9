"""Landed files of change records: Parquet, CSV or JSON as a producer writes them, applied to their table.

Promise: the table shows what `ops.write.apply_changes` makes of all records of all files, in whatever order
they land and however often their events come. A file is applied in slices of bounded memory, a commit
each; the last one remembers the event, so that a file that was left half done is applied again from its
start, which changes nothing that was done. How records are read is said by the table: `changes.order`,
`changes.operations` or `changes.delete_when`, `changes.delete_to`. A record with an unknown operation
refuses its slice, and so the file, by name; slices before it stay.

Records of Debezium come as they are (before, after, op, source), in JSON with their schema beside them or
without it; the NULL that follows a delete says nothing more. All rows of a JSON file have the same columns:
one that a row lacks would keep its value, where another's does not. A delete needs its key and order only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import UnsupportedFile
from inlay.format.landing import TextKind
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import Committed, Skipped, WriteResult, write_result
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.write.apply_changes import Applied, ChangeCounts, Rules, apply_changes
from inlay.ops.write.content import Content
from inlay.ops.write.landed_text import LandedText, list_refused, text_format
from inlay.parquet.arrow.change_order import classify, unpacked
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.fits import check_parquet_types
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.data_file import largest_group
from inlay.parquet.read.describe import parse_object_footer, read_tail
from inlay.plan.change import Request
from inlay.record import Record, replace
from inlay.storage.base import Location
from inlay.text.bytes import reading
from inlay.text.connect import RecordShape
from inlay.text.delimited import CsvFile
from inlay.text.json_objects import JsonFile
from inlay.text.refused import Refusals

# Of records in memory: `apply_changes` holds them, and the rows that they replace, several times.
SLICE_BYTES = 32 * 2**20
# Rows that are decoded of a Parquet file at a time.
BATCH_ROWS = 16_384


class AppliedContent(Record):
    outcome: Committed | Skipped
    counts: ChangeCounts
    refused: int = 0
    refused_key: str | None = None


class Records(Record):
    """The records of a file, and the rules that they are applied by; `refused` are known once all were
    read."""

    batches: Iterator[pa.RecordBatch]
    rules: Rules
    refused: Refusals | None = None


class JudgedRows(Record):
    batches: Iterator[pa.RecordBatch]
    refused: Refusals | None


def apply_message(ctx: Context, body: bytes, request: Request) -> WriteResult:
    """Applies the records of a message in JSON once, under `request`."""
    place = Location(ctx.store.scheme, ctx.store.bucket, "the message")
    content = Content(ctx.store, place, "", len(body), body)
    applied = apply_content(ctx, content, "json", load_pointer(ctx), request)
    return write_result("apply_changes", applied.outcome, ctx.usage)


def apply_content(
    ctx: Context,
    content: Content,
    kind: TextKind | None,
    loaded: LoadedTable,
    request: Request,
    *,
    names: Sequence[Request] = (),
    identity: str | None = None,
    landed_us: int | None = None,
) -> AppliedContent:
    """Applies all records of the content once, under `request` and its other `names`. It landed at
    `landed_us`: erasures that were opened later select its rows. What did not land has no `identity`, and
    is refused for any of its records."""
    records = records_of(content, kind, loaded.snapshot, limit=0 if identity is None else None)
    counts, last = ChangeCounts(), loaded

    def apply(
        part: pa.Table,
        rules: Rules,
        request: Request | None = None,
        events: tuple[Request, ...] = (),
    ) -> Applied:
        return apply_changes(
            ctx, part, rules, base=last, request=request, events=events, landed_us=landed_us
        )

    slices = _slices(records.batches)
    held = next(slices, None)
    for part in slices:
        assert held is not None
        applied = apply(held, records.rules)
        counts, last, held = _together(counts, applied.counts), applied.outcome.loaded, part
    key = None
    if identity is not None and kind is not None and records.refused is not None:
        key = list_refused(LandedText(content, kind), identity, records.refused)
    others = tuple(name for name in names if name.id != request.id)
    if held is None:  # without records: remembered all the same
        empty = schema_to_arrow(loaded.snapshot.schema, with_ids=False).empty_table()
        rules = replace(records.rules, operations=None, delete_when=None, delete_to=None)
        applied = apply(empty, rules, request, others)
    else:
        applied = apply(held, records.rules, request, others)
    refused = 0 if records.refused is None else len(records.refused.listed)
    return AppliedContent(applied.outcome, _together(counts, applied.counts), refused, key)


def _together(first: ChangeCounts, second: ChangeCounts) -> ChangeCounts:
    names = ChangeCounts.__struct_fields__
    return ChangeCounts(**{name: getattr(first, name) + getattr(second, name) for name in names})


def _slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    part: list[pa.RecordBatch] = []
    size = 0
    for batch in filter(len, batches):
        part.append(batch)
        size += batch.nbytes
        if size >= SLICE_BYTES:
            yield pa.Table.from_batches(part)
            part, size = [], 0
    if part:
        yield pa.Table.from_batches(part)


def records_of(
    content: Content, kind: TextKind | None, snapshot: Snapshot, *, limit: int | None = None
) -> Records:
    """Raises what makes the file unreadable, or `InvalidRequest` where the table does not say how it is
    read."""
    rules = Rules.of_table(snapshot)
    if kind is None:
        return Records(_parquet(content, snapshot), rules)
    text = LandedText(content, kind)
    shape = RecordShape(rules.operations, frozenset(snapshot.schema.names), snapshot.key_names)
    file = text.file(snapshot, shape, limit=limit)
    if isinstance(file, JsonFile):
        shape.check_even(content.name)
        if rules.operations is not None:  # its records have been made plain
            rules = replace(rules, operations=replace(rules.operations, envelope=None))
    return Records(_texts(text, file, snapshot), rules, file.refusals)


def _texts(
    text: LandedText, file: CsvFile | JsonFile, snapshot: Snapshot
) -> Iterator[pa.RecordBatch]:
    kinds = schema_to_arrow(snapshot.schema, with_ids=False)
    if isinstance(file, CsvFile):  # what only says what a record does is text
        others = [name for name in file.names if snapshot.schema.column(name) is None]
        kinds = pa.schema([*kinds, *(pa.field(name, pa.string()) for name in others)])
    with reading(text.name, text_format(snapshot)):
        yield from file.reader(kinds)


def _parquet(content: Content, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    tail = read_tail(content.store, content.location)
    footer = parse_object_footer(tail.body, size=tail.size).footer
    limit = snapshot.settings.number("ingest.group_bytes")
    if largest_group(footer) > limit:
        raise UnsupportedFile(
            f"a row group takes more than the {limit >> 20:,} MiB of ingest.group_bytes when decoded",
            next_step="Write the file with smaller row groups",
        )
    with reading(content.name, text_format(snapshot)):
        file = pq.ParquetFile(pa.PythonFile(content.opened(), mode="r"))
        check_parquet_types(file.schema)
        yield from file.iter_batches(BATCH_ROWS, use_threads=False)


def judged_rows(content: Content, kind: TextKind | None, snapshot: Snapshot) -> JudgedRows:
    """What an erasure judges of a file that was not applied yet: all records, deletes too, as rows of the
    table, NULL where they say nothing. Reading them raises what the file is refused for."""
    records, schema = records_of(content, kind, snapshot), snapshot.schema
    loose = Schema(
        schema.id,
        tuple(replace(f, nullable=True, default=None) for f in schema.fields),
        schema.version,
    )

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in records.batches:
            table = pa.Table.from_batches([batch])
            operations = records.rules.operations
            if operations is not None:
                table = unpacked(table, operations, schema.names, snapshot.key_names)
                classify(table, operations)
            names = [f for f in loose.fields if f.name in table.column_names]
            present = Schema(schema.id, tuple(names), schema.version)
            batches = table.select([f.name for f in names]).to_batches()
            yield from conformed(batches, present, loose, by_value=True)

    return JudgedRows(rows(), records.refused)

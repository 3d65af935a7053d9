"""Appends of engines to a table with a primary key.

Promise: what an engine adds after it has looked for its keys is committed only where no row with one of
them was added since. An upsert or a MERGE that found no row to change reaches the catalog as an append, and
an append is committed on whatever the table is by then: two of them would add one key twice. As no commit
says how it came about, each append to such a table is held to it; others never conflict.

Nothing is read where the table is what the engine began on, or bounds say that the keys are others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import ConcurrentChange
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, And, Comparison, Literal, Predicate
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_matching
from inlay.ops.write.keyed_rows import Keys
from inlay.ops.write.old_rows import keys_predicate
from inlay.parquet.read.selection import Projection
from inlay.plan.change import Reads
from inlay.plan.pruning.prune import Evidence, combined_stats, may_match
from inlay.plan.scan import ScanPlan, plan_scan

# Rows added meanwhile whose keys are held in memory; if there are more, they are taken for a conflict.
MAX_ROWS = 5_000_000


def without_new_keys(
    ctx: Context, base: LoadedTable, files: Sequence[DataFile], since: int
) -> tuple[Reads, ...]:
    """What the commit of `files`, made by an engine that read version `since`, requires from `base` on.
    Raises `ConcurrentChange`."""
    snapshot = base.snapshot
    if not (snapshot.primary_key and files):
        return ()
    keys = _bounds(snapshot, files)
    if since < snapshot.replaced:
        since = 0  # a restore or a merge brings rows that are older
    if since < snapshot.version and _added_since(ctx, base, files, keys, since):
        raise ConcurrentChange(
            "rows with keys of this commit were added since its base was read",
            table=ctx.uri,
            version=snapshot.version,
        )
    return (Reads(keys, snapshot.version),)


def _bounds(snapshot: Snapshot, files: Sequence[DataFile]) -> Predicate:
    """A condition that holds for every row of the files."""
    evidence = Evidence.of_snapshot(snapshot)
    known = combined_stats((evidence.of(file), file.rows) for file in files)
    parts: list[Predicate] = []
    for field_id in snapshot.primary_key:
        kind, column = snapshot.schema.types[field_id], known.get(field_id)
        if column is None or kind.is_float:  # NaN is a key, and outside of bounds
            continue
        if column.lower is not None:
            parts.append(Comparison(field_id, ">=", Literal(kind, column.lower)))
        if column.upper is not None:
            parts.append(Comparison(field_id, "<=", Literal(kind, column.upper)))
    return And(tuple(parts)) if parts else TRUE


def _added_since(
    ctx: Context, base: LoadedTable, files: Sequence[DataFile], keys: Predicate, since: int
) -> bool:
    """Whether a row with a key of these files was added after version `since`."""
    snapshot, evidence = base.snapshot, Evidence.of_snapshot(base.snapshot)
    state = load_matching(ctx, base.state, keys)
    newer = [
        file
        for file in state.loaded_files()
        if file.newest_rows > since and may_match(keys, evidence.of(file), file.rows)
    ]
    if sum(file.rows for file in newer) > MAX_ROWS:
        return True
    projection = Projection(schema=snapshot.schema, columns=snapshot.primary_key)

    def read(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        return ctx.reader.rows(plan.tasks, projection)

    batches = list(read(plan_scan(newer, state.markers(), keys, evidence=evidence)))
    if not any(batch.num_rows for batch in batches):
        return False
    there = pa.Table.from_batches(batches)
    known = Keys(there.columns)
    same = keys_predicate(there, snapshot.key_names, snapshot.schema)
    return any(
        pc.any(pc.is_valid(known.find(batch.columns)), min_count=0).as_py()
        for batch in read(plan_scan(files, (), same, evidence=evidence))
    )

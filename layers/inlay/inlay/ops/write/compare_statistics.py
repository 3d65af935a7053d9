"""Another writer's statistics are compared with its rows, once, when its file comes.

Promise: whatever way a file of another writer comes into a table (ingested, adopted where it is, with a
table of Iceberg or Delta, or from Spark's writer), `denied_rows` finds a row that the footer's statistics
of a column exclude: scans would then skip it, and upserts and deletes would miss it. The property
`ingest.check_statistics` says which columns are compared (by default those of the key). Reads these
columns, a row group at a time, without another request when the read of the footer fetched the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.predicate import Or
from inlay.format.properties import Properties
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.cache import ObjectCache
from inlay.parquet.read.data_file import FooterOf
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import open_file, read_positions
from inlay.parquet.read.selection import Wanted
from inlay.parquet.read.statistics import group_stats, leaves_of
from inlay.plan.pruning.prune import denied_by
from inlay.plan.scan import FileTask

NEXT_STEP = (
    "Write it again with another writer, or set ingest.check_statistics to none: then upserts and deletes "
    "miss those rows"
)


def compared_columns(snapshot: Snapshot) -> tuple[int, ...]:
    """The columns whose statistics are compared with the rows of a file that comes."""
    match Properties(snapshot.properties).text("ingest.check_statistics"):
        case "none":
            return ()
        case "key":
            return snapshot.primary_key
        case _:  # "all"; what is not known is compared too
            return tuple(snapshot.schema.types)


def denied_rows(
    objects: Objects,
    entry: DataFile,
    recorded: Schema,
    schema: Schema,
    compared: Sequence[int],
    executor: Executor,
    *,
    footer: FooterOf | None = None,
    stated: Mapping[int, ColumnStats] | None = None,
) -> str | None:
    """The names of the compared columns, if a row group has a row that the statistics of one of them
    exclude: the footer's, or those `stated` of the whole file elsewhere, such as by its partition.

    `recorded` is the schema by whose names the file is read, `schema` the table's; `footer` has been read
    already.
    """
    objects = replace(objects, cache=ObjectCache())
    if footer is not None:
        objects.cache.put(entry.key, footer, len(footer.tail))
    task = FileTask(file=entry, schema=recorded, by_rows=True)
    opened = open_file(objects, task, Wanted(schema=schema, columns=()), executor)
    leaves = leaves_of(opened.metadata, opened.columns, schema, compared)
    tasks = []
    for ordinal in range(opened.metadata.num_row_groups):
        rows = opened.metadata.row_group(ordinal).num_rows
        if stated is None:
            stats = group_stats(opened.metadata, ordinal, leaves)
        else:
            # What holds of each row group: NULL everywhere, or nowhere.
            stats = {
                i: replace(stated[i], null_count=rows)
                if stated[i].null_count == entry.rows
                else stated[i]
                for i in leaves
            }
        denied = [
            p for i, found in stats.items() for p in denied_by(i, leaves[i].type, found, rows)
        ]
        if denied:
            tasks.append(replace(task, predicate=Or(tuple(denied)), row_groups=(ordinal,)))
    for _ in read_positions(objects, tasks, schema, executor):
        return ", ".join(sorted(f.name for _, f in schema.walk() if f.id in leaves))
    return None

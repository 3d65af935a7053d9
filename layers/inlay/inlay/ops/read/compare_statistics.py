"""Another writer's statistics are compared with its rows, once for each column that they must be true of.

Promise: `denied_rows` finds a row that the footer's statistics of a column exclude: scans would then skip
it, and upserts and deletes would miss it. `plan.pruning.compared` says which columns of which files are
compared, and when: as files come, and as a table gets another key (`check_key`). Reads these columns, a row
group at a time, without another request when the read of the footer fetched the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from inlay.errors import UntrueStatistics
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.predicate import Or
from inlay.format.schema import Schema
from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context
from inlay.parquet.read.data_file import FooterOf
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.statistics import group_stats, leaves_of
from inlay.plan.pruning.prune import denied_by
from inlay.plan.scan import FileTask
from inlay.record import replace

NEXT_STEP = (
    "Write it again with another writer, or set ingest.check_statistics to none: then upserts and deletes "
    "miss those rows"
)


def check_key(
    ctx: Context,
    files: Sequence[tuple[DataFile, Sequence[int]]],
    schemas: Iterable[Schema],
    schema: Schema,
) -> frozenset[str]:
    """The keys of `files`, whose statistics of these columns leave out no row. Raises `UntrueStatistics`
    naming all others."""
    recorded = {s.id: s for s in schemas}
    untrue: dict[str, str] = {}
    for position, (entry, columns) in enumerate(files):
        names = denied_rows(ctx.reader, entry, recorded[entry.schema_id], schema, columns)
        if names is not None:
            untrue[entry.key] = names
        ctx.progress("statistics", position + 1, len(files))
    if untrue:
        first = next(iter(untrue))
        others = f" and {len(untrue) - 1} more" if len(untrue) > 1 else ""
        error = UntrueStatistics(
            f"the statistics of a file{others} leave out rows that it has (columns checked: "
            f"{untrue[first]}), and upserts and deletes by this key would miss them",
            next_step="An adopted file stays as it is: ingest a copy and remove the file by "
            f"`inlay delete TABLE --where TRUE --file '{first}'`",
            table=ctx.uri,
            key=first,
        )
        error.files, error.ref = tuple(untrue), ctx.branch
        raise error
    return frozenset(entry.key for entry, _ in files)


def denied_rows(
    reader: Reader,
    entry: DataFile,
    recorded: Schema,
    schema: Schema,
    compared: Sequence[int],
    *,
    footer: FooterOf | None = None,
    stated: Mapping[int, ColumnStats] | None = None,
) -> str | None:
    """The names of the compared columns, if a row group has a row that the statistics of one of them
    exclude: the footer's, or those `stated` of the whole file elsewhere, such as by its partition.

    `recorded` is the schema by whose names the file is read, `schema` the table's; `footer` has been read
    already.
    """
    reader = replace(reader, objects=replace(reader.objects, cache=ObjectCache()))
    if footer is not None:
        reader.objects.cache.put(entry.key, footer, len(footer.tail))
    task = FileTask(file=entry, schema=recorded, by_rows=True)
    opened = reader.open(task, Projection(schema=schema, columns=()))
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
            p for i, bounds in stats.items() for p in denied_by(i, leaves[i].type, bounds, rows)
        ]
        if denied:
            tasks.append(replace(task, predicate=Or(tuple(denied)), row_groups=(ordinal,)))
    for _ in reader.positions(tasks, schema):
        return ", ".join(sorted(f.name for _, f in schema.walk() if f.id in leaves))
    return None

"""Spark partitions of a scan: what one task reads.

Promise: every task of the scan is in exactly one partition, whole or split by row groups; a partition
reads about `split_bytes`, counting for each file what opening it costs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from inlay.plan.scan import FileTask, split_task

# What opening a file costs, as bytes read meanwhile: Spark's `spark.sql.files.openCostInBytes`.
OPEN_COST_BYTES = 4 * 1024 * 1024
# A file is split when it is this much over a partition: a sliver is not worth a task.
SPLIT_FROM = 1.25


@dataclass(frozen=True)
class FilePartition(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """The files, or row groups of files, that one Spark task reads."""

    tasks: tuple[FileTask, ...]


def plan_partitions(
    tasks: Sequence[FileTask], *, partition_bytes: int, parallelism: int
) -> list[FilePartition]:
    """Partitions of at most about `partition_bytes`; smaller ones where that keeps `parallelism` tasks
    busy."""
    total = sum(task_bytes(task) + OPEN_COST_BYTES for task in tasks)
    split = min(partition_bytes, max(OPEN_COST_BYTES, total // max(1, parallelism)))
    pieces = (piece for task in tasks for piece in _split(task, split))
    return [FilePartition(group) for group in _packed(pieces, split)]


def task_bytes(task: FileTask) -> int:
    """What of the file a task reads at most, taking its row groups for even."""
    if task.row_groups is None:
        return task.file.size
    return task.file.size * len(task.row_groups) // max(1, task.file.row_groups)


def _split(task: FileTask, split_bytes: int) -> Iterable[FileTask]:
    size = task_bytes(task)
    # A task needs nothing of the entry's statistics any more, and there may be many tasks to send.
    slim = replace(task, file=replace(task.file, stats={}))
    if size < split_bytes * SPLIT_FROM:
        return (slim,)
    return split_task(slim, -(-size // split_bytes))


def _packed(pieces: Iterable[FileTask], split_bytes: int) -> Iterator[tuple[FileTask, ...]]:
    """Neighbours together: they share a range of the sort key, and Spark keeps their order."""
    group: list[FileTask] = []
    size = 0
    for piece in pieces:
        cost = task_bytes(piece) + OPEN_COST_BYTES
        if group and size + cost > split_bytes * SPLIT_FROM:
            yield tuple(group)
            group, size = [], 0
        group.append(piece)
        size += cost
    if group:
        yield tuple(group)

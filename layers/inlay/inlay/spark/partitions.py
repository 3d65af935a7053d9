"""Spark partitions of a scan: the work of each task.

Promise: every task of the scan is in exactly one partition, whole or cut by row groups; partitions are
even, because the slowest task ends the query, and of about `partition_bytes` or less, including the cost of
opening each file. Adjacent files stay together: they share a range of the sort key. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from inlay.engine import FileTask

# The cost of opening a file, in bytes that could be read meanwhile: Spark's
# `spark.sql.files.openCostInBytes`.
OPEN_COST_BYTES = 4 * 1024 * 1024


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
    number = _how_many(total, partition_bytes, max(1, parallelism))
    groups: dict[int, list[FileTask]] = defaultdict(list)
    start = 0
    for task in tasks:
        for place, piece in _laid_out(task, start, total, number):
            groups[place].append(piece)
        start += task_bytes(task) + OPEN_COST_BYTES
    return [FilePartition(tuple(groups[place])) for place in sorted(groups)]


def _how_many(total: int, partition_bytes: int, parallelism: int) -> int:
    """As many as run at once, or a multiple: otherwise the last wave would leave slots idle."""
    count = -(-total // partition_bytes)
    if count >= parallelism:
        return -(-count // parallelism) * parallelism
    # A task that reads less than it costs to open another file is not worth starting.
    return max(count, min(parallelism, total // (2 * OPEN_COST_BYTES)), 1)


def task_bytes(task: FileTask) -> int:
    """The bytes of the file that a task reads at most, assuming even row groups."""
    if task.row_groups is None:
        return task.file.size
    return task.file.size * len(task.row_groups) // max(1, task.file.row_groups)


def _laid_out(
    task: FileTask, start: int, total: int, number: int
) -> Iterator[tuple[int, FileTask]]:
    """The task, cut between row groups where a partition ends, each piece with its partition.

    All files are laid end to end on a line of `total` bytes that is cut into `number` equal parts; a row
    group belongs to the part that contains its middle.
    """
    # A task no longer needs the entry's statistics, and there may be many tasks to send.
    without_stats = replace(task, file=replace(task.file, stats={}))
    ordinals = task.row_groups if task.row_groups is not None else range(task.file.row_groups)
    group_bytes = task_bytes(task) / max(1, len(ordinals))
    pieces: dict[int, list[int]] = defaultdict(list)
    for at, ordinal in enumerate(ordinals):
        middle = start + OPEN_COST_BYTES + (at + 0.5) * group_bytes
        pieces[min(number - 1, int(middle * number / total))].append(ordinal)
    if len(pieces) == 1:
        yield next(iter(pieces)), without_stats
        return
    for place, groups in pieces.items():
        yield place, replace(without_stats, row_groups=tuple(groups))

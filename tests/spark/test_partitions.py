"""Cutting and packing file tasks: nothing lost, nothing twice, and about the size asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.entry import DataFile
from inlay.format.schema import Field, Primitive, Schema
from inlay.plan.scan import FileTask
from inlay.spark.partitions import OPEN_COST_BYTES, plan_partitions, task_bytes

MB = 2**20
SCHEMA = Schema(0, (Field(1, "id", Primitive("int64")),))


def task(number: int, size: int, row_groups: int) -> FileTask:
    file = DataFile(
        key=f"data/{number}.parquet",
        size=size,
        footer_size=100,
        rows=row_groups,
        row_groups=row_groups,
        schema_id=0,
    )
    return FileTask(file=file, schema=SCHEMA)


files = st.lists(st.tuples(st.integers(1, 1000 * MB), st.integers(1, 40)), max_size=60)


@settings(deadline=None)
@given(files, st.integers(MB, 300 * MB), st.integers(1, 64))
def test_every_row_group_is_read_once(
    sizes: list[tuple[int, int]], partition_bytes: int, parallelism: int
) -> None:
    tasks = [task(n, size, groups) for n, (size, groups) in enumerate(sizes)]
    partitions = plan_partitions(tasks, partition_bytes=partition_bytes, parallelism=parallelism)
    read = [
        (piece.file.key, group)
        for partition in partitions
        for piece in partition.tasks
        for group in (
            piece.row_groups if piece.row_groups is not None else range(piece.file.row_groups)
        )
    ]
    assert read == [(t.file.key, group) for t in tasks for group in range(t.file.row_groups)]
    assert all(partition.tasks for partition in partitions)


@settings(deadline=None)
@given(files, st.integers(16 * MB, 300 * MB))
def test_a_partition_is_one_piece_or_within_its_size(
    sizes: list[tuple[int, int]], partition_bytes: int
) -> None:
    tasks = [task(n, size, groups) for n, (size, groups) in enumerate(sizes)]
    largest = max(
        (OPEN_COST_BYTES + t.file.size // t.file.row_groups + 1 for t in tasks), default=0
    )
    for partition in plan_partitions(tasks, partition_bytes=partition_bytes, parallelism=1):
        cost = sum(task_bytes(piece) + OPEN_COST_BYTES for piece in partition.tasks)
        assert len(partition.tasks) == 1 or cost <= partition_bytes + 2 * largest


def test_a_large_file_is_split_by_row_groups() -> None:
    partitions = plan_partitions([task(0, 1000 * MB, 100)], partition_bytes=110 * MB, parallelism=1)
    assert [len(p.tasks[0].row_groups or ()) for p in partitions] == [10] * 10


def test_small_files_share_a_partition() -> None:
    tasks = [task(n, MB, 1) for n in range(100)]
    partitions = plan_partitions(tasks, partition_bytes=125 * MB, parallelism=1)
    assert [len(p.tasks) for p in partitions] == [25] * 4


def test_partitions_are_as_many_as_run_side_by_side_and_even() -> None:
    tasks = [task(n, size * MB, size) for n, size in enumerate((70, 70, 70, 6))]
    partitions = plan_partitions(tasks, partition_bytes=128 * MB, parallelism=2)
    sizes = [sum(task_bytes(piece) for piece in p.tasks) // MB for p in partitions]
    assert len(sizes) == 2
    assert abs(sizes[0] - sizes[1]) <= 8


def test_a_tiny_table_is_not_cut_finer_than_opening_a_file_is_worth() -> None:
    assert len(plan_partitions([task(0, MB, 8)], partition_bytes=MB * 128, parallelism=64)) == 1

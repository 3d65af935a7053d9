"""Clustering metadata parts leaves that packing can part, ends where it cannot, and compaction does it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from inlay.format.entry import ColumnStats, DataFile
from inlay.ops.maintain.compact import cluster_metadata, compact
from inlay.plan.commit import apply as apply_module
from inlay.plan.maintain.leaf_overlap import DEPTH, deepest_overlap

from .tables import Table

LEAF = 8


@pytest.fixture(autouse=True)
def small_leaves() -> Iterator[None]:
    with (
        patch.object(apply_module._Files, "most", LEAF),
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_000),
        patch.object(apply_module, "INLINE_MIN_BYTES", 300),
    ):
        yield


def _filled(table: Table, low: int | None = None, width: int = 9, commits: int = 12) -> None:
    """Each commit fills its own leaves; `low` None: anywhere."""
    for _ in range(commits):
        files = [table.file(low) for _ in range(LEAF)]
        table.append([_wide(f, width) for f in files])


def _wide(file: DataFile, width: int) -> DataFile:
    low = file.stats[1].lower
    assert isinstance(low, int)
    return dataclasses.replace(file, stats={1: ColumnStats(low, low + width, 0)})


def test_leaves_that_overlap_lie_beside_one_another_afterwards() -> None:
    table = Table()
    _filled(table)
    before = {f.key for f in table.load().files()}
    assert deepest_overlap(table.load())[0] > 8
    result = cluster_metadata(table.ctx)
    assert result.steps > 0 and result.depth <= DEPTH
    assert deepest_overlap(table.load())[0] <= DEPTH
    assert {f.key for f in table.load().files()} == before
    assert cluster_metadata(table.ctx).steps == 0


@pytest.mark.parametrize(
    ("low", "width"), [(None, 10**7), (5, 0)], ids=["files overlap", "one key"]
)
def test_it_ends_where_packing_parts_nothing(low: int | None, width: int) -> None:
    table = Table()
    _filled(table, low, width)
    version = table.load().snapshot.version
    assert cluster_metadata(table.ctx).steps == 0
    assert table.load().snapshot.version == version


def test_compaction_puts_metadata_in_order() -> None:
    table = Table()
    _filled(table)
    result = compact(table.ctx, small_bytes=0)
    assert result.merged_metadata and result.units == 0
    assert deepest_overlap(table.load())[0] <= DEPTH
    assert compact(table.ctx, small_bytes=0).commits == 0


def test_a_table_of_too_many_files_for_memory_is_handed_over_after_its_metadata() -> None:
    table = Table()
    _filled(table)
    totals = table.load().snapshot.totals
    result = compact(table.ctx, small_bytes=0, memory_bytes=4_000 * totals.files)
    assert result.hand_over and result.merged_metadata
    assert (result.left, result.left_bytes) == (totals.files, totals.bytes)
    assert deepest_overlap(table.load())[0] <= DEPTH

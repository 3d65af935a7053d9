"""What a publication costs, counted at the store, on tables of entries without data files."""

from __future__ import annotations

import pytest
from tests.metadata.tables import Table

from inlay.iceberg.grouping import MAX_LEAVES_OF_A_GROUP, leaves_of_a_group
from inlay.ops.publish.publish import publish
from inlay.plan.change import AddFiles, Change, RemoveFiles, SetProperties


def published(table: Table) -> tuple[int, int]:
    """PUTs and bytes up of one publication."""
    before = table.store.usage()
    publish(table.fresh(), look_into_files=False)
    used = table.used(before)
    return used.requests["put"], used.bytes_up


@pytest.fixture(scope="module")
def table() -> Table:
    found = Table()
    found.commit(
        Change(operation="set_properties", updates=(SetProperties({"publish.format": "v3"}),))
    )
    found.commit(Change(operation="ingest", updates=(AddFiles(found.files(10_000)),)))
    puts, _ = published(found)
    assert puts <= 20
    return found


def test_an_append_costs_five_puts(table: Table) -> None:
    table.append(table.files(1))
    puts, size = published(table)
    assert puts == 5 and size < 25_000


def test_a_file_that_leaves_a_full_manifest_costs_one_manifest_more_bytes(table: Table) -> None:
    keys = [entry.key for entry in table.load().files()]
    for key in (keys[4_000], keys[7_000]):
        table.commit(Change(operation="rewrite", updates=(RemoveFiles((key,)),)))
        puts, size = published(table)
        assert puts == 5 and size < 50_000


def test_how_many_leaves_make_a_group_does_not_swing() -> None:
    assert [leaves_of_a_group(n, None) for n in (0, 100, 101, 200, 201, 400, 10_000)] == [
        *(1, 1, 2, 2, 4, 4, MAX_LEAVES_OF_A_GROUP)
    ]
    # Around a limit the choice that is there stays; far from it, it does not.
    assert leaves_of_a_group(101, 1) == leaves_of_a_group(99, 1) == 1
    assert leaves_of_a_group(101, 2) == leaves_of_a_group(99, 2) == 2
    assert leaves_of_a_group(900, 1) == MAX_LEAVES_OF_A_GROUP
    assert leaves_of_a_group(1, 8) == 1
    assert leaves_of_a_group(1, 5) == 1

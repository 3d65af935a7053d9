"""What a publication costs, counted at the store, on tables of entries without data files, which are named
as the library names files."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyroaring import BitMap64
from tests.metadata.tables import Named, Table

from inlay.format.entry import Marker, Where
from inlay.format.predicate import In
from inlay.format.schema import Primitive
from inlay.iceberg.grouping import MAX_LEAVES_OF_A_GROUP, leaves_of_a_group
from inlay.ops.publish import settle as settle_module
from inlay.ops.publish.publish import PublishResult, publish
from inlay.plan.change import AddFiles, AddMarkers, Change, RemoveFiles, SetProperties


def published(table: Table) -> tuple[int, int]:
    """PUTs and bytes up of one publication."""
    before = table.store.usage()
    publish(table.fresh(), look_into_files=False)
    used = table.used(before)
    return used.requests["put"], used.bytes_up


@pytest.fixture(scope="module")
def table() -> Table:
    found = Named()
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


@pytest.mark.parametrize("files", [1, 10, 100])
def test_a_delete_by_condition_writes_no_manifest_of_data_files(
    table: Table, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settling it leaves every entry where it is, however many leaves the files are in."""
    monkeypatch.setattr(
        settle_module,
        "_deleted",
        lambda ctx, loaded, tasks: {t.file.key: BitMap64([0]) for t in tasks},
    )
    live = list(table.load().files())
    hit = random.Random(files).sample(live, files)
    where = In(1, Primitive("int64"), tuple(sorted({f.stats[1].lower for f in hit})))
    marker = Marker(id=table.ctx.new_id(), body=Where(where))
    version = table.commit(Change(operation="delete", updates=(AddMarkers((marker,)),)))
    result, settled, puts, size = _published(table)
    assert result.version == version + 1 and result.settle_commits == 1
    assert files <= result.settled == settled < 10 * files
    assert list(table.load().files()) == live
    assert len(list(table.load().markers())) >= settled
    assert puts == 5 and size < 25_000


def _published(table: Table) -> tuple[PublishResult, int, int, int]:
    """The result; the vectors that settling wrote; PUTs and bytes of the publication alone."""
    ctx = table.fresh()
    written: list[tuple[str, int]] = []
    put = ctx.store.put

    def noted(key: str, body: bytes, **options: Any) -> Any:
        written.append((key, len(body)))
        return put(key, body, **options)

    table.store.put = noted  # type: ignore[method-assign]
    try:
        result = publish(ctx, look_into_files=False)
    finally:
        del table.store.put
    table.forget()
    ours = [size for key, size in written if "/metadata/" in key]
    return result, sum(key.endswith(".puffin") for key, _ in written), len(ours), sum(ours)


def test_a_file_that_leaves_a_full_manifest_costs_one_manifest_more_bytes(table: Table) -> None:
    keys = [entry.key for entry in table.load().files()]
    for key in (keys[4_000], keys[7_000]):
        table.commit(Change(operation="rewrite", updates=(RemoveFiles((key,)),)))
        puts, size = published(table)
        assert puts <= 6 and size < 65_000


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

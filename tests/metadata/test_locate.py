"""A file is found by its name in a few requests, and reliably, whatever its footer says."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.metadata.tables import SCHEMA, Table

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.ops.metadata.find_file import load_file
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.delete import delete, delete_row_groups
from inlay.parse import parse_predicate
from inlay.plan.change import AddFiles, Change

SIZE = 20_000


@pytest.fixture(scope="module")
def grown() -> tuple[Table, list[DataFile]]:
    table, files = Table(), []
    for _ in range(SIZE // 1_000):
        more = tuple(table.file(low=10 * (table.made + 1)) for _ in range(1_000))
        table.commit(Change(operation="append", updates=(AddFiles(more),)))
        files += more
    return table, files


def write_object(table: Table, entry: DataFile, lowest: int) -> None:
    """An object with the values that its entry states when `lowest` is the lower bound there."""
    text = entry.stats[2]
    rows = pa.table([range(lowest, lowest + 10), [text.lower, text.upper] * 5], schema=SCHEMA)
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=5)
    table.store.put(table.ctx.key(entry.key), sink.getvalue())


def test_a_file_is_found_by_the_values_in_its_footer(grown) -> None:
    table, files = grown
    for entry in files[:: SIZE // 7]:
        write_object(table, entry, entry.stats[1].lower)
        base, before = load_pointer(table.fresh()), table.store.usage()
        found = load_file(table.ctx, base.state, entry.key)
        assert entry.key in found.loaded_file_keys()
        assert table.used(before).total <= 4  # the footer, a node, a leaf or two


@pytest.mark.parametrize("what", ["no object", "not Parquet", "other values"])
def test_a_file_whose_footer_leads_nowhere_is_found_all_the_same(grown, what) -> None:
    table, files = grown
    entry = files[SIZE // 2 + len(what)]
    match what:
        case "not Parquet":
            table.store.put(table.ctx.key(entry.key), b"PAR1 and no more")
        case "other values":
            write_object(table, entry, 10**9)
    state = load_pointer(table.fresh()).state
    assert entry.key in load_file(table.ctx, state, entry.key).loaded_file_keys()


def test_a_file_that_is_not_live_is_not_found(grown) -> None:
    table, _ = grown
    base = load_pointer(table.fresh())
    state = load_file(table.ctx, base.state, "data/nowhere.parquet")
    assert "data/nowhere.parquet" not in state.loaded_file_keys()
    where = parse_predicate("k = 1", base.snapshot.schema)
    with pytest.raises(InvalidRequest, match="no such file"):
        delete(table.ctx, where, file="data/nowhere.parquet")


def test_deletes_in_one_file_cost_the_same_at_any_size(grown) -> None:
    table, files = grown
    entry, before = files[1234], table.store.usage()
    write_object(table, entry, entry.stats[1].lower)
    where = parse_predicate(f"k = {entry.stats[1].lower}", load_pointer(table.ctx).snapshot.schema)
    delete(table.fresh(), where, file=entry.key, mode="tombstone")
    delete_row_groups(table.fresh(), entry.key, [0])
    # Of each: pointer, footer, node, leaf; archive, pointer.
    assert table.used(before).total <= 2 + 2 * 7

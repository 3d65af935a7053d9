"""An update that finds nothing commits nothing, unless it has a name by which it was done; upserts find the
column of their order by the name that a property gives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.maintenance.bench import INT64, new_bench

from inlay.errors import SchemaMismatch
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Schema
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.delete import delete
from inlay.ops.write.update import update
from inlay.ops.write.upsert import _order_column
from inlay.parse import parse_assignments
from inlay.plan.change import Change, ReplaceFiles, Request


def test_an_update_that_finds_no_row_is_remembered_by_its_request_alone() -> None:
    bench = new_bench()
    schema = bench.append(3).snapshot.schema
    new = parse_assignments({"name": "'new'"}, schema)
    absent = Comparison(1, "=", Literal(INT64, 99))
    version = bench.load().snapshot.version
    nothing = update(bench.ctx, new, absent)
    assert isinstance(nothing, Skipped) and bench.load().snapshot.version == version
    request = Request.of("r")
    done = update(bench.ctx, new, absent, request=request)
    assert isinstance(done, Committed) and bench.load().snapshot.version == version + 1
    bench.append(1, start=99)
    again = update(bench.ctx, new, absent, request=request)
    assert isinstance(again, Skipped) and again.version == version + 1
    found = update(bench.ctx, new, absent)
    assert isinstance(found, Committed) and found.loaded.snapshot.commit.removed_rows == 1


def test_an_order_is_a_column_of_the_table_and_of_the_data() -> None:
    bench = new_bench()
    id_, name = bench.load().snapshot.schema.fields
    table, data = Schema(0, (id_, replace(name, name="at"))), Schema(0, (replace(name, name="at"),))
    for order in ("at", '"at"'):
        assert _order_column(bench.ctx, table, data, order) == "at"
    for order in ("id", "none"):
        with pytest.raises(SchemaMismatch, match=f"the data lacks '{order}'"):
            _order_column(bench.ctx, table, data, order)


@pytest.mark.parametrize("mode", ["surgery", "rewrite"])
def test_an_update_that_rewrites_files_commits_all_of_them_or_none(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file left as it was would have the old rows beside the new ones."""
    bench = new_bench()
    loaded = bench.append(3)
    bench.append(3)
    planned: list[Change] = []

    def commit(ctx: Context, base: LoadedTable, plan: Any) -> Skipped:
        planned.append(plan(base).change)
        return Skipped(base, None)

    monkeypatch.setattr("inlay.ops.write.update.commit_planned", commit)
    new = parse_assignments({"name": "'new'"}, loaded.snapshot.schema)
    update(bench.ctx, new, Comparison(1, ">", Literal(INT64, 1)), mode=mode)
    [replaces] = [u for u in planned[0].updates if isinstance(u, ReplaceFiles)]
    assert replaces.whole and len(replaces.units) == 2


@pytest.mark.parametrize("mode", ["surgery", "rewrite"])
def test_a_delete_that_rewrites_files_commits_all_of_them_or_none(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file left as it was would keep rows of a delete that is said to be done."""
    bench = new_bench()
    bench.append(3)
    bench.append(3)
    planned: list[Change] = []

    def commit(ctx: Context, base: LoadedTable, plan: Any) -> Skipped:
        planned.append(plan(base).change)
        return Skipped(base, None)

    monkeypatch.setattr("inlay.ops.write.delete.commit_planned", commit)
    delete(bench.ctx, Comparison(1, ">", Literal(INT64, 1)), mode=mode)
    [replaces] = [u for u in planned[0].updates if isinstance(u, ReplaceFiles)]
    assert replaces.whole and len(replaces.units) == 2

"""An update that finds nothing commits nothing, unless it has a name by which it was done; upserts find the
column of their order by the name that a property gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.maintenance.bench import INT64, new_bench

from inlay.errors import SchemaMismatch
from inlay.format.predicate import Comparison, Literal, Predicate
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


def _update(ctx: Context, schema: Schema, where: Predicate, mode: str) -> None:
    update(ctx, parse_assignments({"name": "'new'"}, schema), where, mode=mode)


def _delete(ctx: Context, schema: Schema, where: Predicate, mode: str) -> None:
    delete(ctx, where, mode=mode)


@pytest.mark.parametrize("verb", [_update, _delete])
def test_what_rewrites_files_commits_all_of_them_or_none(
    verb: Callable[[Context, Schema, Predicate, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file left as it was would have old rows beside the new ones, or those of a delete that is done."""
    planned: list[Change] = []

    def commit(ctx: Context, base: LoadedTable, plan: Any) -> Skipped:
        planned.append(plan(base).change)
        return Skipped(base, None)

    for module in ("update", "delete"):
        monkeypatch.setattr(f"inlay.ops.write.{module}.commit_planned", commit)
    for mode in ("surgery", "rewrite"):
        bench = new_bench()
        loaded = bench.append(3)
        bench.append(3)
        verb(bench.ctx, loaded.snapshot.schema, Comparison(1, ">", Literal(INT64, 1)), mode)
        [replaces] = [u for u in planned.pop().updates if isinstance(u, ReplaceFiles)]
        assert replaces.whole and len(replaces.units) == 2

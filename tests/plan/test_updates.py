"""An update that finds nothing commits nothing, unless it has a name by which it was done."""

from __future__ import annotations

from tests.maintenance.bench import INT64, new_bench

from inlay.format.predicate import Comparison, Literal
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.write.update import update
from inlay.parse import parse_assignments
from inlay.plan.change import Request


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

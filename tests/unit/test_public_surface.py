"""Every option of a maintenance operation is an option of the table's method, with the same default."""

import inspect
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay import Table
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.verify.table import verify
from inlay.table.inspect import Inspect
from inlay.table.maintain import Maintain
from inlay.table.refs import Refs

# What the table itself supplies, and the processes that only another engine has.
INTERNAL = {"ctx", "base", "runner"}
RENAMED = {"grace_seconds": "grace"}


@pytest.mark.parametrize(
    "operation", [collect_garbage, compact, expire, rewrite, verify], ids=lambda op: op.__name__
)
def test_a_method_has_every_option_of_its_operation(operation):
    offered = inspect.signature(getattr(Maintain, operation.__name__)).parameters
    taken = inspect.signature(operation).parameters
    expected = {
        RENAMED.get(name, name): option.default
        for name, option in taken.items()
        if name not in INTERNAL
    }
    assert {n: o.default for n, o in offered.items() if n != "self"} == expected


@pytest.mark.parametrize(
    "name", [(c, n) for c in (Table, Inspect, Maintain, Refs) for n in vars(c) if n[0] != "_"]
)
def test_no_public_method_takes_untyped_options(name):
    method = inspect.unwrap(getattr(*name))
    if not callable(method):
        return
    for option in inspect.signature(method).parameters.values():
        if option.name == "properties":  # any value that a table property can have
            continue
        assert option.kind is not option.VAR_KEYWORD, option
        assert option.name == "self" or option.annotation is not option.empty, option


def test_what_a_result_prints_has_no_value_of_a_row(tmp_path: Path) -> None:
    """Snapshots hold bounds of columns; results and transactions hold snapshots."""
    table = inlay.create(tmp_path / "t", pa.schema([("name", pa.string())]), sort_by=["name"])
    pq.write_table(pa.table({"name": ["Ada Lovelace"]}), tmp_path / "a.parquet")
    results: list[object] = [table.ingest([str(tmp_path / "a.parquet")])]
    with inlay.transaction() as transaction:
        results.append(
            transaction.update(table, {"name": "'Grace Hopper'"}, where="name IS NOT NULL")
        )
    results += [transaction, transaction.results, table, table.scan(), table.maintain.verify()]
    for each in results:
        assert "Ada" not in repr(each) and "Grace" not in repr(each)

"""All that pyarrow's Dataset and Scanner offer, on a table: the answer of an in-memory dataset, or an error
in words. A method that reached C++ without a dataset there ended the process, so each runs in its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import inlay

# What each is called with; `d` is the dataset, `right` another one.
CALLS = {
    "count_rows": "d.count_rows(), d.count_rows(filter=later)",
    "filter": "d.filter(later).to_table(), d.filter(later).filter(ds.field('id') < 7).take([0, 1])",
    "get_fragments": "[(f.to_table(), f.count_rows(later)) for f in d.get_fragments()]",
    "head": "d.head(2), d.head(2, ['s'])",
    "join": "d.join(right, 'id', join_type='inner').sort_by('id').to_table()",
    "join_asof": "d.join_asof(right, 'id', [], 0).to_table()",
    "partition_expression": "d.partition_expression.equals(pc.scalar(True))",
    "replace_schema": "d.replace_schema(d.schema).to_table()",
    "scanner": "d.scanner().to_table(), d.scanner(['s'], use_threads=True).to_table()",
    "schema": "d.schema",
    "sort_by": "d.sort_by([('s', 'descending')]).to_table(), d.filter(later).sort_by('id').to_table()",
    "take": "d.take([1, 3]), d.take([0], filter=later), d.take([0], columns=['s'])",
    "to_batches": "pa.Table.from_batches(d.to_batches(filter=later))",
    "to_table": "d.to_table(), d.to_table(['s'], later), d.to_table(columns=[]).num_rows",
}
SCANNER = {
    "count_rows": "d.scanner().count_rows()",
    "dataset_schema": "d.scanner(['s']).dataset_schema",
    "head": "d.scanner(filter=later).head(2)",
    "projected_schema": "d.scanner(['s']).projected_schema",
    "take": "d.scanner(filter=later).take(pa.array([0]))",
    "to_batches": "pa.Table.from_batches(d.scanner(['s']).to_batches())",
    "to_reader": "d.scanner(['s', 'id']).to_reader().read_all()",
    "to_table": "d.scanner(['s']).to_table()",
}
WRITTEN = "ds.write_dataset(d, {folder!r}, format='parquet'), ds.dataset({folder!r}).to_table()"
ANSWERED = [*CALLS.values(), *SCANNER.values(), WRITTEN]
# Past its methods: C++ itself would read it.
UNREADABLE = [
    "ds.Scanner.from_dataset(d).to_table()",
    "ds.Scanner.from_dataset(d).count_rows()",
    "ds.UnionDataset(d.schema, [d]).to_table()",
    "ds.dataset([d]).to_table()",
    "ds.InMemoryDataset(pa.table({'id': [1]})).join(d, 'id').to_table()",
    "d._get_fragments(None) and [f.to_table() for f in d._get_fragments(None)]",
    "d.scanner(columns={'x': ds.field('id')})",
    "d.replace_schema(pa.schema([('id', pa.string())]))",
]
# Imports once; each call in a child that it forks, before any thread is started.
PROGRAM = """
import json, os, sys, traceback
import inlay, pyarrow as pa, pyarrow.acero, pyarrow.compute as pc, pyarrow.dataset as ds
import inlay.ops.read.dataset
def said(value):
    if isinstance(value, (tuple, list)):
        return [said(each) for each in value]
    return (value.schema, value.to_pydict()) if isinstance(value, pa.Table) else value
answers = {}
dataset, calls = json.load(sys.stdin)
for call in calls:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, sys.stdout.fileno())
        code = 1
        try:
            d = eval(dataset)
            right = ds.InMemoryDataset(pa.table({"id": [2, 3, 5]}))
            later = ds.field("id") > 2
            print(said(eval(call)))
            code = 0
        except Exception:
            print(traceback.format_exc())
        sys.stdout.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    answers[call] = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text]
print(json.dumps(answers))
"""
ROWS = pa.table({"id": range(10), "s": [f"t{n % 7}" for n in range(10)]})


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Any]]]:
    """Of an in-memory dataset and of a table's: the exit code of each call, and what it said."""
    folder = tmp_path_factory.mktemp("dataset")
    t = inlay.create(str(folder / "t"), ROWS.schema)
    t.append(ROWS)
    t.append(pa.table({"id": [99], "s": ["gone"]}))
    t.delete("s = 'gone'")
    datasets = {
        "plain": f"ds.InMemoryDataset(pa.table({ROWS.to_pydict()!r}))",
        "table": f"inlay.open({str(folder / 't')!r}).to_dataset()",
    }
    return {name: run(dataset, folder / name) for name, dataset in datasets.items()}


def run(dataset: str, folder: Path) -> dict[str, list[Any]]:
    calls = {call: call.format(folder=str(folder)) for call in ANSWERED}
    calls |= {call: call for call in UNREADABLE}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([dataset, list(calls.values())]),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {call: found[filled] for call, filled in calls.items()}


def test_each_method_of_pyarrow_is_called() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(ds.Dataset) == set(CALLS)
    # `scan_batches` gives files beside batches, and a table has none; the rest make scanners of datasets.
    assert public(ds.Scanner) - set(SCANNER) == {
        "scan_batches",
        *("from_batches", "from_dataset", "from_fragment"),
    }


@pytest.mark.parametrize("call", ANSWERED)
def test_the_answer_is_that_of_an_in_memory_dataset(answers: Any, call: str) -> None:
    plain, found = answers["plain"][call], answers["table"][call]
    assert plain[0] == 0, plain[1]
    assert found == plain


@pytest.mark.parametrize("call", UNREADABLE)
def test_what_cannot_be_read_is_an_error_in_words(answers: Any, call: str) -> None:
    code, said = answers["table"][call]
    assert code == 1, said
    assert "inlay.errors.InvalidRequest" in said


def test_datafusion_reads_a_table() -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
    rows = pa.table(
        {
            "id": range(1000),
            "x": [math.nan if n % 9 == 0 else n / 10 for n in range(1000)],
            "s": [None if n % 5 == 0 else f"t{n % 3}" for n in range(1000)],
        },
        schema=schema,
    )
    t = inlay.create(f"memory://datafusion/{uuid.uuid4().hex}", schema)
    t.append(rows)
    t.delete("id >= 990")
    context = datafusion.SessionContext()
    context.register_dataset("t", t.to_dataset())
    context.register_record_batches("plain", [rows.slice(0, 990).to_batches()])
    for sql in (
        "SELECT count(*) AS n FROM {}",
        "SELECT sum(id) AS n FROM {} WHERE id BETWEEN 5 AND 20 OR s = 't1'",
        "SELECT id, s FROM {} WHERE s IS NULL AND x < 10 ORDER BY id",
        "SELECT id FROM {} WHERE id IN (3, 5, 995) ORDER BY id",
        "SELECT s, count(*) AS n FROM {} GROUP BY s ORDER BY s",
        "SELECT a.id FROM {} a JOIN {} b ON a.id = b.id + 1 WHERE b.id < 5 ORDER BY 1",
        "SELECT id FROM {} ORDER BY id LIMIT 3",
        "SELECT id FROM {} WHERE lower(s) LIKE 't2%' AND id < 50 ORDER BY id",
    ):
        found, wanted = (context.sql(sql.replace("{}", n)).to_pylist() for n in ("t", "plain"))
        assert found == wanted, sql

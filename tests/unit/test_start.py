"""What a process pays before its first row: the modules it imports."""

import gc
import importlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import get_args

import pyarrow as pa
import pytest

import inlay
from inlay.cli.inspecting import arrow_types
from inlay.format.leaf_types import LEAF_TYPES, LeafName
from inlay.format.schema import Primitive
from inlay.lazy import LazyModule, import_now
from inlay.local.s3server import EmbeddedAws
from inlay.parquet.arrow.types import arrow_primitive

PROGRAM = """
import sys
import pyarrow as pa
import inlay

table = inlay.open(sys.argv[1])
conditions = ["id > 990 and s = 'x995'", "d < 3.5", "s like 'x99%'", "id in (1, 5, 995)", "s is null"]
conditions += ["id % 500 = 3", "s || 'a' = 'x8a'", "-id > -2", "id - 0.5 < 1"]
found = [table.scan(where=each).to_arrow().num_rows for each in conditions]
assert found == [1, 8, 11, 2, 0, 2, 1, 2, 2], found
assert table.scan(order_by="d desc, s", limit=2).to_arrow()["id"].to_pylist() == [999, 998]
assert table.scan(where="id > 0").count() == 896
assert "pandas" not in sys.modules, "pandas was imported"
"""


def test_reading_a_table_with_deletes_does_not_import_pandas(tmp_path):
    pytest.importorskip("pandas")
    rows = range(1000)
    data = pa.table(
        {
            "id": list(rows),
            "s": [f"x{i}" for i in rows],
            "d": [i / 3 for i in rows],
            "l": [[i] for i in rows],
        }
    )
    table = inlay.create(tmp_path / "t", data.schema, primary_key=["id"])
    table.append(data)
    table.delete(keys=pa.table({"id": [5, 7]}))
    table.delete(keys=pa.table({"id": list(range(100, 300, 2))}))  # in an object of their own
    table.delete(where="s = 'x6'")
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "t")]
    subprocess.run(program, check=True)


ONE_VERB = """
import sys
import pyarrow as pa
import inlay

table = inlay.open(sys.argv[1])
{verb}
rooms = tuple("inlay." + room for room in {rooms})
loaded = [name for name in sys.modules if name.startswith(rooms)]
assert loaded == [], loaded
"""
NEITHER = [
    "format.landing",
    "ops.erase",
    "ops.inspect",
    "ops.maintain",
    "ops.schema.alter",
    "ops.verify",
]
NEITHER += ["format.puffin", "format.transaction", "parquet.arrow.calculate", "parquet.surgery"]
NEITHER += ["format.columns", "format.leaves", "parse.calculate", "plan.schema_", "progress"]
COMMITTING = ["ops.commit", "plan.change", "plan.commit"]


@pytest.mark.parametrize(
    ("verb", "others"),
    [
        (
            'table.scan(where="id > 1").to_arrow()',
            [*COMMITTING, "ops.read.top_n", "ops.write", "parquet.write"],
        ),
        ('table.append(pa.table({"id": [1]}))', ["ops.read.scan", "parse"]),
    ],
    ids=["scan", "append"],
)
def test_a_process_that_only_reads_or_appends_imports_nothing_else(tmp_path, verb, others):
    inlay.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    program = ONE_VERB.format(verb=verb, rooms=[*NEITHER, *others])
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], check=True)


MODULE = """
import gc
assert gc.isenabled() is {}
raise ImportError("not yet")
"""


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_while_a_module_is_imported(collects, tmp_path, monkeypatch):
    """Afterwards it is as before, also where the import fails."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_to_fail.py").write_text(MODULE.format(False))
    try:
        if not collects:
            gc.disable()
        with pytest.raises(ImportError, match="not yet"):
            import_now("made_to_fail")
        assert gc.isenabled() is collects
        (tmp_path / "made_to_fail.py").write_text("value = 5")
        importlib.invalidate_caches()
        assert (
            import_now("made_to_fail") is import_now("made_to_fail") is sys.modules["made_to_fail"]
        )
        assert LazyModule("made_to_fail").value == 5
        assert gc.isenabled() is collects
    finally:
        gc.enable()
        sys.modules.pop("made_to_fail", None)


# What asks only metadata: in the library, and as commands.
LIBRARY = """
import sys
import inlay

table = inlay.open(sys.argv[1])
assert table.count() == 997, table.count()
assert inlay.open(sys.argv[1], version=2).count() == 1000
assert (table.version, table.columns, table.ref) == (4, ["id", "s"], "main")
"""
COMMAND = """
import os
import sys
from inlay.cli import main

sys.argv = ["inlay", *sys.argv[2:], *([] if sys.argv[2] == "--help" else [sys.argv[1]])]
ended = os._exit
os._exit = lambda code: None
main()
"""
HEAVY = """
heavy = {"pyarrow", "numpy", "pandas", "boto3", "botocore.session", "botocore.client"}
loaded = sorted(heavy & sys.modules.keys())
assert loaded == [], loaded
"""


@pytest.fixture(scope="module", params=["directory", "s3"])
def small_table(request, tmp_path_factory) -> Iterator[tuple[str, dict[str, str]]]:
    """A table with a delete that metadata counts, and the environment to open it in."""
    with EmbeddedAws(["s3"]) as aws, pytest.MonkeyPatch.context() as patch:
        env = aws.env() if request.param == "s3" else {}
        for name, value in env.items():
            patch.setenv(name, value)
        uri = str(tmp_path_factory.mktemp("start") / "t")
        if request.param == "s3":
            from inlay.storage.s3_client import connect

            bucket = f"test-{uuid.uuid4().hex}"
            connect().create_bucket(Bucket=bucket)
            uri = f"s3://{bucket}/tables/t"
        rows = pa.table({"id": list(range(1000)), "s": ["x"] * 1000})
        table = inlay.create(uri, rows.schema, primary_key=["id"])
        table.append(rows)
        table.delete("id < 3", mode="vector")
        table.refs.tag("before", 2)
        yield uri, {**os.environ, **env}


@pytest.mark.parametrize(
    "asked",
    [None, "count", "history", "refs", "show", "--help"],
    ids=lambda asked: asked or "library",
)
def test_what_asks_only_metadata_loads_neither_arrow_nor_numpy(small_table, asked):
    uri, env = small_table
    text = (LIBRARY if asked is None else COMMAND) + HEAVY
    program = [sys.executable, "-c", text, uri, *([] if asked is None else [asked])]
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if asked == "count":
        assert done.stdout == "997\n"


def test_a_count_that_metadata_does_not_tell_plans_once(tmp_path):
    rows = pa.table({"id": list(range(1000))})
    table = inlay.create(tmp_path / "t", rows.schema)
    table.append(rows)
    table.delete("id < 3")
    before = table.usage
    assert table.count() == table.scan().count() == 997
    assert inlay.open(tmp_path / "t").count() == 997
    assert (table.usage - before).total <= 2  # footer and column: the second count is remembered


def test_columns_are_shown_as_arrow_writes_their_types(tmp_path):
    """`inlay show` names the types without Arrow; with it they are the same."""
    kinds = []
    for name in get_args(LeafName):
        match LEAF_TYPES[name]:
            case row if row.arguments == "unit":
                kinds += [Primitive(name, unit=unit) for unit in row.units]
            case row if row.arguments == "digits":
                kinds += [Primitive(name, precision=p, scale=2) for p in (5, 20, 38, 39, 76)]
            case row if row.arguments == "length":
                kinds.append(Primitive(name, precision=16))
            case _:
                kinds.append(Primitive(name))
    fields = [(f"c{n}", arrow_primitive(kind)) for n, kind in enumerate(kinds)]
    table = inlay.create(tmp_path / "plain", pa.schema(fields))
    assert "arrow.types" not in table.snapshot.properties
    assert [field.type for field in table.snapshot.schema.fields] == kinds
    assert arrow_types(table) == [str(kind) for _, kind in fields]

    for n, other in enumerate([pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string())]):
        table = inlay.create(tmp_path / f"t{n}", pa.schema([("id", pa.int8()), ("x", other)]))
        assert arrow_types(table) == ["int8", str(table.schema.field("x").type)]


def test_a_scan_loads_arrows_functions_while_it_waits_for_its_files():
    program = """
import sys
import inlay.ops.read.scan
from inlay.parquet.arrow.functions import load_meanwhile

class Executor:
    def submit(self, job, *arguments):
        job(*arguments)
        submitted.append(arguments)

submitted = []
assert "pyarrow.compute" not in sys.modules
load_meanwhile(Executor())
assert "pyarrow.compute" in sys.modules
load_meanwhile(Executor())
assert submitted == [("pyarrow.compute",)], submitted
"""
    subprocess.run([sys.executable, "-c", program], check=True)

"""The golden tables: this library reads what an earlier one wrote, version by version."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

import inlay
from inlay.format import transaction
from inlay.format.snapshot import FORMAT_VERSION

HERE = Path(__file__).parent
# Of version 2 are the frames of transactions: test_transactions.py.
GOLDEN = [HERE / f"v{n}" for n in range(1, FORMAT_VERSION + 1)]


def _make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = _make()


@pytest.fixture(params=GOLDEN, ids=[p.name for p in GOLDEN])
def golden(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> str:
    """The table as separate files, since tests may write to it."""
    shutil.copytree(golden / "table", tmp_path / "table")
    return str(tmp_path / "table")


def test_there_is_a_golden_table_of_every_format() -> None:
    made = [p.name for p in HERE.glob("v*") if p.is_dir()]
    assert sorted(made) == [f"v{n}" for n in range(1, transaction.VERSION + 1)]


def test_every_version_has_the_rows_it_had(golden: Path, copy: str) -> None:
    newest, rows = make.expected(golden)
    assert inlay.open(copy).version == newest
    assert len(rows) > 15
    for version, expected in rows.items():
        found = inlay.open(copy, version=version).scan().to_arrow()
        assert make.plain(found) == expected, f"version {version}"


def test_every_tag_and_branch_has_the_rows_it_had(golden: Path, copy: str) -> None:
    refs = json.loads((golden / "expected.json").read_text(encoding="utf-8"))["refs"]
    assert {"side", "merged", "before-branches"} <= refs.keys()
    for name, expected in refs.items():
        assert make.plain(inlay.open(copy, ref=name).scan().to_arrow()) == expected, name


def test_nothing_is_wrong_with_it(copy: str) -> None:
    found = inlay.open(copy).maintain.verify(depth="pages")
    assert found.findings == ()


def test_it_has_something_of_everything(golden: Path, copy: str) -> None:
    """A golden table that lacks a feature keeps no promise about it."""
    _, rows = make.expected(golden)
    seen: Counter[str] = Counter()
    for version in rows:
        at = inlay.open(copy, version=version)
        files, markers = at.inspect.entries()
        snapshot = at.snapshot
        seen.update(type(m.body).__name__ for m in markers)
        seen.update("file of an older schema" for f in files if f.schema_id != snapshot.schema_id)
        seen.update("default" for _, f in snapshot.schema.walk() if f.default is not None)
        seen.update("marker of a file" for m in markers if m.file)
        seen.update("event" for f in files if f.event)
        seen.update("origin" for f in files if f.origin)
        seen.update("partition" for f in files if f.partition)
        seen.update("partition NULL" for f in files if None in f.partition)
        seen.update("output of maintenance" for f in files if not f.data_change)
        for name in ("files", "markers"):
            tier = getattr(snapshot, name)
            seen.update(f"{name} in segments" for _ in tier.segments)
            seen.update(f"{name} inline" for _ in tier.inline)
            seen.update("dead entries" for s in tier.segments if s.dead)
        seen.update("ledger in segments" for _ in snapshot.ledger.records.segments)
        seen.update("ledger inline" for _ in snapshot.ledger.records.inline)
        seen.update("stream" for _ in snapshot.ledger.streams)
        seen.update("node" for s in snapshot.files.segments if s.level)
        seen.update("schemas apart" for _ in snapshot.schema_objects)
        seen.update("head" for ref in snapshot.refs.values() if ref.head)
        seen.update("branch base" for ref in snapshot.refs.values() if ref.base)
        seen.update("replaced content" for _ in [1] if snapshot.replaced)
        seen.update("cluster" for f in files if f.cluster is not None)
        seen.update("ref" for _ in snapshot.refs)
        seen.update("erasure" for _ in snapshot.erasures)
        seen.update("expired" for _ in snapshot.expired)
        seen.update("boundary" for _ in [1] if snapshot.boundary.version)
        seen.update("properties" for _ in [1] if len(snapshot.properties) > 1)
    wanted = ["Rows", "Vector", "RowGroups", "KeyRange", "Where", "Keys"]
    wanted += [
        "partition",
        "partition NULL",
        "file of an older schema",
        "default",
        "marker of a file",
        "event",
        "origin",
        "output of maintenance",
        "dead entries",
        "node",
        "schemas apart",
        "head",
        "branch base",
        "replaced content",
        "cluster",
    ]
    wanted += [
        f"{n} {w}" for n in ("files", "markers", "ledger") for w in ("in segments", "inline")
    ]
    wanted += ["stream", "ref", "erasure", "expired", "boundary", "properties"]
    assert [w for w in wanted if not seen[w]] == []


def test_what_was_applied_once_is_known(copy: str) -> None:
    t = inlay.open(copy)
    rows = make.rows(0, 20)
    assert t.append(rows, request_id="append-0").committed is False


def test_it_can_be_written_to_and_maintained(golden: Path, copy: str) -> None:
    newest, rows = make.expected(golden)
    t = inlay.open(copy)
    t.append(pa.table({"id": range(1_000, 1_005)}))
    t.delete("id = 1002")
    before = make.plain(t.scan().to_arrow())
    assert len(before) == len(rows[newest]) + 4
    t.maintain.rewrite()
    t.maintain.compact()
    assert make.plain(t.scan().to_arrow()) == before
    assert t.maintain.verify(depth="pages").errors == ()


def test_its_maker_makes_it_again_with_the_same_rows(golden: Path, tmp_path: Path) -> None:
    """So that it stays plain what is in it. Names of objects may differ: they are random."""
    if golden.name != f"v{FORMAT_VERSION}":
        pytest.skip("an earlier format: kept as it is")
    make.write(tmp_path)
    assert make.expected(tmp_path) == make.expected(golden)
    assert sum(p.stat().st_size for p in golden.rglob("*") if p.is_file()) < 700_000


def test_the_rows_of_the_maker_hold_every_kind_of_value() -> None:
    found = make.rows(0, 200)
    assert all(
        c.null_count for n, c in zip(found.column_names, found.columns, strict=True) if n != "id"
    )
    assert pa.compute.any(pa.compute.is_nan(found["score"])).as_py()

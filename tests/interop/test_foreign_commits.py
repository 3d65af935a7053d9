"""What other engines commit, or fail to commit, to a published table: noticed by name, never overwritten;
what refused commits leave behind is garbage, and within the reach of erasures."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.cli.serving import CatalogServer, catalog_of
from inlay.errors import ConcurrentChange, ErrorKind, ForeignCommit, InlayError
from inlay.format import keys
from inlay.format.keys import ObjectKind, classify
from inlay.ops.catalog.take_over import take_over
from inlay.ops.metadata.publication import NO_HINT
from inlay.ops.publish.publish import publish
from inlay.table import Table

from .test_erasure import SECRET, finish, found
from .test_killed import Dying, Killed

PROGRAM = Path(__file__).with_name("commit_by_engine.py")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("s", pa.string())])


def a_table(root: Path, version: str = "v3", *, named: str = "yes") -> Table:
    properties = {"publish.format": version, "write.compression": "none"}
    properties["publish.version_hint"] = named
    t = inlay.create(f"file://{root}", SCHEMA, primary_key="id", properties=properties)
    t.append(pa.table({"id": [1, 2], "s": ["a", "b"]}, schema=SCHEMA))
    t.publish()
    return t


def committed_by_path(t: Table, *, hint: bool = True, body: str | None = None) -> Path:
    """As Iceberg's Hadoop catalog commits: the next number, this table's properties carried on."""
    root = Path(t._ctx.uri.removeprefix("file://"))
    pointer = json.loads((root / keys.PUBLISHED_POINTER).read_text())
    metadata = pointer["metadata"]
    version = metadata["current-snapshot-id"]
    newest = {**metadata["snapshots"][-1], "snapshot-id": 7_564_995_080_528_248_251}
    changed = {
        **metadata,
        "snapshots": [*metadata["snapshots"], newest],
        "current-snapshot-id": newest["snapshot-id"],
        "metadata-log": [{"metadata-file": pointer["metadata-location"], "timestamp-ms": 1}],
    }
    path = root / keys.published_metadata_key(version + 1)
    path.write_text(json.dumps(changed) if body is None else body)
    if hint:
        (root / keys.VERSION_HINT).write_text(str(version + 1))
    return path


def everything(root: Path) -> dict[str, bytes]:
    """What is published, and the data; commits of Inlay are not counted."""
    return {
        str(p.relative_to(root)): p.read_bytes()
        for folder in ("metadata", "data")
        for p in (root / folder).rglob("*")
        if p.is_file()
    }


@pytest.mark.parametrize("rebuild", [False, True], ids=["publish", "rebuild"])
@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no-hint"])
@pytest.mark.parametrize("commits", range(4))
@pytest.mark.parametrize("named", ["yes", "no"])
def test_a_commit_by_path_is_noticed_whatever_is_published_next(
    tmp_path: Path, named: str, commits: int, hint: bool, rebuild: bool
) -> None:
    """The number that comes next may be that of the commit, or beyond it."""
    t = a_table(tmp_path / "t", named=named)
    theirs = committed_by_path(t, hint=hint)
    for n in range(commits):
        t.append(pa.table({"id": [10 + n], "s": ["c"]}, schema=SCHEMA))
    before = everything(tmp_path / "t")
    if not commits and not hint and not rebuild:
        # Nothing is published, so nothing is looked for.
        assert not t.publish().published
    else:
        with pytest.raises(ForeignCommit, match=r"metadata\.json") as refused:
            t.publish(rebuild=rebuild)
        assert str(refused.value.key).endswith(theirs.name)
    with pytest.raises(ForeignCommit):
        t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert theirs.exists()
    now = everything(tmp_path / "t")
    assert {name: now.get(name) for name in before} == before
    theirs.unlink()
    t.publish(rebuild=rebuild)
    t.refresh()
    expected = str(t.version) if named == "yes" else NO_HINT
    assert (tmp_path / "t" / keys.VERSION_HINT).read_text() == expected


def test_who_lets_cleaners_loose_by_path_is_told_by_the_next_publication(tmp_path: Path) -> None:
    """And so is who checks the table, where they have been: all but what is published was an orphan."""
    root = tmp_path / "t"
    t = a_table(root)
    t.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA))
    metadata = json.loads((root / keys.PUBLISHED_POINTER).read_text())["metadata"]
    metadata["properties"]["gc.enabled"] = "true"
    theirs = committed_by_path(t, body=json.dumps({**metadata, "metadata-log": [{}]}))
    said = "does not say gc.enabled=false"
    for refused in (t.publish, partial(t.maintain.collect_garbage, grace=timedelta(0))):
        with pytest.raises(ForeignCommit, match=said):
            refused()
    with pytest.raises(InlayError, match=r"gc\.enabled.* is Inlay's own"):
        t.publish(take_over=True)
    [finding] = t.maintain.verify().findings
    assert (finding.kind, finding.key) == ("foreign_commit", keys.published_metadata_key(t.version))
    assert said in finding.message
    newest = t.inspect.entries()[0][-1].key
    (root / newest).unlink()
    assert {f.kind for f in t.maintain.verify().findings} == {"file_missing", "foreign_commit"}
    theirs.unlink()


@pytest.mark.parametrize("body", ["another engine's commit", "[]", "[" * 100_000, '{"a": 1}', ""])
def test_metadata_that_nobody_can_read_is_not_overwritten(tmp_path: Path, body: str) -> None:
    t = a_table(tmp_path / "t")
    theirs = committed_by_path(t, body=body)
    t.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA))
    with pytest.raises(ForeignCommit):
        t.publish()
    assert theirs.read_text() == body


@pytest.mark.parametrize(
    ("commits", "at"),
    [
        (1, ".metadata.json"),  # for the number that is about to be written
        *((2, at) for at in (keys.PUBLISHED_POINTER, keys.VERSION_HINT, ".metadata.json")),
    ],
)
def test_a_commit_by_path_beside_a_publication_keeps_its_hint_and_its_metadata(
    tmp_path: Path, commits: int, at: str
) -> None:
    t = a_table(tmp_path / "t")
    for n in range(commits):
        t.append(pa.table({"id": [10 + n], "s": ["c"]}, schema=SCHEMA))
    theirs: list[tuple[Path, str]] = []

    def race(n: int, key: str) -> None:
        if key.endswith(at) and not theirs:
            path = committed_by_path(t)
            theirs.append((path, path.read_text()))

    store = Dying(t._ctx.store, before=race)
    with pytest.raises(ForeignCommit):
        publish(replace(t._ctx, store=store))
    [(path, text)] = theirs
    assert path.read_text() == text
    hint = (tmp_path / "t" / keys.VERSION_HINT).read_text()
    assert path.name == f"v{hint}.metadata.json"
    with pytest.raises(ForeignCommit):
        t.publish()


def test_everything_but_publishing_and_collection_goes_on_beside_a_commit_by_path(
    tmp_path: Path,
) -> None:
    """Of the table, and of its neighbour in the same round."""
    t, neighbour = a_table(tmp_path / "t"), a_table(tmp_path / "u")
    theirs = committed_by_path(t)
    for n in (10, 20, 30):
        t.append(pa.table({"id": [n, n + 1], "s": ["c", "d"]}, schema=SCHEMA))
    t.delete("id = 11", mode="vector")
    t.update({"s": "'x'"}, where="id = 10")
    t.maintain.compact()
    t.maintain.rewrite()
    t.maintain.expire(days=0, min_versions=1)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 10, 20, 21, 30, 31]
    assert t.maintain.verify(depth="pages").errors == ()
    for each, refused in ((t, True), (neighbour, False)):
        grace: dict[str, Any] = {"grace": timedelta(0), "clock_margin_seconds": 0}
        with pytest.raises(ForeignCommit) if refused else nullcontext():
            each.maintain.collect_garbage(**grace)
    theirs.unlink()
    assert t.publish().published
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 10, 20, 21, 30, 31]


def test_copies_of_metadata_that_rewrite_table_path_leaves_are_garbage(tmp_path: Path) -> None:
    """Collected, and reached by an erasure: bounds are in them."""
    t = a_table(tmp_path / "t")
    t.append(pa.table({"id": [3], "s": [SECRET]}, schema=SCHEMA))
    t.publish()
    metadata = tmp_path / "t" / "metadata"

    def staged(name: str) -> Path:
        folder = metadata / f"copy-table-staging-{name}" / "metadata"
        folder.mkdir(parents=True)
        for path in (p for p in metadata.glob("inlay-*") if p.is_file()):
            shutil.copy(path, folder / path.name)
        (folder.parent / "file-list").write_text("a,b")
        return folder.parent

    first = staged("7582a599-3ef0-4047-b80f-779bcadd31ef")
    others = staged("of-somebody")
    assert t.maintain.collect_garbage().unknown_count == len(list(others.rglob("*.*"))) + 1
    assert first.exists()
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert not [p for p in first.rglob("*") if p.is_file()]
    shutil.rmtree(others)
    second = staged("4117ce48-6bcb-441f-9b97-3b7bb666e247")
    assert found(second)
    t.delete(f"s = '{SECRET}'", mode="erase")
    assert finish(t).receipts  # type: ignore[attr-defined]
    assert found(tmp_path / "t") == []


def test_a_commit_by_path_stops_an_erasure_by_name(tmp_path: Path) -> None:
    t = a_table(tmp_path / "t")
    theirs = committed_by_path(t)
    t.delete("id = 2", mode="erase")
    with pytest.raises(ForeignCommit, match=theirs.name):
        finish(t)
    theirs.unlink()
    assert finish(t).receipts  # type: ignore[attr-defined]


def test_cleaners_are_told_that_the_table_is_not_theirs(tmp_path: Path) -> None:
    t = a_table(tmp_path / "t")
    for format in ("v3", "v2"):
        t.publish(format=format)
        pointer = json.loads((tmp_path / "t" / keys.PUBLISHED_POINTER).read_text())
        assert pointer["metadata"]["properties"]["gc.enabled"] == "false"


@pytest.fixture
def act(engines_python: Path, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """(engine, what) to the table in tables/t, by the read-only catalog; or `on` a file of metadata that is
    registered elsewhere. What the engine says."""
    (tmp_path / "tables").mkdir()
    server = CatalogServer(catalog_of(f"file://{tmp_path}/tables"), "127.0.0.1", 0)
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        uri = f"http://127.0.0.1:{server.server_port}"

        def run(engine: str, what: str, on: str | None = None) -> str:
            catalog, table = (uri, "tables.t") if on is None else (str(tmp_path), on)
            done = subprocess.run(
                [engines_python, PROGRAM, engine, catalog, table, what],
                capture_output=True,
                text=True,
                check=False,
            )
            assert not done.returncode, done.stderr
            return done.stdout.strip()

        yield run
        server.shutdown()
        thread.join()


def metadata(t: Table) -> str:
    root = Path(t._ctx.uri.removeprefix("file://"))
    return str(json.loads((root / keys.PUBLISHED_POINTER).read_text())["metadata-location"])


# pyiceberg reads from the catalog's configuration that there is nothing to call, but writes its data and
# its manifests first; manifests of version 3 it cannot write.
REFUSED = {
    "pyiceberg": {
        "append": "Cannot write manifest|does not support endpoint",
        "delete": "Cannot write manifest|does not support endpoint",
        "expire": "does not support endpoint",
        "drop": "does not support endpoint",
        "purge": "does not support endpoint",
    },
    "duckdb": {
        "append": "read only",
        "delete": "read only",
        "alter": "read only",
        "drop": "read only",
    },
}


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_what_refused_commits_left_behind_is_garbage_and_erasures_reach_it(
    tmp_path: Path, version: str, act: Callable[..., str]
) -> None:
    root = tmp_path / "tables" / "t"
    t = a_table(root, version)
    t.append(pa.table({"id": [3], "s": [SECRET]}, schema=SCHEMA))
    t.publish()
    before = everything(root)
    for engine, actions in REFUSED.items():
        for what, why in actions.items():
            said = act(engine, what)
            assert any(each in said for each in why.split("|")), (engine, what, said)
    now = everything(root)
    assert {name: now.get(name) for name in before} == before, "no cleaner, and no commit"
    left = now.keys() - before.keys()
    assert any(name.endswith(".avro") for name in left)
    assert found(root) != []
    assert {classify(name) for name in left} <= {ObjectKind.DATA, ObjectKind.PUBLISHED}
    young = t.maintain.collect_garbage()
    assert young.objects == 0 and young.unknown == () and everything(root).keys() >= left
    t.delete(f"s = '{SECRET}'", mode="erase")
    done: Any = finish(t)
    assert done.receipts, done.waiting
    assert found(root) == []
    assert not left & everything(root).keys()
    assert t.refresh().maintain.verify(depth="pages").findings == ()


def test_what_refused_commits_left_behind_goes_when_it_is_old_enough(
    tmp_path: Path, act: Callable[..., str]
) -> None:
    root = tmp_path / "tables" / "t"
    t = a_table(root)
    before = everything(root)
    assert "read only" in act("duckdb", "append")
    left = everything(root).keys() - before.keys()
    assert left
    result = t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert result.objects == len(left) and everything(root) == before


def test_a_catalog_that_took_the_table_over_keeps_collection_from_its_files(
    tmp_path: Path, act: Callable[..., str]
) -> None:
    """Registered elsewhere, without a hand-over: what is appended there is under this table's root."""
    root = tmp_path / "tables" / "t"
    t = a_table(root, "v2")
    before = everything(root)
    assert act("pyiceberg", "append", on=metadata(t)) == "done"
    left = everything(root).keys() - before.keys()
    assert any(keys.is_committed_elsewhere(name) for name in left)
    with pytest.raises(ForeignCommit, match="another catalog has committed"):
        t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert everything(root).keys() >= left


def test_inspection_and_the_key_are_there_for_pyiceberg(
    tmp_path: Path, act: Callable[..., str]
) -> None:
    t = a_table(tmp_path / "tables" / "t")
    t.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA))
    t.delete("id = 1", mode="vector")
    t.publish()
    assert act("pyiceberg", "entries") == "4", "three rows, and a vector of one"
    assert act("pyiceberg", "keys") == "['id']"


def test_upsert_of_pyiceberg_knows_the_key(tmp_path: Path, act: Callable[..., str]) -> None:
    t = a_table(tmp_path / "tables" / "t", "v2")
    assert act("pyiceberg", "upsert", on=metadata(t)) == "done"


# -- taking a commit by path over -----------------------------------------------------------------


def committed_with(engines_python: Path, t: Table, tmp_path: Path, what: str) -> Path:
    """A real commit of pyiceberg's under the name that the Hadoop catalog would give it."""
    root = Path(t.uri.removeprefix("file://"))
    before = set((root / "metadata").iterdir())
    number = json.loads((root / keys.PUBLISHED_POINTER).read_text())["metadata"][
        "current-snapshot-id"
    ]
    theirs = sorted(
        (n, path)
        for path in before
        if (n := keys.published_version(f"{keys.PUBLISHED}{path.name}")) is not None
    )
    newest, source = theirs[-1]
    folder = tmp_path / f"catalog-{newest}"
    folder.mkdir()
    done = subprocess.run(
        [engines_python, "-W", "ignore", PROGRAM, "pyiceberg", str(folder), str(source), what],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "done", done.stdout
    [written] = [p for p in set((root / "metadata").iterdir()) - before if p.suffix == ".json"]
    path = root / keys.published_metadata_key(max(newest, number) + 1)
    written.rename(path)
    (root / keys.VERSION_HINT).write_text(str(max(newest, number) + 1))
    return path


def ids(t: Table) -> list[int]:
    return sorted(t.refresh().scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("native", range(3))
def test_an_append_by_path_becomes_one_commit_whatever_the_table_is_by_now(
    tmp_path: Path, engines_python: Path, native: int
) -> None:
    t = a_table(tmp_path / "t", "v2")
    theirs = [committed_with(engines_python, t, tmp_path, "append")]
    theirs.append(committed_with(engines_python, t, tmp_path, "append"))
    for n in range(native):
        t.append(pa.table({"id": [10 + n], "s": ["c"]}, schema=SCHEMA))
    with pytest.raises(ForeignCommit, match="take-over"):
        t.append(pa.table({"id": [20], "s": ["d"]}, schema=SCHEMA))
        t.publish()
    before = t.refresh().version
    assert t.publish(take_over=True).published
    assert t.version == before + 1
    assert ids(t) == [1, 2, *(10 + n for n in range(native)), 20, 77, 77]
    assert not any(path.exists() and b"inlay.commit" not in path.read_bytes() for path in theirs)
    assert not t.publish(take_over=True).published
    assert t.refresh().version == before + 1
    assert not t.maintain.verify().errors
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert len(ids(t)) == native + 5


def test_what_else_was_committed_by_path_holds_for_the_published_version_alone(
    tmp_path: Path, engines_python: Path
) -> None:
    t = a_table(tmp_path / "t", "v2")
    theirs = committed_with(engines_python, t, tmp_path, "delete")
    t.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA))
    with pytest.raises(ConcurrentChange, match="inlay serve --write"):
        t.publish(take_over=True)
    assert theirs.exists() and ids(t) == [1, 2, 3]
    theirs.unlink()
    t.publish()
    committed_with(engines_python, t, tmp_path, "delete")
    t.publish(take_over=True)
    assert ids(t) == [2, 3]


def test_a_take_over_killed_at_any_write_is_ended_by_the_next(
    tmp_path: Path, engines_python: Path
) -> None:
    t = a_table(tmp_path / "t", "v2")
    committed_with(engines_python, t, tmp_path, "append")
    root, saved = tmp_path / "t", tmp_path / "saved"
    shutil.copytree(root, saved)
    for n in range(1, 30):
        shutil.rmtree(root)
        shutil.copytree(saved, root)

        def kill(write: int, key: str, n: int = n) -> None:
            if write == n:
                raise Killed(key)

        store = Dying(t._ctx.store, after=kill)
        with suppress(Killed):
            take_over(replace(t._ctx, store=store))
        assert take_over(t._ctx).version == t.refresh().version == 3
        assert ids(t) == [1, 2, 77]
        if store.puts < n:
            return
    raise AssertionError("a take-over of more than 30 writes")


@pytest.mark.parametrize("body", ["[]", '{"table-uuid": "another"}', "no JSON", "{}"])
def test_metadata_that_is_no_commit_to_this_table_is_not_taken_over(
    tmp_path: Path, body: str
) -> None:
    t = a_table(tmp_path / "t")
    theirs = committed_by_path(t, body=body)
    before = everything(tmp_path / "t")
    with pytest.raises(InlayError) as refused:
        t.publish(take_over=True)
    assert refused.value.kind is ErrorKind.INPUT
    assert everything(tmp_path / "t") == before and theirs.read_text() == body

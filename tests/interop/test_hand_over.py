"""A table that goes on in another catalog: nothing here changes or deletes what is its by then."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.errors import InvalidRequest, TableHandedOver
from inlay.format import keys
from inlay.format.properties import HANDED_OVER
from inlay.ops import hand_over as module
from inlay.table import Table

from .iceberg_reader import read_table
from .test_foreign_commits import PROGRAM, SCHEMA, a_table, everything

MORE = pa.table({"id": [9], "s": ["z"]}, schema=SCHEMA)


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


ACTIONS: dict[str, Callable[[Table], object]] = {
    "append": lambda t: t.append(MORE),
    "append, once": lambda t: t.append(MORE, request_id="new"),
    "upsert": lambda t: t.upsert(MORE),
    "delete": lambda t: t.delete("id = 1"),
    "delete, vectors": lambda t: t.delete("id = 1", mode="vector"),
    "erase": lambda t: t.delete("id = 1", mode="erase"),
    "update": lambda t: t.update({"s": "'x'"}, where="id = 1"),
    "alter": lambda t: t.alter(add={"n": pa.int64()}),
    "properties": lambda t: t.set_properties(gc__grace_days=1),
    "tag": lambda t: t.refs.tag("x"),
    "branch": lambda t: t.refs.branch("b"),
    "rewrite": lambda t: t.maintain.rewrite(),
    "compact": lambda t: t.maintain.compact(),
    "expire": lambda t: t.maintain.expire(days=0),
    "collect": lambda t: t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0),
    "collect, dry": lambda t: t.maintain.collect_garbage(dry_run=True),
    "publish": lambda t: t.publish(),
    "rebuild": lambda t: t.publish(rebuild=True),
    "drop": lambda t: inlay.drop(t._ctx.uri),
    "drop at once": lambda t: inlay.drop(t._ctx.uri, grace=timedelta(0)),
}


def test_everything_that_changes_it_refuses_from_every_handle(tmp_path: Path) -> None:
    root = tmp_path / "t"
    old = a_table(root)
    old.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA), request_id="once")
    old.delete("id = 2")
    fresh = inlay.open(f"file://{root}")
    handed = fresh.maintain.hand_over()
    assert fresh.inspect.publication() is not None
    assert "handed over" in str(fresh.inspect.publication())
    before = everything(root)
    version = fresh.version
    for name, action in ACTIONS.items():
        for handle in (old, fresh, inlay.open(f"file://{root}")):
            with pytest.raises(TableHandedOver, match="--take-back"):
                action(handle)
            assert everything(root).keys() >= before.keys(), name
    assert inlay.open(f"file://{root}").version == version
    assert {k: v for k, v in everything(root).items() if k in before} == before
    # What was applied before is still answered, and reads go on.
    again = old.append(pa.table({"id": [3], "s": ["c"]}, schema=SCHEMA), request_id="once")
    assert again.applied_before
    assert ids(fresh) == [1, 3]
    assert sorted(r["id"] for r in read_table(handed.metadata)) == [1, 3]
    assert fresh.maintain.hand_over() == handed


def test_the_mark_can_neither_be_set_nor_removed_as_a_property(tmp_path: Path) -> None:
    t = a_table(tmp_path / "t")
    for name in ("handed__over", "erasure__chain"):
        for value in ("1", None):
            with pytest.raises(InvalidRequest, match="maintained by the library"):
                t.set_properties(**{name: value})


def test_what_is_committed_while_it_is_handed_over_is_handed_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the publication and the mark: it begins again."""
    t = a_table(tmp_path / "t")
    publish, raced = module.publish, 0

    def publish_and_race(ctx: Any) -> Any:
        nonlocal raced
        done = publish(ctx)
        if raced < 2:
            raced += 1
            inlay.open(ctx.uri).append(pa.table({"id": [100 + raced], "s": ["r"]}, schema=SCHEMA))
        return done

    monkeypatch.setattr(module, "publish", publish_and_race)
    handed = t.maintain.hand_over()
    assert sorted(r["id"] for r in read_table(handed.metadata)) == ids(t.refresh())
    assert ids(t) == [1, 2, 101, 102]


def test_a_row_committed_after_the_last_look_is_no_part_of_a_silent_hand_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark itself loses the race, and requires that no row changed."""
    t = a_table(tmp_path / "t")
    commit, raced = module.commit, 0

    def race_and_commit(ctx: Any, change: Any, *, base: Any) -> Any:
        nonlocal raced
        if not raced:
            raced += 1
            inlay.open(ctx.uri).append(MORE)
        return commit(ctx, change, base=base)

    monkeypatch.setattr(module, "commit", race_and_commit)
    handed = t.maintain.hand_over()
    assert sorted(r["id"] for r in read_table(handed.metadata)) == ids(t.refresh()) == [1, 2, 9]


def test_a_table_with_an_erasure_under_way_is_not_handed_over(tmp_path: Path) -> None:
    t = a_table(tmp_path / "t")
    t.delete("id = 1", mode="erase")
    with pytest.raises(InvalidRequest, match="erasure"):
        t.maintain.hand_over()
    assert HANDED_OVER not in t.refresh().snapshot.properties


def appended_elsewhere(engines_python: Path, t: Table, folder: Path, what: str = "append") -> None:
    root = Path(t._ctx.uri.removeprefix("file://"))
    pointer = json.loads((root / keys.PUBLISHED_POINTER).read_text())
    done = subprocess.run(
        [engines_python, PROGRAM, "pyiceberg", folder, pointer["metadata-location"], what],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "done", done.stderr


def test_what_the_other_catalog_adds_stays_and_is_given_up_by_name_only(
    tmp_path: Path, engines_python: Path
) -> None:
    root = tmp_path / "t"
    t = a_table(root, "v2")
    t.maintain.hand_over()
    before = everything(root)
    appended_elsewhere(engines_python, t, tmp_path)
    theirs = everything(root)
    assert theirs.keys() > before.keys()
    with pytest.raises(TableHandedOver):
        t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert everything(root) == theirs
    with pytest.raises(InvalidRequest, match="written here since") as refused:
        t.maintain.take_back()
    assert "--discard" in refused.value.next_step
    newest = max(root.glob("metadata/0*.metadata.json"))
    kept = inlay.adopt(newest.as_uri(), f"file://{tmp_path}/kept", copy=True)
    assert ids(kept) == [1, 2, 77]
    assert t.maintain.take_back(discard=True).others > 0
    for path in root.glob("metadata/0*.metadata.json"):
        path.unlink()  # collection asks for that by name
    t.append(MORE)
    t.publish()
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert ids(t) == [1, 2, 9] and t.maintain.verify(depth="pages").findings == ()
    assert not any("00000-" in name for name in everything(root))


def test_deletes_that_a_change_stream_remembers_are_nobody_elses(tmp_path: Path) -> None:
    """They were written within the second of the mark, as any object that came before it may be."""
    t = a_table(tmp_path / "t")
    t.alter(primary_key=["id"], add={"n": pa.int64()})
    gone = pa.table({"id": [1], "n": [9]})
    t.apply_changes(gone, order="n", delete_when="n = 9")
    t.maintain.hand_over()
    os.utime(tmp_path / "t" / "changes" / "_latest_manifest")  # later than the mark
    assert t.maintain.take_back().others == 0


def test_what_the_other_catalog_deleted_is_missed_by_name(
    tmp_path: Path, engines_python: Path
) -> None:
    t = a_table(tmp_path / "t", "v2")
    t.maintain.hand_over()
    appended_elsewhere(engines_python, t, tmp_path, "purge")
    with pytest.raises(InvalidRequest, match="are gone"):
        t.maintain.take_back(discard=True)


def test_the_command_prints_what_to_register_and_takes_it_back(tmp_path: Path) -> None:
    t = a_table(tmp_path / "t")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["hand-over", t._ctx.uri, *arguments])

    assert run("--discard").exit_code
    done = run("--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert Path(said["metadata"].removeprefix("file://")).exists()
    assert (said["published"], said["format"]) == (said["version"] - 1, "v3")
    with pytest.raises(TableHandedOver):
        t.append(MORE)
    assert run("--take-back", "--json").exit_code == 0
    assert run("--take-back").exit_code, "it is not handed over any more"
    t.refresh().append(MORE)
    assert t.publish().published

"""Publishers that are killed at each of their writes, and publishers that race."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.format import keys
from inlay.ops.metadata import publication
from inlay.ops.publish.publish import publish
from inlay.storage.wrapped import WrappedStore
from inlay.table import Table

from .iceberg_reader import read_table

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


class Killed(Exception):
    """The process ended here."""


class Dying(WrappedStore):
    """A store that calls `before` and `after` at each PUT with its key, counted from 1."""

    def __init__(
        self,
        store: Any,
        before: Callable[[int, str], None] = lambda n, key: None,
        after: Callable[[int, str], None] = lambda n, key: None,
    ) -> None:
        super().__init__(store)
        self.before, self.after = before, after
        self.puts = 0

    def put(self, key: str, body: bytes, **options: Any) -> Any:
        self.puts += 1
        at = self.puts
        self.before(at, key)
        answer = super().put(key, body, **options)
        self.after(at, key)
        return answer


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": list(range(first, last)), "s": [str(i) for i in range(first, last)]})


def table(tmp_path: Path) -> Table:
    t = inlay.create(f"file://{tmp_path}/t", SCHEMA, properties={"publish.format": "v3"})
    t.append(rows(0, 30))
    return t


def shown(tmp_path: Path) -> tuple[int, list[int]]:
    """The published version, and its ids."""
    pointer = json.loads((tmp_path / "t" / keys.PUBLISHED_POINTER).read_text())
    ids = sorted(r["id"] for r in read_table(pointer["metadata-location"]))
    return pointer["metadata"]["current-snapshot-id"], ids


def ids_at(tmp_path: Path, version: int | None = None) -> list[int]:
    found = inlay.open(f"file://{tmp_path}/t", version=version).scan(columns=["id"]).to_arrow()
    return sorted(found["id"].to_pylist())


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
def test_a_publisher_killed_at_any_write_leaves_a_whole_publication_and_the_next_one_goes_on(
    tmp_path: Path, landed: bool
) -> None:
    t = table(tmp_path)
    publish(t._ctx)

    def kill_at(wanted: int) -> Callable[[int, str], None]:
        def kill(n: int, key: str) -> None:
            if n == wanted:
                raise Killed(key)

        return kill

    for n in range(1, 40):
        t.append(rows(100 * n, 100 * n + 5))
        t.delete(f"id = {n} OR id = {100 * n}")  # to be settled first
        hook = {"after" if landed else "before": kill_at(n)}
        store = Dying(t._ctx.store, **hook)
        try:
            publish(replace(t._ctx, store=store))
        except Killed:
            version, ids = shown(tmp_path)
            assert ids == ids_at(tmp_path, version), n
            publish(t._ctx)
        t.refresh()
        assert shown(tmp_path) == (t.version, ids_at(tmp_path)), n
        hint = (tmp_path / "t" / keys.VERSION_HINT).read_text()
        assert hint == str(t.version)
        if store.puts < n:
            return
    raise AssertionError("a publication of more than 40 writes")


@pytest.mark.parametrize("at", [keys.PUBLISHED_POINTER, keys.VERSION_HINT, ".metadata.json"])
def test_a_publisher_that_stalls_never_takes_the_publication_back(tmp_path: Path, at: str) -> None:
    t = table(tmp_path)
    publish(t._ctx)
    t.append(rows(50, 60))
    overtaken: list[int] = []

    def overtake(n: int, key: str) -> None:
        if key.endswith(at) and not overtaken:
            other = inlay.open(f"file://{tmp_path}/t")
            other.append(rows(70, 80))
            overtaken.append(publish(other._ctx).version)

    publish(replace(t._ctx, store=Dying(t._ctx.store, before=overtake)))
    assert overtaken
    newest = inlay.open(f"file://{tmp_path}/t").version
    assert shown(tmp_path) == (newest, ids_at(tmp_path))
    assert (tmp_path / "t" / keys.VERSION_HINT).read_text() == str(newest)


def hint(tmp_path: Path) -> str:
    return (tmp_path / "t" / keys.VERSION_HINT).read_text()


@pytest.mark.parametrize("is_first", [False, True], ids=["there", "not there"])
def test_a_publisher_that_stalls_names_no_version_once_hints_are_switched_off(
    tmp_path: Path, is_first: bool
) -> None:
    """Readers of the folder would be shown its version for good."""
    t = table(tmp_path)
    if not is_first:
        publish(t._ctx)
    t.append(rows(50, 60))
    done: list[int] = []

    def switch_off(n: int, key: str) -> None:
        if key.endswith(keys.VERSION_HINT) and not done:
            other = inlay.open(f"file://{tmp_path}/t")
            other.set_properties(publish__version_hint="no")
            done.append(publish(other._ctx).version)

    publish(replace(t._ctx, store=Dying(t._ctx.store, before=switch_off)))
    assert done
    assert hint(tmp_path) == publication.NO_HINT
    assert shown(tmp_path) == (done[0], ids_at(tmp_path))


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
def test_hints_that_are_switched_off_and_on_name_the_newest_version_or_none(
    tmp_path: Path, landed: bool
) -> None:
    t = table(tmp_path)
    publish(t._ctx)

    def kill(n: int, key: str) -> None:
        if key.endswith(keys.VERSION_HINT):
            raise Killed(key)

    for wanted in ("no", "yes", "no"):
        t.set_properties(publish__version_hint=wanted)
        hook = {"after" if landed else "before": kill}
        with pytest.raises(Killed):
            publish(replace(t._ctx, store=Dying(t._ctx.store, **hook)))
        assert not publish(t._ctx).published, "the pointer was swapped before"
        assert hint(tmp_path) == (publication.NO_HINT if wanted == "no" else str(t.version))
        used = t.usage
        t.append(rows(50, 60))
        publish(t._ctx)
        puts = (t.usage - used).requests["put"]
        assert puts - 3 == (4 if wanted == "no" else 5), "an append, and a publication"
        assert hint(tmp_path) == (publication.NO_HINT if wanted == "no" else str(t.version))
    t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert hint(tmp_path) == publication.NO_HINT
    (tmp_path / "t" / keys.VERSION_HINT).unlink()
    publish(t._ctx)
    assert hint(tmp_path) == publication.NO_HINT, "it is there, so that nobody delayed makes one"


def test_two_publishers_of_one_version_agree_on_its_metadata(tmp_path: Path) -> None:
    t = table(tmp_path)
    done: list[bool] = []

    def race(n: int, key: str) -> None:
        if key.endswith(keys.PUBLISHED_POINTER) and not done:
            done.append(True)
            publish(inlay.open(f"file://{tmp_path}/t")._ctx)

    publish(replace(t._ctx, store=Dying(t._ctx.store, before=race)))
    assert done and shown(tmp_path) == (t.refresh().version, ids_at(tmp_path))
    pointer = json.loads((tmp_path / "t" / keys.PUBLISHED_POINTER).read_text())
    location = Path(pointer["metadata-location"].removeprefix("file://"))
    assert json.loads(location.read_text()) == pointer["metadata"]


def test_a_collector_that_began_before_a_commit_was_published_is_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the pointer; somebody commits and publishes; the version published has no archive yet."""
    t = table(tmp_path)
    publish(t._ctx)
    look = publication.find_reachable
    done: list[int] = []

    def find_reachable(ctx: Any) -> Any:
        if not done:
            other = inlay.open(f"file://{tmp_path}/t")
            other.append(rows(50, 60))
            done.append(publish(other._ctx).version)
        return look(ctx)

    monkeypatch.setattr(publication, "find_reachable", find_reachable)
    t.maintain.collect_garbage(grace=timedelta(0))
    assert done
    assert shown(tmp_path) == (done[0], ids_at(tmp_path, done[0]))

"""Write-once objects are created in one place, which believes no answer but a clear success."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import inlay
from inlay.errors import AccessDenied, KeyTaken, StoreUnavailable
from inlay.storage.base import Got
from inlay.storage.faults import Fate, FaultyStore, once
from inlay.storage.memory import MemoryStore
from inlay.storage.metered import MeteredStore
from inlay.storage.write_once import MAX_TRIES, write_once

PACKAGE = Path(inlay.__file__).parent
# What says, and what holds, the condition.
STORES = {"storage/base.py", "storage/write_once.py"}


def test_nothing_else_creates_an_object_under_a_condition():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            named = getattr(node, "id", None) or getattr(node, "attr", None)
            imported = isinstance(node, ast.alias) and node.name
            if {named, imported} & {"IF_ABSENT", "IfAbsent"} and name not in STORES:
                found.append(f"{name}:{getattr(node, 'lineno', 0)}")
    assert not found, (
        f"{found} create objects under a condition: call `write_once` (of the context, or "
        "`storage.write_once`), which sends a 409 again and compares what is there already"
    )


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.REFUSED])
def test_whatever_is_answered_the_bytes_are_there_when_it_returns(fate):
    store = MemoryStore("b")
    waits: list[int] = []
    faulty = FaultyStore(store, once(fate, verb="put"))
    done = write_once(faulty, "k", b"mine", metadata={"a": "b"}, before_retry=waits.append)
    found = store.get("k")
    assert isinstance(found, Got)
    assert found.body == b"mine"
    assert done.etag == found.etag
    assert store.head("k").info.metadata == {"a": "b"}
    assert waits == ([] if fate is Fate.REFUSED else [1])


def test_a_racer_that_wrote_the_same_bytes_is_as_good_as_oneself():
    store = MeteredStore(MemoryStore("b"))
    store.put("k", b"same")
    write_once(store, "k", memoryview(b"same"))
    assert dict(store.usage().requests) == {"put": 2, "get": 1}


def test_other_bytes_are_neither_believed_nor_overwritten():
    store = MemoryStore("b")
    store.put("k", b"theirs")
    with pytest.raises(KeyTaken) as told:
        write_once(store, "k", b"mine")
    assert told.value.key == "k"
    assert store.get("k").body == b"theirs"


def test_an_object_that_is_deleted_before_the_look_is_written_again():
    store = MemoryStore("b")
    store.put("k", b"theirs")

    def vanish(sent):
        if sent.verb == "get":
            store.delete(["k"])

    write_once(FaultyStore(store, before=vanish), "k", b"mine")
    assert store.get("k").body == b"mine"


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.RACE])
def test_it_gives_up_by_type_after_a_bounded_number_of_tries(fate):
    sent = []
    store = FaultyStore(MemoryStore("b"), lambda s: fate, before=sent.append)
    with pytest.raises(StoreUnavailable):
        write_once(store, "k", b"mine")
    assert len(sent) == MAX_TRIES


def test_a_look_that_fails_is_taken_again():
    store = MemoryStore("b")
    store.put("k", b"mine")
    write_once(FaultyStore(store, once(Fate.LOST, verb="get")), "k", b"mine")


def test_what_is_denied_is_told_at_once():
    class Denying(MemoryStore):
        def put(self, key, body, **how):
            raise AccessDenied("no", key=key)

    with pytest.raises(AccessDenied):
        write_once(Denying("b"), "k", b"mine")

"""Write-once objects are created in one place, which believes no answer but a clear success."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.simulator.faults import Fate, FaultyStore, once

import inlay
from inlay.errors import (
    AccessDenied,
    KeyTaken,
    ObjectGone,
    SourceChanged,
    StaleUpload,
    StoreUnavailable,
)
from inlay.ops.context import InlineExecutor
from inlay.storage.base import ByteRange, Got, Location, Missing, Refused
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore
from inlay.storage.write_once import (
    MAX_TRIES,
    Multipart,
    complete_once,
    copy_once,
    no_wait,
    write_once,
)

from ..erasure.people import new_people

PACKAGE = Path(inlay.__file__).parent
# What says, and what holds, the condition.
STORES = {
    "storage/base.py",
    "storage/write_once.py",
    "storage/azure.py",
    "storage/gcs.py",
    "storage/rules.py",
    "storage/s3.py",
    "storage/embedded_s3/rest.py",
}


def modules_with(words):
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield path.relative_to(PACKAGE).as_posix(), ast.walk(ast.parse(text))


def test_nothing_else_creates_an_object_under_a_condition():
    found = []
    for name, nodes in modules_with(("IF_ABSENT", "IfAbsent")):
        for node in nodes:
            named = getattr(node, "id", None) or getattr(node, "attr", None)
            imported = isinstance(node, ast.alias) and node.name
            if {named, imported} & {"IF_ABSENT", "IfAbsent"} and name not in STORES:
                found.append(f"{name}:{getattr(node, 'lineno', 0)}")
    assert not found, (
        f"{found} create objects under a condition: call `write_once` (of the context, or "
        "`storage.write_once`), which sends a 409 again and compares what is there already"
    )


# What creates an object, or passes on how to wait.
CREATORS = {
    *("write_once", "copy_once", "complete_once"),
    *("Multipart", "Assembly", "Target", "rewrite_object", "stamp_object"),
}


def test_whoever_creates_an_object_waits_before_the_next_try():
    calls, found = 0, []
    for name, nodes in modules_with(CREATORS):
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in CREATORS:
                calls += 1
                if "before_retry" not in {k.arg for k in node.keywords}:
                    found.append(f"{name}:{node.lineno}")
    assert calls > len(CREATORS)
    assert not found, f"{found} try again at once: pass the context's `back_off`"


def test_an_upload_in_parts_waits_before_it_is_completed_again():
    store, waits = MemoryStore("b"), []
    faulty = FaultyStore(store, once(Fate.RACE, verb="complete_multipart"))
    upload = Multipart(faulty, "k", InlineExecutor(), before_retry=waits.append)
    upload.send(lambda: b"part")
    upload.finish(4)
    assert waits == [1]
    assert store.get("k").body == b"part"


def test_a_data_file_waits_before_it_is_sent_again():
    times = []
    for fate in (Fate.DONE, Fate.RACE):
        people = new_people()
        other = people.on(FaultyStore(people.store, once(fate, verb="put")))
        began = people.time.seconds
        other.append(1, 2, 3)
        times.append(people.time.seconds - began)
        assert people.ids() == [1, 2, 3]
    assert times[1] > times[0]


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.TWICE])
def test_whatever_is_answered_the_bytes_are_there_when_it_returns(fate):
    store = MemoryStore("b")
    waits: list[int] = []
    faulty = FaultyStore(store, once(fate, verb="put"))
    done = write_once(
        faulty, "k", b"mine", headers={"ContentType": "a/b"}, before_retry=waits.append
    )
    found = store.get("k")
    assert isinstance(found, Got)
    assert found.body == b"mine"
    assert done.etag == found.etag
    assert store.head("k").info.headers == {"ContentType": "a/b"}
    assert waits == ([] if fate is Fate.TWICE else [1])


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


def test_giving_up_names_the_last_failure_and_its_next_step():
    class Full(MemoryStore):
        def put(self, *_, **__):
            raise StoreUnavailable("the file system has no space left", next_step="Free space")

    with pytest.raises(
        StoreUnavailable, match=r"in 6 tries: the file system has no space"
    ) as given:
        write_once(Full(), "k", b"x")
    assert given.value.next_step == "Free space"


def test_a_look_that_fails_is_taken_again():
    store = MemoryStore("b")
    store.put("k", b"mine")
    write_once(FaultyStore(store, once(Fate.LOST, verb="get")), "k", b"mine")


def test_what_is_denied_is_reported_at_once():
    class Denying(MemoryStore):
        def put(self, key, body, **how):
            raise AccessDenied("no", key=key)

    with pytest.raises(AccessDenied):
        write_once(Denying("b"), "k", b"mine")


# -- copies and multipart objects -----------------------------------------------------------------

SOURCE = Location("memory", "b", "source")


def of_copy(store, inner):
    source = inner.put("source", b"mine", metadata={"a": "b"})
    return lambda: copy_once(store, SOURCE, "k", size=4, etag=source.etag)


def of_parts(store, inner):
    upload = inner.create_multipart("k")
    part = inner.upload_part("k", upload, 1, b"mine")
    return lambda: complete_once(store, "k", upload, [part], size=4)


@pytest.mark.parametrize("fate", [Fate.DONE, Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.TWICE])
@pytest.mark.parametrize(("verb", "make"), [("copy", of_copy), ("complete_multipart", of_parts)])
def test_a_copy_and_a_multipart_object_are_written_once_whatever_is_answered(verb, make, fate):
    inner = MemoryStore("b")
    inner.enable_versioning()
    done = make(FaultyStore(inner, once(fate, verb=verb)), inner)()
    found = inner.get("k")
    assert (found.body, found.etag, found.version_id) == (b"mine", done.etag, done.version_id)
    assert done.was_there == (fate in (Fate.LOST, Fate.TWICE))
    assert len(list(inner.list_versions("k"))) == 1


@pytest.mark.parametrize("make", [of_copy, of_parts])
def test_neither_overwrites_another_object(make):
    inner = MemoryStore("b")
    inner.put("k", b"somebody's")
    with pytest.raises(KeyTaken):
        make(inner, inner)()
    assert inner.get("k").body == b"somebody's"


@pytest.mark.parametrize("make", [of_copy, of_parts])
@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.RACE])
def test_both_give_up_by_type(make, fate):
    inner = MemoryStore("b")
    with pytest.raises(StoreUnavailable):
        make(FaultyStore(inner, lambda s: fate), inner)()
    assert isinstance(inner.get("k"), Missing)


def test_a_copy_of_what_changed_or_is_gone_is_distinguished_from_one_that_landed():
    inner = MemoryStore("b")
    copy = of_copy(inner, inner)
    inner.put("source", b"else")
    with pytest.raises(SourceChanged):
        copy()
    inner.delete(["source"])
    with pytest.raises(ObjectGone):
        copy()
    assert isinstance(inner.get("k"), Missing)

    # It landed, its answer was lost, and then the source went.
    lost = of_copy(
        FaultyStore(inner, once(Fate.LOST), after=lambda sent: inner.delete(["source"])), inner
    )
    assert lost().was_there


@pytest.mark.parametrize("answer", [Refused("exists", 0), Missing(0)])
def test_a_copy_that_is_refused_though_its_source_is_as_it_was_is_sent_again(answer):
    """Whoever landed the source would be told that it was overwritten, and its rows would never come."""

    class Refusing(MemoryStore):
        left = 1

        def copy(self, *args, **how):
            self.left -= 1
            return answer if self.left == 0 else super().copy(*args, **how)

    store = Refusing("b")
    assert not of_copy(store, store)().was_there
    assert store.get("k").body == b"mine"


@pytest.mark.parametrize("answer", [Refused("exists", 0), Missing(0)])
def test_a_part_that_is_refused_though_its_source_is_as_it_was_is_unknown(answer):
    class Refusing(MemoryStore):
        def upload_part_copy(self, *args, **how):
            return answer

    store = Refusing("b")
    source = store.put("source", b"mine")
    upload = Multipart(store, "k", InlineExecutor(), before_retry=no_wait)
    with pytest.raises(StoreUnavailable):
        upload.copy(SOURCE, ByteRange(0, 4), source.etag)
        upload.drain()
    store.delete(["source"])
    with pytest.raises(ObjectGone):
        upload.copy(SOURCE, ByteRange(0, 4), source.etag)
        upload.drain()


def test_an_aborted_upload_is_no_object():
    inner = MemoryStore("b")
    complete = of_parts(inner, inner)
    (upload,) = inner.list_uploads("")
    inner.abort_multipart("k", upload.upload_id)
    with pytest.raises(StaleUpload):
        complete()

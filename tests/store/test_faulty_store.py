"""The faulty store: every request can go wrong in every way it can on S3, and in no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulator.faults import Fate, FaultyStore, Killed, Request, Sent, once

from inlay.errors import StoreUnavailable
from inlay.storage.base import (
    IF_ABSENT,
    MIN_PART_BYTES,
    ByteRange,
    Got,
    IfMatch,
    Location,
    Missing,
    ObjectStore,
    Refused,
    Written,
)
from inlay.storage.memory import MemoryStore

SOURCE = Location("memory", "memory", "src")


def prepared() -> tuple[MemoryStore, str, str]:
    """A store with a source object; its ETag; an upload with one part."""
    store = MemoryStore()
    source = store.put("src", b"x" * (MIN_PART_BYTES + 1))
    assert isinstance(source, Written)
    upload = store.create_multipart("up")
    store.upload_part("up", upload, 1, b"part")
    return store, source.etag, upload


def every_request(
    store: ObjectStore, etag: str, upload: str
) -> dict[str, tuple[str, Callable[[], object]]]:
    """Each method of a store: the verb it counts as, and a call."""
    return {
        "get": ("get", lambda: store.get("src")),
        "get_suffix": ("get", lambda: store.get_suffix("src", 4)),
        "head": ("head", lambda: store.head("src")),
        "put": ("put", lambda: store.put("k", b"1")),
        "copy": ("copy", lambda: store.copy(SOURCE, "copied")),
        "list": ("list", lambda: list(store.list(""))),
        "list_prefixes": ("list", lambda: list(store.list_prefixes(""))),
        "delete": ("delete", lambda: store.delete(["gone"])),
        "delete_unchanged": ("delete", lambda: store.delete_unchanged([("gone", "etag")])),
        "create_multipart": ("create_multipart", lambda: store.create_multipart("k")),
        "upload_part": ("upload_part", lambda: store.upload_part("up", upload, 2, b"1")),
        "upload_part_copy": (
            "upload_part_copy",
            lambda: store.upload_part_copy(
                "up", upload, 3, source=SOURCE, byte_range=ByteRange(0, 1), if_source_match=etag
            ),
        ),
        "complete_multipart": (
            "complete_multipart",
            lambda: store.complete_multipart("up", "no such upload", []),
        ),
        "abort_multipart": ("abort_multipart", lambda: store.abort_multipart("k", "none")),
        "list_uploads": ("list_uploads", lambda: list(store.list_uploads(""))),
        "list_versions": ("list_versions", lambda: list(store.list_versions(""))),
        "delete_versions": ("delete", lambda: store.delete_versions([("gone", "null")])),
    }


METHODS = sorted(every_request(MemoryStore(), "", ""))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fate", "error"),
    [
        (Fate.DONE, None),
        (Fate.UNSENT, StoreUnavailable),
        (Fate.LOST, StoreUnavailable),
        (Fate.KILLED_BEFORE, Killed),
        (Fate.KILLED_AFTER, Killed),
    ],
)
def test_every_method_meets_its_fate(
    method: str, fate: Fate, error: type[BaseException] | None
) -> None:
    inner, etag, upload = prepared()
    seen: list[Sent] = []

    def plan(sent: Sent) -> Fate:
        seen.append(sent)
        return fate

    store = FaultyStore(inner, plan)
    verb, call = every_request(store, etag, upload)[method]
    if error is None:
        call()
    else:
        with pytest.raises(error):
            call()
    assert [(sent.number, sent.verb) for sent in seen] == [(1, verb)]


def test_every_method_of_a_store_is_covered() -> None:
    protocol = {name for name in vars(ObjectStore) if not name.startswith("_")}
    assert protocol - {"scheme", "bucket", "at", "copies_ranges"} == set(METHODS)


@pytest.mark.parametrize(
    ("fate", "landed"),
    [
        (Fate.UNSENT, False),
        (Fate.LOST, True),
        (Fate.KILLED_BEFORE, False),
        (Fate.KILLED_AFTER, True),
    ],
)
def test_what_failed_may_have_landed(fate: Fate, landed: bool) -> None:
    inner = MemoryStore()
    with pytest.raises((StoreUnavailable, Killed)):
        FaultyStore(inner, once(fate)).put("k", b"1")
    assert isinstance(inner.get("k"), Got if landed else Missing)


def test_a_race_is_refused_and_nothing_happens() -> None:
    inner = MemoryStore()
    refused = FaultyStore(inner, once(Fate.RACE)).put("k", b"1", condition=IF_ABSENT)
    assert isinstance(refused, Refused)
    assert refused.reason == "race"
    assert isinstance(inner.get("k"), Missing)


def test_a_swap_can_land_and_be_refused() -> None:
    inner = MemoryStore()
    old = inner.put("k", b"1")
    assert isinstance(old, Written)
    store = FaultyStore(inner, once(Fate.TWICE))
    refused = store.put("k", b"2", condition=IfMatch(old.etag))
    assert isinstance(refused, Refused)
    assert refused.reason == "exists"
    answer = inner.get("k")
    assert isinstance(answer, Got)
    assert answer.body == b"2"


def test_a_completion_can_land_and_say_no_such_upload() -> None:
    inner = MemoryStore()
    upload = inner.create_multipart("k")
    part = inner.upload_part("k", upload, 1, b"1")
    store = FaultyStore(inner, once(Fate.TWICE))
    assert isinstance(store.complete_multipart("k", upload, [part]), Missing)
    assert isinstance(inner.get("k"), Got)


def test_a_client_that_sends_again_reports_the_second_answer() -> None:
    inner = MemoryStore()
    made = FaultyStore(inner, once(Fate.RESENT)).put("k", b"1", condition=IF_ABSENT)
    assert isinstance(made, Written)
    refused = FaultyStore(inner, once(Fate.RESENT)).put("k", b"1", condition=IF_ABSENT)
    assert isinstance(refused, Refused)


def test_what_was_sent_again_may_arrive_after_all_is_gone() -> None:
    inner, held = MemoryStore(), list[Request]()
    store = FaultyStore(inner, once(Fate.GHOST), later=held.append)
    assert isinstance(store.put("k", b"1", condition=IF_ABSENT), Written)
    assert isinstance(held[0](), Refused)
    inner.delete(["k"])
    assert isinstance(held[0](), Written)
    with pytest.raises(ValueError, match="cannot meet"):
        FaultyStore(inner, lambda sent: Fate.GHOST, later=held.append).delete(["k"])


def test_an_unconditional_write_cannot_lose_a_race() -> None:
    store = FaultyStore(MemoryStore(), lambda sent: Fate.RACE)
    with pytest.raises(ValueError, match="cannot meet"):
        store.put("k", b"1")


def test_a_dead_process_sends_nothing_more() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, once(Fate.KILLED_BEFORE))
    with pytest.raises(Killed):
        store.get("k")
    with pytest.raises(Killed):
        store.put("k", b"1")
    with pytest.raises(Killed):
        store.at("other").put("k", b"1")
    assert isinstance(inner.get("k"), Missing)
    FaultyStore(inner).put("k", b"another process")
    assert isinstance(inner.get("k"), Got)


def test_each_page_and_each_batch_is_a_request() -> None:
    inner = MemoryStore()
    keys = [f"k{n:05d}" for n in range(1_500)]
    for key in keys:
        inner.put(key, b"")

    def second_fails(sent: Sent) -> Fate:
        return Fate.UNSENT if sent.number == 2 else Fate.DONE

    seen = []
    with pytest.raises(StoreUnavailable):
        for info in FaultyStore(inner, second_fails).list(""):
            seen.append(info.key)
    assert seen == keys[:1_000]
    with pytest.raises(StoreUnavailable):
        FaultyStore(inner, second_fails).delete(keys)
    assert [info.key for info in inner.list("")] == keys[1_000:]


def test_hooks_run_around_each_request() -> None:
    events: list[tuple[str, int, str]] = []
    store = FaultyStore(
        MemoryStore(),
        once(Fate.UNSENT),
        before=lambda sent: events.append(("before", sent.number, sent.key)),
        after=lambda sent: events.append(("after", sent.number, sent.key)),
    )
    with pytest.raises(StoreUnavailable):
        store.get("a")
    store.get("b")
    assert events == [("before", 1, "a"), ("after", 1, "a"), ("before", 2, "b"), ("after", 2, "b")]


def test_a_late_request_arrives_when_it_is_let_go() -> None:
    inner = MemoryStore()
    flying: list[Callable[[], object]] = []
    store = FaultyStore(inner, once(Fate.LATE), later=flying.append)
    with pytest.raises(StoreUnavailable):
        store.put("k", b"1", condition=IF_ABSENT)
    assert isinstance(inner.get("k"), Missing)
    flying.pop()()
    assert isinstance(inner.get("k"), Got)


def test_twice_is_done_twice_with_a_turn_for_others_between() -> None:
    inner = MemoryStore()
    inner.enable_versioning()
    between: list[int] = []
    store = FaultyStore(
        inner,
        once(Fate.TWICE),
        again=lambda sent: between.append(len(list(inner.list_versions("k")))),
    )
    assert isinstance(store.put("k", b"1"), Written)
    assert between == [1]
    assert len(list(inner.list_versions("k"))) == 2

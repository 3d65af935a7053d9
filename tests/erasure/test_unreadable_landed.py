"""Landed objects that the store does not hand over: denied, archived, under keys of their producers. What
they hold is unknown, so erasures wait for each by name, until it can be read, is replaced or waived."""

from __future__ import annotations

from typing import Any

import pytest
from tests.erasure.people import WHO, People, ids_with

from inlay.errors import InlayError
from inlay.ops.commit.driver import commit
from inlay.ops.erase.request import erase_status
from inlay.ops.erase.waive import waive_landed
from inlay.ops.write.ingest import Rejected
from inlay.plan.change import Change, SetProperties
from inlay.storage.memory import MemoryStore
from inlay.storage.s3_errors import of_answer

ZONE = "ingest/people/"
FORMATS = SetProperties({"ingest.formats": "parquet,csv,json"})
# What S3 answers: status, code, message, and whether a HEAD is answered so, too.
ANSWERS: dict[str, tuple[int, str, str, bool]] = {
    "by the role, or the key of KMS": (403, "AccessDenied", "no", True),
    "under a key of KMS that is off": (400, "KMS.DisabledException", "is disabled", False),
    "in an archive": (403, "InvalidObjectState", "not valid for the storage class", False),
    "under a key of its producer (SSE-C)": (
        400,
        "InvalidRequest",
        "The object was stored using a form of Server Side Encryption. The correct parameters must "
        "be provided to retrieve the object.",
        True,
    ),
}


@pytest.fixture(params=ANSWERS)
def closed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys that the store does not hand over."""
    status, code, message, heads = ANSWERS[request.param]
    keys: set[str] = set()

    def refusing(name: str) -> Any:
        real = getattr(MemoryStore, name)

        def call(store: MemoryStore, key: Any, *rest: Any, **named: Any) -> Any:
            if getattr(key, "key", key) in keys:
                raise of_answer(status, code, message, store.bucket, str(key))
            return real(store, key, *rest, **named)

        return call

    for name in ("get", "get_suffix", "copy", *(["head"] if heads else [])):
        monkeypatch.setattr(MemoryStore, name, refusing(name))
    return keys


@pytest.mark.parametrize("name", ["a.parquet", "a", "a.csv", "a.json.gz"])
def test_an_erasure_waits_for_it_by_name_until_it_is_waived(
    people: People, closed: set[str], name: str
) -> None:
    commit(people.ctx, Change(operation="set", updates=(FORMATS,)))
    people.append(*ids_with(WHO))
    location = people.land(name, WHO)
    closed.add(location.key)
    [outcome] = people.ingest(location).outcomes
    assert isinstance(outcome, Rejected) and isinstance(outcome.error, InlayError)
    assert outcome.error.next_step
    people.erase()
    assert not people.finish().receipts
    [status] = erase_status(people.ctx, landing=ZONE)
    assert [w.name for w in status.waiting] == [location.key]
    assert "cannot be read" in status.waiting[0].reason
    waive_landed(people.ctx, location.key, reason="the producer's, case 7")
    assert people.finish().receipts


def test_and_its_rows_come_in_clean_once_it_can_be_read(people: People, closed: set[str]) -> None:
    people.append(*ids_with(start=100))
    location = people.land("a.parquet", WHO, 7)
    closed.add(location.key)
    people.ingest(location)
    people.erase()
    assert not people.finish().receipts
    closed.clear()
    people.ingest(location)
    assert 7 in people.ids() and WHO not in people.ids()
    assert people.finish().receipts
    assert people.found() == []


def test_what_no_ingestion_takes_keeps_nobody_waiting(people: People, closed: set[str]) -> None:
    people.append(*ids_with(WHO))
    for name in ("_SUCCESS", "a.parquet.tmp", "_delta_log/0.json"):
        people.store.put(f"{ZONE}{name}", b"junk")
        closed.add(f"{ZONE}{name}")
    people.erase()
    assert people.finish().receipts

"""Whoever can read the bucket cannot confirm a guess of who was erased: nothing in it is a plain digest of
anything the person's requests said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import Fate, FaultyStore, Sent

import inlay
from inlay.format.predicate import Predicate
from inlay.functions.requests import DeleteRequest
from inlay.ops.write.delete import delete_keys
from inlay.plan.change import Request
from inlay.plan.metadata.state import LedgerSalt

from .oracle import guess
from .people import NAME, WHO, People, ids_with, is_named, is_who, new_people, touch

OTHERS = (WHO - 1, WHO + 1)
MESSAGES = (
    {"table": "people", "where": f"id = {WHO}", "mode": "erase"},
    {"table": "people", "where": f"name = '{NAME}'"},
    {"table": "people", "keys": [WHO]},
    {"table": "people", "keys": {"name": [NAME]}},
)


def guesses() -> Iterator[str]:
    """What an outsider would try for this person, knowing how the library words requests."""
    for predicate in (is_who(), is_named()):
        yield str(predicate)
        for mode in (None, "erase", "tombstone", "vector"):
            yield f"{mode}:None:{predicate}"
    for message in MESSAGES:
        yield DeleteRequest.model_validate(message).body
        yield json.dumps(message)
    yield from (str(WHO), NAME, f"id = {WHO}", f"name = '{NAME}'", repr(NAME))


def erase_message(people: People, message: dict[str, Any], request_id: str) -> None:
    """As the delete function does."""
    body = DeleteRequest.model_validate(message).body
    request = Request.of(request_id, body=body)
    if "where" in message:
        asked: Predicate = is_who() if "id" in message["where"] else is_named()
        if message.get("mode") == "erase":
            from inlay.ops.erase.request import open_erasure

            open_erasure(people.ctx, asked, request=request)
        else:
            people.delete(asked, request=request)
    else:
        columns = message["keys"] if isinstance(message["keys"], dict) else {"id": message["keys"]}
        people.time.sleep(1)
        delete_keys(people.ctx, pa.table(columns), request=request)


def _deletes(people: People) -> list[Callable[[], object]]:
    table = inlay.open(people.ctx.uri, context=people.ctx)
    return [
        lambda: erase_message(people, MESSAGES[1], "message-1"),
        lambda: erase_message(people, MESSAGES[2], "message-2"),
        lambda: erase_message(people, MESSAGES[3], "message-3"),
        lambda: table.refresh().delete(is_who(), request_id="call-1"),
        lambda: table.refresh().delete(is_named(), mode="vector", request_id="call-2"),
        lambda: table.refresh().delete(keys=pa.table({"id": [WHO]}), request_id="call-3"),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_no_digest_of_what_was_asked_is_left(seed: int) -> None:
    rng = random.Random(seed)
    people = new_people(versioned=bool(seed % 2))
    people.append(*ids_with(WHO))
    people.append(*ids_with(WHO, start=20))
    asked = _deletes(people)
    rng.shuffle(asked)
    before = rng.randrange(len(asked) + 1)
    for ask in asked[:before]:
        ask()
        if rng.random() < 0.3:
            for n in range(40):  # so that the ledger rolls into segments
                people.delete(is_who(n), request=Request.of(f"other {n} {seed}", body=str(n)))
    erase_message(people, MESSAGES[0], "case-1")
    for ask in asked[before:]:
        ask()
    touch(people.ctx)
    assert people.finish().receipts
    assert people.found() == []
    assert guess(people.store, guesses()) == []


def test_the_oracle_sees_a_plain_digest() -> None:
    """Were requests digested without a salt, or under one that is still there, it would be found."""
    people = new_people()
    people.append(*ids_with(WHO))
    request = Request.of("case-1", body=f"None:None:{is_who()}")
    people.delete(is_who(), request=request)
    assert guess(people.store, guesses()) == []
    salt = LedgerSalt.of(people.snapshot.properties)
    assert salt is not None and request.body is not None
    [record] = people.snapshot.ledger.records.inline
    assert record.body == salt.digest(request.body)
    people.store.put("tables/people/ledger-of-old", json.dumps({"b": request.body.hex()}).encode())
    assert len(guess(people.store, guesses())) > 0


def test_a_salt_that_was_lost_proves_nothing_and_refuses_nothing() -> None:
    people = new_people()
    people.append(*ids_with(WHO))
    first = Request.of("delete-1", body="one")
    people.delete(is_who(3), request=first)
    before = LedgerSalt.of(people.snapshot.properties)
    people.erase()
    people.finish()
    after = LedgerSalt.of(people.snapshot.properties)
    assert before is not None and after is not None
    assert (before.text != after.text, after.since > before.since) == (True, True)
    assert before.text.encode() not in b"".join(
        v.body for versions in people.store._bucket.versions.values() for v in versions
    )
    people.append(3)
    people.delete(is_who(3), request=first)  # it came again
    assert 3 in people.ids()


def test_a_table_of_a_library_without_salts_compares_as_it_did() -> None:
    """Records from before the first salt have plain digests: they are compared as such."""
    from dataclasses import replace

    from inlay.errors import RequestReused
    from inlay.format.codec import encode_snapshot
    from inlay.format.entry import LedgerRecord
    from inlay.format.snapshot import Ledger, Tier
    from inlay.storage.base import IfMatch

    people = new_people()
    people.append(*ids_with())
    old = Request.of("old", body="of old")
    people.delete(is_who(1), request=old)
    snapshot = people.snapshot
    [record] = snapshot.ledger.records.inline
    plain = LedgerRecord(record.id, old.body, record.version, record.time_us)
    properties = {k: v for k, v in snapshot.properties.items() if k != "ledger.salt"}
    ledger: Ledger = replace(snapshot.ledger, records=Tier((), (plain,)))
    key = people.ctx.key("_latest_manifest")
    etag = people.store.get(key).etag
    body = encode_snapshot(replace(snapshot, properties=properties, ledger=ledger))
    people.store.put(key, body, condition=IfMatch(etag))

    for asked in ("salted", "again"):
        people.delete(is_who(2), request=Request.of(asked, body=asked))
        people.append(1)
        people.delete(is_who(1), request=old)
        assert 1 in people.ids()
        with pytest.raises(RequestReused):
            people.delete(is_who(1), request=Request.of("old", body="of another"))


def test_nobody_sets_or_takes_away_the_salt() -> None:
    from inlay.errors import InvalidRequest

    people = new_people()
    people.append(*ids_with())
    people.delete(is_who(1), request=Request.of("a", body="a"))
    table = inlay.open(people.ctx.uri, context=people.ctx)
    with pytest.raises(InvalidRequest, match="maintained by the library"):
        table.set_properties(ledger__salt="x:1:1")
    salt = people.snapshot.properties["ledger.salt"]
    table.set_properties(ledger__salt=None)
    assert people.snapshot.properties["ledger.salt"] == salt
    assert "ledger.salt" not in table.refresh().properties


def test_user_metadata_tags_and_headers_of_landed_objects_do_not_come_along(
    any_people: People,
) -> None:
    people = any_people
    landed = people.land("a.parquet", *ids_with(WHO, start=20))
    body = people.store.get(landed.key).body
    told = {"owner": NAME.replace("zz", "xx"), "case": str(WHO)}
    headers = {
        "ContentDisposition": f'attachment; filename="{WHO}.parquet"',
        "Tagging": f"who={WHO}",
    }
    people.store.put(landed.key, body, metadata=told, headers=headers)
    people.ingest(landed)
    [entry] = people.snapshot.files.inline
    info = people.store.head(people.ctx.key(entry.key)).info
    assert dict(info.metadata) == {}
    assert set(info.headers) <= {"ContentType"}
    # A file that an older library copied with them: surgery leaves them behind.
    kept = people.store.get(people.ctx.key(entry.key)).body
    people.store.put(
        people.ctx.key(entry.key),
        kept,
        metadata=told,
        headers={**headers, "StorageClass": "STANDARD_IA"},
    )
    people.erase()
    assert people.finish().receipts
    assert people.found() == []
    [entry] = people.snapshot.files.inline
    headers = people.store.head(people.ctx.key(entry.key)).info.headers
    assert set(headers) <= {"StorageClass", "ContentType"}


def test_a_branch_dropped_at_any_request_stops_nobody() -> None:
    """Whoever rewrites or purges goes on with the others."""
    from inlay.format.snapshot import Ref
    from inlay.ops.refs import branch, drop

    def prepared() -> People:
        people = new_people()
        people.append(*ids_with(WHO))
        here = Ref(kind="tag", version=people.snapshot.version)
        branch(people.ctx, "a", here)
        branch(people.ctx, "b", here)
        people.append(*ids_with(WHO, start=20))
        people.erase()
        return people

    def run(at: int) -> int:
        people = prepared()
        sent_numbers: list[int] = []

        def strike(sent: Sent) -> Fate:
            sent_numbers.append(sent.number)
            if sent.number == at:
                drop(people.ctx, "a")
            return Fate.DONE

        worker = people.on(FaultyStore(people.store, strike))
        worker.advance()
        worker.collect()
        drop(people.ctx, "a") if "a" in people.snapshot.refs else None
        assert people.finish().receipts
        assert people.found() == []
        return max(sent_numbers)

    last = run(0)
    for at in range(1, last, 3):
        run(at)

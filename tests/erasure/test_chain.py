"""Receipts form a chain that can be signed: what an outsider can check without trusting the operator, and
every forgery that was thought of. A receipt says nothing of other people's requests."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.simulator.faults import Fate, FaultyStore, Killed, Sent
from tests.tiers import in_short

from inlay.errors import CorruptTable, InlayError, InvalidRequest
from inlay.format.codec import decode_frame, decode_snapshot, encode_frame, encode_snapshot
from inlay.format.keys import receipt_key
from inlay.format.properties import check_properties
from inlay.ops.erase.check_receipt import Asked, ReceiptCheck, read_receipts, verify_receipt
from inlay.ops.erase.p256 import KeyFile, PublicKey
from inlay.ops.erase.receipt import LIST_KIND, Lists, encode_receipt
from inlay.ops.erase.signing import envelope_of
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.plan.receipt_chain import Chain, root_of

from .crashes import process_on, strikes
from .people import (
    CITY,
    KEY,
    NAME,
    SCHEMA,
    WHO,
    People,
    ids_with,
    in_memory,
    is_named,
    is_who,
    new_people,
    rows,
)
from .test_receipt import receipt

OTHER = 77


def a_key() -> tuple[KeyFile, PublicKey]:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyFile(pem), PublicKey(public)


SIGNER, PUBLIC = a_key()


def finish(people: People, **options: Any) -> tuple[str, ...]:
    """Ends every open erasure."""
    people.advance()
    options = {"signer": SIGNER, **options}
    receipts = people.collect(**options).receipts
    for _ in range(3):
        people.time.sleep(1000)
        receipts += people.collect(**options).receipts
    return receipts


def three_receipts(seed: int = 11) -> People:
    """Of two passes: the first made two, of hers and another's."""
    return _three_receipts(seed).copy()


@cache
def _three_receipts(seed: int) -> People:
    people = in_memory(seed)
    create(people.ctx, SCHEMA, primary_key=["id"], properties={"write.row_group_rows": 4})
    people.append(*ids_with(WHO, OTHER))
    people.append(*ids_with(start=200))
    people.erase()
    people.erase(is_who(OTHER), "case-2")
    assert len(finish(people)) == 2
    people.erase(is_who(3), "case-3")
    assert finish(people) == ("erasure/case-3.json",)
    return people


def check(people: People, name: str = "case-1", **options: Any) -> ReceiptCheck:
    asked = Asked(predicate=is_who(), key=KEY)
    return verify_receipt(people.ctx, name, **{"asked": asked, "public_key": PUBLIC, **options})


def test_an_honest_receipt_passes_every_check() -> None:
    people = three_receipts()
    found = check(people)
    assert (found.problems, found.number, found.rows, found.missing) == ((), 1, 0, ())
    assert found.signed == f"by {SIGNER.key_id}, checked"
    assert [receipt(people, f"case-{n}")["number"] for n in (1, 2, 3)] == [1, 2, 3]
    third = check(people, "case-3", asked=Asked(predicate=is_who(3), key=KEY))
    assert (third.problems, third.number) == ((), 3)


def test_without_keys_it_says_what_was_not_checked() -> None:
    people = three_receipts()
    found = verify_receipt(people.ctx, "case-1", asked=Asked(predicate=is_who()))
    assert found.problems == () and "not checked" in found.signed
    assert any("was not compared" in line for line in found.named)


def test_a_person_who_came_back_is_named_with_the_version() -> None:
    people = three_receipts()
    people.append(WHO)
    found = check(people)
    assert (found.problems, found.rows) == ((), 1)
    [line] = [line for line in found.named if "that the condition selects" in line]
    assert line.endswith(f"came with version {people.snapshot.version}, later")


def test_receipts_of_one_person_in_two_tables_have_no_digest_in_common() -> None:
    digests = []
    for seed in range(2):
        people = in_memory(seed)
        create(people.ctx, SCHEMA, primary_key=["id"])
        people.append(*ids_with(WHO))
        people.erase()
        finish(people)
        digests.append(receipt(people)["predicate_hmac_sha256"])
    assert digests[0] != digests[1]


# -- forgeries ------------------------------------------------------------------------------------


def put(people: People, key: str, data: bytes) -> None:
    people.store.put(people.ctx.key(key), data)


def changed(people: People, name: str = "case-1", **members: Any) -> None:
    put(people, receipt_key(name), encode_receipt({**_plain(receipt(people, name)), **members}))


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k not in ("inlay", "kind", "digest")}


def lists(people: People, step: str) -> list[str]:
    root = people.ctx.key("")
    found = [o.key.removeprefix(root) for o in people.store.list(root + "evidence/")]
    return sorted(key for key in found if f"-{step}-" in key)


def frame(people: People, key: str) -> dict[str, Any]:
    return _plain(decode_frame(LIST_KIND, people.store.get(people.ctx.key(key)).body, key=key))


def emptied(people: People) -> None:
    [first, *_] = lists(people, "gone")
    put(people, first, encode_frame(LIST_KIND, {**frame(people, first), "objects": []}))


def copied(people: People) -> None:
    data = people.store.get(people.ctx.key(receipt_key("case-1"))).body
    put(people, receipt_key("case-9"), data)


def forged_whole_chain(people: People, signer: KeyFile | None) -> None:
    """By somebody who may write to the bucket, pointer included, but has no key: a receipt is changed, and
    the pass that made it says so."""
    changed(people, "case-3", ended_us=0)
    data = people.store.get(people.ctx.key(receipt_key("case-3"))).body
    last = lists(people, "pass")[-1]
    body = frame(people, last)
    statement = json.loads(body["statement"])
    digests = [sha256(data).hexdigest()]
    statement["root"] = root_of(digests)
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"))
    envelope = body["envelope"]
    if signer is not None:
        envelope = envelope_of(text.encode(), signer)
    put(
        people,
        last,
        encode_frame(
            LIST_KIND, {**body, "statement": text, "receipts": digests, "envelope": envelope}
        ),
    )
    chain = Chain.of(people.snapshot.properties)
    forged = replace(
        chain, receipt=sha256(data).hexdigest(), statement=sha256(text.encode()).hexdigest()
    )
    key = people.ctx.key("_latest_manifest")
    pointer = people.store.get(key).body
    snapshot = decode_snapshot(pointer, key=key)
    properties = {**snapshot.properties, "erasure.chain": forged.as_property}
    people.store.put(key, encode_snapshot(replace(snapshot, properties=properties)))


def a_stranger() -> KeyFile:
    return a_key()[0]


def unsigned(people: People) -> None:
    for key in lists(people, "pass"):
        put(people, key, encode_frame(LIST_KIND, {**frame(people, key), "envelope": None}))


def other_signature(people: People) -> None:
    """The signature of another statement."""
    first, second = lists(people, "pass")
    other = frame(people, second)["envelope"]
    put(people, first, encode_frame(LIST_KIND, {**frame(people, first), "envelope": other}))


def resigned_payload(people: People) -> None:
    """The envelope has another payload than the statement that is read."""
    [first, _] = lists(people, "pass")
    body = frame(people, first)
    payload = base64.b64encode(b"{}").decode()
    envelope = {**body["envelope"], "payload": payload}
    put(people, first, encode_frame(LIST_KIND, {**body, "envelope": envelope}))


def dropped(people: People) -> None:
    people.store.delete([people.ctx.key(receipt_key("case-2"))])


def swapped(people: People) -> None:
    """Two receipts under each other's names."""
    one, two = (people.store.get(people.ctx.key(receipt_key(n))).body for n in ("case-1", "case-2"))
    put(people, receipt_key("case-1"), two)
    put(people, receipt_key("case-2"), one)


def with_chain(people: People, value: str | None) -> None:
    """The pointer as somebody may write it who may write to the bucket."""
    key = people.ctx.key("_latest_manifest")
    snapshot = decode_snapshot(people.store.get(key).body, key=key)
    properties = {**snapshot.properties, "erasure.chain": value}
    kept = {k: v for k, v in properties.items() if v is not None}
    people.store.put(key, encode_snapshot(replace(snapshot, properties=kept)))


def set_back(people: People) -> None:
    """The chain ends with the first pass again."""
    first = frame(people, lists(people, "pass")[0])
    with_chain(
        people, f"2:{first['receipts'][-1]}:{digest(first['statement'])}:{lists(people, 'pass')[0]}"
    )


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def kept_elsewhere(people: People) -> None:
    """A receipt under another's name only: its digest is there, but it is not to be found."""
    data = people.store.get(people.ctx.key(receipt_key("case-2"))).body
    people.store.delete([people.ctx.key(receipt_key("case-2"))])
    put(people, receipt_key("case-9"), data)


def the_same_number_twice(people: People) -> None:
    body = {**_plain(receipt(people)), "id": "case-4"}
    put(people, receipt_key("case-4"), encode_receipt(body))


def passes_exchanged(people: People) -> None:
    first, second = lists(people, "pass")
    one, two = (people.store.get(people.ctx.key(key)).body for key in (first, second))
    put(people, first, two)
    put(people, second, one)


def of_another_table(people: People) -> None:
    other = three_receipts(1)
    for key in lists(people, "pass"):
        people.store.delete([people.ctx.key(key)])
    for key in lists(other, "pass"):
        put(people, key, other.store.get(other.ctx.key(key)).body)
    with_chain(people, other.snapshot.properties["erasure.chain"])


FORGERIES: dict[str, Callable[[People], None]] = {
    "a changed count": lambda p: changed(p, removed_rows=99),
    "backdated": lambda p: changed(p, ended_us=receipt(p)["ended_us"] - 300 * 86_400_000_000),
    "another's digest": lambda p: changed(
        p, predicate_hmac_sha256=receipt(p, "case-2")["predicate_hmac_sha256"]
    ),
    "a digest of nothing": lambda p: changed(p, predicate_hmac_sha256=None),
    "no evidence": lambda p: changed(p, gone=[], look=None),
    "another table": lambda p: changed(p, table="0" * 36),
    "another number": lambda p: changed(p, number=2),
    "no number": lambda p: put(
        p,
        receipt_key("case-1"),
        encode_receipt({k: v for k, v in _plain(receipt(p)).items() if k != "number"}),
    ),
    "a number beyond the end": lambda p: changed(p, number=9),
    "another predecessor": lambda p: changed(p, number=1, previous="0" * 64),
    "what is left out": lambda p: changed(p, out_of_reach=[]),
    "an emptied list": emptied,
    "a receipt is missing": dropped,
    "swapped": swapped,
    "unsigned": unsigned,
    "another's signature": other_signature,
    "another payload": resigned_payload,
    "a pass is missing": lambda p: p.store.delete([p.ctx.key(lists(p, "pass")[0])]),
    "a pass without receipts": lambda p: put(
        p,
        lists(p, "pass")[0],
        encode_frame(LIST_KIND, {**frame(p, lists(p, "pass")[0]), "statement": "{}"}),
    ),
    "a pass of other receipts": lambda p: put(
        p,
        lists(p, "pass")[0],
        encode_frame(LIST_KIND, {**frame(p, lists(p, "pass")[0]), "receipts": ["0" * 64] * 2}),
    ),
    "the chain set back": set_back,
    "no chain": lambda p: with_chain(p, None),
    "a receipt under another's name only": kept_elsewhere,
    "the same number twice": the_same_number_twice,
    "passes exchanged": passes_exchanged,
    "the passes of another table": of_another_table,
    "a pass that goes in circles": lambda p: put(
        p,
        lists(p, "pass")[0],
        p.store.get(p.ctx.key(lists(p, "pass")[1])).body,
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(name: str) -> None:
    people = three_receipts()
    FORGERIES[name](people)
    assert check(people).problems


def test_an_unsigned_pass_between_signed_ones_and_a_retired_key_are_found() -> None:
    """Each receipt is held to the signature on its own pass; the others are whole."""
    people = three_receipts()
    second = lists(people, "pass")[-1]
    put(people, second, encode_frame(LIST_KIND, {**frame(people, second), "envelope": None}))
    people.erase(is_who(5), "case-4")
    finish(people, signer=(newer := a_key())[0])
    assert check(people).problems == ()
    for name, who in (("case-3", 3), ("case-4", 5)):
        asked = Asked(predicate=is_who(who), key=KEY)
        assert "not signed with that key" in "".join(check(people, name, asked=asked).problems)
    assert check(people, "case-4", asked=asked, public_key=newer[1]).problems == ()


def test_of_two_signatures_one_by_the_key_is_enough() -> None:
    people = three_receipts()
    for key in lists(people, "pass"):
        body = frame(people, key)
        more = envelope_of(body["statement"].encode(), a_stranger())["signatures"]
        envelope = {**body["envelope"], "signatures": more + body["envelope"]["signatures"]}
        put(people, key, encode_frame(LIST_KIND, {**body, "envelope": envelope}))
    found = check(people)
    assert (found.problems, found.signed) == ((), f"by {SIGNER.key_id}, checked")


def test_receipts_of_a_table_that_was_here_before_are_of_another_table() -> None:
    people = three_receipts()
    foreign = {**_plain(receipt(people, "case-2")), "table": "0" * 36, "id": "case-0"}
    put(people, receipt_key("case-0"), encode_receipt(foreign))
    assert check(people).problems == ()
    assert "the receipt is of another table" in check(people, "case-0").problems


def test_ids_that_look_like_keys_are_ids() -> None:
    people = new_people()
    people.append(*ids_with(WHO))
    odd = ("erasure/a", "erasure/b.json", "%2F", "../c", "d e")
    for n, name in enumerate(odd):
        people.erase(is_who(2 * n + 1), name)
    finish(people)
    for n, name in enumerate(odd):
        asked = Asked(predicate=is_who(2 * n + 1), key=KEY)
        assert check(people, name, asked=asked).problems == ()
        assert check(people, receipt_key(name), asked=asked).problems == ()


ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1.5, "", "x", "é", [], [[]], {}, {"a": 1}, ["x"], [None], 2**63),
    *("9" * 5000, [1, 2, 3, 4, 5, 6, 7], "evidence/", "0" * 64),
)


def mutants(body: Any, seed: int, count: int) -> Iterator[Any]:
    """The body with one member, at any depth, removed or another."""
    random = Random(seed)
    places = [at for at in _places(body, ()) if at]
    for _ in range(count):
        mutant = json.loads(json.dumps(body))
        *way, last = random.choice(places)
        place = mutant
        for step in way:
            place = place[step]
        if random.random() < 0.2:
            del place[last]
        else:
            place[last] = random.choice(ODD)
        if mutant != body:
            yield mutant


def _places(value: Any, at: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield at
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for step, each in inside:
        yield from _places(each, (*at, step))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_changed_is_found_and_nothing_crashes_the_check(seed: int) -> None:
    """Of a receipt, its lists and passes, their statements, bytes, and the property of the chain."""
    people = three_receipts()
    key = receipt_key("case-1")
    named = {each["key"] for each in receipt(people)["gone"]}
    named |= {receipt(people)["left"]["key"], receipt(people)["look"]["list"]["key"]}
    changes: list[tuple[str, bytes]] = [
        (key, encode_receipt(m)) for m in mutants(_plain(receipt(people)), seed, 150)
    ]
    for name in (*sorted(named), *lists(people, "pass")):
        body = frame(people, name)
        if "-pass-" in name:  # keys and the envelope are what a signature is for
            said = json.loads(body["statement"])
            texts = [json.dumps(m) for m in (*mutants(said, seed, 60), *ODD)] + ["[" * 100_000]
            changes += [(name, encode_frame(LIST_KIND, {**body, "statement": t})) for t in texts]
        changes += [(name, encode_frame(LIST_KIND, m)) for m in mutants(body, seed, 80)]
    random = Random(seed)
    for name in (key, *named, *lists(people, "pass")):
        for _ in range(30):
            data = bytearray(people.store.get(people.ctx.key(name)).body)
            data[random.randrange(len(data))] ^= random.randrange(1, 256)
            changes.append(
                (name, bytes(data[: random.choice([None, random.randrange(len(data))])]))
            )
    for name, data in changes:
        honest = people.store.get(people.ctx.key(name)).body
        put(people, name, data)
        # Of a pass its statement and digests are held to the chain; whom it is about is for the
        # collector, and what an envelope says of its key is not signed.
        free = "-pass-" in name and _statement(data) == _statement(honest)
        with suppress(InlayError):
            assert free or verify_receipt(people.ctx, "case-1", public_key=PUBLIC).problems
        put(people, name, honest)
    assert check(people).problems == ()


def _statement(data: bytes) -> Any:
    try:
        body = decode_frame(LIST_KIND, data, key="pass")
    except InlayError:
        return None
    return body.get("statement"), body.get("receipts")


@pytest.mark.parametrize("value", ["", ":", "a:b:c:d", "3:b:c", "-1:b:c:d", "9" * 5000, "٣:b:c:d"])
def test_a_property_of_the_chain_that_is_none_is_refused_by_name(value: str) -> None:
    people = three_receipts()
    with_chain(people, value)
    with pytest.raises(CorruptTable, match=r"erasure\.chain was changed by hand"):
        check(people)


def test_junk_beside_the_receipts_is_named() -> None:
    people = three_receipts()
    for name, data in {"junk.json": b"", "b": b"\xff\xfe", "c.json": b"{}"}.items():
        put(people, f"erasure/{name}", data)
    found = check(people)
    assert found.problems == ()
    assert sum(line.endswith("is no receipt") for line in found.named) == 3
    receipts, unread = read_receipts(people.ctx)
    assert (len(receipts), len(unread)) == (3, 3)


def test_a_copy_under_another_requests_name_is_found() -> None:
    people = three_receipts()
    copied(people)
    assert any("copied to erasure/case-9.json" in p for p in check(people, "case-9").problems)


@pytest.mark.parametrize("sign", [lambda: None, a_stranger], ids=["kept", "a stranger's"])
def test_who_may_write_the_bucket_but_has_no_key_cannot_forge_a_receipt(
    sign: Callable[[], KeyFile | None],
) -> None:
    people = three_receipts()
    forged_whole_chain(people, sign())
    asked = Asked(predicate=is_who(3), key=KEY)
    without = verify_receipt(people.ctx, "case-3", asked=asked)
    assert without.problems == ()  # why there are signatures
    assert "not signed with that key" in "".join(check(people, "case-3", asked=asked).problems)


def test_a_forged_receipt_of_a_person_who_is_there_is_found() -> None:
    people = three_receipts()
    body = {**_plain(receipt(people)), "id": "case-4"}
    put(people, receipt_key("case-4"), encode_receipt(body))
    asked = Asked(predicate=is_who(5), key=KEY)
    problems = check(people, "case-4", asked=asked, public_key=None).problems
    assert any("1 rows that the condition selects" in p for p in problems)
    assert any("of another condition" in p for p in problems)


def test_another_condition_and_another_key_are_told_apart() -> None:
    people = three_receipts()
    other = check(people, asked=Asked(predicate=is_named(), key=KEY)).problems
    assert other == ("the receipt is of another condition",)
    [problem] = check(people, asked=Asked(predicate=is_who(), key=b"another")).problems
    assert "with another key" in problem


def test_a_condition_on_a_column_that_was_renamed_since_is_compared_as_it_was_asked() -> None:
    people = new_people()
    people.append(*ids_with(WHO))
    people.erase(is_named())
    finish(people)
    alter(people.ctx, evolution_of(people.snapshot.schema, rename={"name": "full_name"}))
    now = check(people, asked=Asked(predicate=is_named(), key=KEY))
    assert now.problems == ("the receipt is of another condition",)
    assert any("renamed since" in line for line in now.named)
    then = Asked(predicate=is_named(), key=KEY, as_asked=f"name = '{NAME}'")
    assert check(people, asked=then).problems == ()


# -- one chain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", in_short(range(1, 40, 3), range(1, 40, 18)))
def test_the_chain_is_whole_after_a_crash_at_any_request(at: int) -> None:
    """The next run takes the receipts that are there, or writes them again; those of erasures that came
    due meanwhile follow."""
    people = new_people()
    people.append(*ids_with(WHO, OTHER))
    people.erase()
    people.erase(is_who(OTHER), "case-2")
    people.advance()
    people.collect()
    people.time.sleep(1000)
    people.collect()
    people.time.sleep(1000)
    crashing = people.on(FaultyStore(people.store, strikes(at, Fate.KILLED_AFTER)))
    try:
        crashing.collect(signer=SIGNER)
    except Killed:
        people.erase(is_who(3), "case-0")
    finish(people)
    people.time.sleep(3000)
    finish(people)
    assert people.snapshot.erasures == ()
    assert check(people).problems == ()
    assert check(people, "case-2", asked=Asked(predicate=is_who(OTHER), key=KEY)).problems == ()


def due(*, versioned: bool) -> People:
    """Two erasures that the next run ends."""
    people = new_people(versioned=versioned)
    people.append(*ids_with(WHO, OTHER))
    people.erase()
    people.erase(is_who(OTHER), "case-2")
    people.advance()
    for _ in range(2):
        people.collect(signer=SIGNER)
        people.time.sleep(1000)
    assert {e.phase for e in people.snapshot.erasures} == {"sweep"}
    return people


def is_receipt(sent: Sent) -> bool:
    return sent.verb == "put" and "/erasure/" in sent.key


def died(people: People, kept: str) -> None:
    """A run has died before its commit, and of the receipts that it was writing only one had arrived."""
    seen: list[str] = []

    def plan(sent: Sent) -> Fate:
        seen.extend([sent.key] * is_receipt(sent))
        return Fate.KILLED_AFTER if len(seen) == 2 else Fate.DONE

    with pytest.raises(Killed):
        process_on(people, FaultyStore(people.store, plan), 1).collect(signer=SIGNER)
    [other] = [key for key in seen if kept not in key]
    people.store.delete([other])
    people.store.delete_versions([(v.key, v.version_id) for v in people.store.list_versions(other)])


def is_whole(people: People) -> None:
    """One receipt for each erasure, each in the chain once, signed, and none beside it."""
    assert people.snapshot.erasures == ()
    root = people.ctx.key("")
    receipts = {o.key.removeprefix(root) for o in people.store.list(root + "erasure/")}
    assert receipts == {receipt_key("case-1"), receipt_key("case-2")}
    for name, who in (("case-1", WHO), ("case-2", OTHER)):
        asked = Asked(predicate=is_who(who), key=KEY)
        assert check(people, name, asked=asked).problems == ()
    assert {receipt(people, name)["number"] for name in ("case-1", "case-2")} == {1, 2}


def closed(people: People) -> dict[str, bytes]:
    names = {"case-1", "case-2"} - {e.id for e in people.snapshot.erasures}
    return {n: people.store.get(people.ctx.key(receipt_key(n))).body for n in names}


@pytest.mark.parametrize("stale", [None, "case-1", "case-2"])
@pytest.mark.parametrize("life", [0, 900])
@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_two_collectors_end_erasures_side_by_side(
    versioned: bool, life: int, stale: str | None
) -> None:
    """At every fourth request of one, another runs from beginning to end. A third may have died
    before, so that what it left does not continue the chain. No receipt of an erasure that has ended is
    touched."""
    reached, at = True, (0, -1, -2)[(None, "case-1", "case-2").index(stale)] - life // 900
    while reached:
        at, reached = at + 4, False
        people = due(versioned=versioned)
        if stale is not None:
            died(people, stale)
            people.time.sleep(1000)
        ended: dict[str, bytes] = {}

        def meet(
            sent: Sent, people: People = people, at: int = at, ended: dict[str, bytes] = ended
        ) -> Fate:
            nonlocal reached
            if sent.number == at:
                reached = True
                people.time.sleep(2)
                process_on(people, people.store, 3).collect(signer=SIGNER, life_seconds=life)
                ended |= closed(people)
                people.time.sleep(2)
            return Fate.DONE

        process_on(people, FaultyStore(people.store, meet), 2).collect(
            signer=SIGNER, life_seconds=life
        )
        people.time.sleep(2000)
        finish(people, life_seconds=life)
        is_whole(people)
        assert {**closed(people), **ended} == closed(people)


@dataclass
class ListedInTwo:
    """A store whose listing of versions takes long: others go on when it has passed the lists."""

    store: Any
    go_on: Callable[[], None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def list_versions(self, prefix: str) -> Iterator[Any]:
        border = f"{prefix}evidence0"
        yield from [v for v in self.store.list_versions(prefix) if v.key < border]
        self.go_on()
        yield from [v for v in self.store.list_versions(prefix) if v.key >= border]


def stopped_at(number: int, people: People) -> tuple[Callable[[], None], Callable[..., None]]:
    """A run in a thread of its own: how it goes up to a request, and how it goes on until it has deleted
    something, and dies."""
    stands, goes = threading.Event(), threading.Event()

    def stand(sent: Sent) -> Fate:
        if sent.number == number:
            stands.set()
            goes.wait()
        return Fate.KILLED_AFTER if sent.verb.startswith("delete") else Fate.DONE

    def collect() -> None:
        with suppress(Killed):
            process_on(people, FaultyStore(people.store, stand), 2).collect(signer=SIGNER)
        stands.set()

    run = threading.Thread(target=collect)

    def begin() -> None:
        run.start()
        stands.wait()

    def end(slept: int = 0) -> None:
        people.time.sleep(slept)
        goes.set()
        run.join()

    return begin, end


@pytest.mark.parametrize("slept", [5, pytest.param(0, marks=pytest.mark.wide)])
@pytest.mark.parametrize(
    "versioned",
    [False, pytest.param(True, marks=pytest.mark.wide)],
    ids=["unversioned", "versioned"],
)
def test_what_another_run_deletes_while_one_lists_is_in_the_receipts(
    versioned: bool, slept: int
) -> None:
    """One run stands before each of its requests in turn, and goes on while another lists, which began
    later, or in the same second. Receipts name whatever went."""
    stray = "manifest/segments/5eed0000-0000-4000-8000-000000000000"  # listed after the lists
    for number in range(1, 16) if versioned or not slept else (1, 2, 9, 10, 11):
        people = due(versioned=versioned)
        put(people, stray, b"of a writer that was slow")
        people.time.sleep(2000)
        begin, end = stopped_at(number, people)
        begin()
        people.time.sleep(slept)
        listing = ListedInTwo(people.store, partial(end, slept))
        process_on(people, listing, 3).collect(signer=SIGNER)
        end()
        people.time.sleep(2000)
        finish(people)
        is_whole(people)
        assert stray not in {v.key for v in people.store.list_versions(people.ctx.key(""))}
        for name in ("case-1", "case-2"):
            gone = [frame(people, each["key"])["objects"] for each in receipt(people, name)["gone"]]
            assert stray in {key for objects in gone for key, _ in objects}, (number, name)


def as_if_crashed(people: People) -> bytes:
    """What a run that crashed could have left, from the pointer and the lists, which an outsider may read:
    it continues the chain, and lies."""
    [erasure, _] = people.snapshot.erasures
    made_with, _, digest = erasure.digest.rpartition(":")
    made = Lists(people.ctx).since(erasure.opened_version)
    gone = [each.as_json for each, body in made if body["step"] == "gone"]
    own = {name: getattr(erasure, name) for name in ("opened_version", "opened_us", "swept_us")}
    said = {
        **Chain.of(people.snapshot.properties).next_link,
        **own,
        "table": people.snapshot.table_id,
        "id": erasure.id,
        "predicate_hmac_sha256": digest,
        "predicate_key": made_with,
        "ended_version": people.snapshot.version,
        "ended_us": people.time.now_us(),
        "oldest_version": people.snapshot.oldest_version,
        "rewritten_objects": 0,
        "removed_rows": 12_345,
        "deleted_objects": 0,
        "gone": gone,
        "left": gone[0],
        "look": None,
        "unknown_objects": {"count": 0, "objects": []},
        "later_deletes": {"count": 0, "versions": [], "pending": []},
        "out_of_reach": [],
    }
    return encode_receipt(said)


@pytest.mark.parametrize("made", [as_if_crashed, lambda _: b"", lambda _: b"{}junk"])
def test_what_somebody_put_where_a_receipt_will_be_is_not_signed(
    made: Callable[[People], bytes],
) -> None:
    people = due(versioned=False)
    put(people, receipt_key("case-1"), made(people))
    assert people.collect(signer=SIGNER).receipts == ()
    people.time.sleep(2000)
    finish(people)
    is_whole(people)
    assert receipt(people)["removed_rows"] == 1 and receipt(people)["look"] is not None


@pytest.mark.parametrize("at_receipt", [1, 2])
def test_a_run_that_outlives_its_life_cannot_close_with_receipts_that_were_written_over(
    at_receipt: int,
) -> None:
    """It has written one of two receipts, out of order; with a life of nothing another run begins again."""
    people = due(versioned=False)
    died(people, "case-2")
    seen: list[str] = []

    def meet(sent: Sent) -> Fate:
        seen.extend([sent.key] * is_receipt(sent))
        if len(seen) == at_receipt and is_receipt(sent):
            people.time.sleep(2)
            process_on(people, people.store, 3).collect(signer=SIGNER, life_seconds=0)
        return Fate.DONE

    people.time.sleep(1000)
    process_on(people, FaultyStore(people.store, meet), 2).collect(signer=SIGNER, life_seconds=0)
    finish(people, life_seconds=0)
    is_whole(people)


def test_the_property_of_the_chain_cannot_be_changed_by_hand() -> None:
    for value in ("", "1:a:b:c"):
        with pytest.raises(InvalidRequest, match="maintained by the library"):
            check_properties({"erasure.chain": value})


# -- nothing of others ----------------------------------------------------------------------------


def test_a_receipt_has_nothing_of_others_that_end_in_the_same_pass() -> None:
    people = new_people()
    people.append(*ids_with(WHO, OTHER))
    people.time.sleep(1)
    comment = evolution_of(people.snapshot.schema, comment={"city": f"as {NAME} wrote"})
    alter(people.ctx, comment)
    people.erase(is_named(), "case-of-xanthippe")
    people.erase(is_who(OTHER), "case-2")
    assert len(finish(people)) == 2
    hers, others = (receipt(people, n) for n in ("case-of-xanthippe", "case-2"))
    assert ["column", "city", "its comment"] in hers["look"]["kept"]
    assert (others["look"]["kept"], others["look"]["columns"]) == ([], ["id"])
    assert "xanthippe" not in json.dumps(others) and others["other_erasures"] == 0
    named = [each["key"] for each in (others["look"]["list"], others["left"], *others["gone"])]
    assert not any("xanthippe" in json.dumps(frame(people, key)) for key in named)
    assert CITY not in json.dumps(others)


def test_a_file_older_than_one_erasure_and_newer_than_another_is_judged_for_each() -> None:
    """What it names of the later one was taken for a newer row's: judged by the oldest opening."""
    people = new_people()
    people.append(*ids_with(WHO))
    people.erase(is_who(3), "case-0")
    people.append(*ids_with(OTHER, start=300))
    people.erase(is_who(OTHER), "case-2")
    assert len(finish(people)) == 2
    old, young = receipt(people, "case-0")["look"], receipt(people, "case-2")["look"]
    assert (old["newer"], young["newer"]) == (1, 0)


def test_filters_of_this_library_are_not_suspected() -> None:
    """A file written after the opening has its own rows in its Bloom filter and no others: what seems to
    be there besides is chance, and stood in each receipt of a thousand."""
    people = new_people(row_group_rows=None)
    people.append(*ids_with(WHO))
    for n in range(40):
        people.erase(is_who(101 + 2 * n), f"case-{n}")
    for start in range(0, 8, 2):  # each has even numbers below and above the odd ones
        people.time.sleep(1)
        append(people.ctx, rows(list(range(start, 4000, 8))))
    finish(people)
    for n in range(40):
        look = receipt(people, f"case-{n}")["look"]
        assert (look["kept_count"], look["perhaps_count"]) == (0, 0)

"""Receipts form a chain that can be signed: what an outsider can check without trusting the operator, and
every forgery that was thought of. A receipt says nothing of other people's requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.simulator.faults import Fate, FaultyStore, Killed

from inlay.errors import InvalidRequest
from inlay.format.codec import decode_frame, decode_snapshot, encode_frame, encode_snapshot
from inlay.format.keys import receipt_key
from inlay.format.properties import check_properties
from inlay.ops.erase.check_receipt import Asked, ReceiptCheck, verify_receipt
from inlay.ops.erase.receipt import LIST_KIND, encode_receipt
from inlay.ops.erase.signing import KeyFile, PublicKey, envelope_of
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.plan.receipt_chain import Chain, root_of

from .crashes import strikes
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
    receipts = people.collect(signer=SIGNER, **options).receipts
    for _ in range(3):
        people.time.sleep(1000)
        receipts += people.collect(signer=SIGNER, **options).receipts
    return receipts


def three_receipts() -> People:
    """Of two passes: the first made two, of hers and another's."""
    people = new_people(versioned=False)
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


def test_it_is_checked_with_read_rights_alone() -> None:
    people = three_receipts()

    class ReadOnly:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            if name in ("put", "delete", "delete_versions", "copy", "abort_multipart") or (
                "multipart" in name and name != "list_uploads"
            ):
                raise AssertionError(f"{name} by a check")
            return getattr(self._store, name)

    auditor = people.on(ReadOnly(people.store))
    assert check(auditor).problems == ()


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


# -- one chain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 40, 3))
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

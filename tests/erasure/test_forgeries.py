"""Forgeries by somebody who may write to the bucket, its pointer included, but has no key: each is found,
and named by what is wrong with it. tests/erasure/test_chain.py has more, and changes at random."""

from __future__ import annotations

import base64
import hmac
import io
import json
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from inlay.errors import InlayError, InvalidRequest
from inlay.format.codec import _digest, _ending, encode_frame, encode_snapshot
from inlay.format.keys import receipt_key
from inlay.format.snapshot import Ref
from inlay.ops.copy import copy
from inlay.ops.erase.check_receipt import Asked, verify_receipt
from inlay.ops.erase.p256 import KeyFile, PublicKey
from inlay.ops.erase.receipt import LIST_KIND, encode_receipt
from inlay.ops.erase.signing import envelope_of, to_sign
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.refs import branch, tag
from inlay.parse import Values, parse_predicate
from inlay.plan.receipt_chain import STATEMENT_TYPE, Chain, root_of
from inlay.storage.base import Location

from .people import KEY, WHO, People, ids_with, is_who, new_people, rows
from .test_chain import (
    PUBLIC,
    SIGNER,
    _plain,
    a_key,
    changed,
    check,
    finish,
    frame,
    lists,
    put,
    three_receipts,
    with_chain,
)
from .test_receipt import receipt

STRANGER, STRANGERS = a_key()


def data_of(people: People, key: str) -> bytes:
    body: bytes = people.store.get(people.ctx.key(key)).body
    return body


def rewritten(people: People, which: int, **members: Any) -> None:
    """A pass with other members in its list."""
    key = lists(people, "pass")[which]
    put(people, key, encode_frame(LIST_KIND, {**frame(people, key), **members}))


def envelope(people: People, which: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = frame(people, lists(people, "pass")[which])["envelope"]
    return found


def enveloped(people: People, **members: Any) -> None:
    rewritten(people, 0, envelope={**envelope(people), **members})


def signed_as(people: People, signature: bytes, key_id: str = SIGNER.key_id) -> None:
    sig = base64.b64encode(signature).decode()
    enveloped(people, signatures=[{"keyid": key_id, "sig": sig}])


def statement(people: People, which: int = 0) -> bytes:
    text: str = frame(people, lists(people, "pass")[which])["statement"]
    return text.encode()


def chained_again(people: People, name: str, said: dict[str, Any], **members: Any) -> None:
    """The last pass and receipt are written again, and the pointer agrees: all but the signature."""
    changed(people, name, **members)
    data = data_of(people, receipt_key(name))
    last = lists(people, "pass")[-1]
    body = frame(people, last)
    digests = [sha256(data).hexdigest()]
    of = {**json.loads(body["statement"]), "root": root_of(digests), **said}
    text = json.dumps(of, sort_keys=True, separators=(",", ":"))
    made = {**body, "statement": text, "receipts": digests}
    put(people, last, encode_frame(LIST_KIND, made))
    chain = Chain.of(people.snapshot.properties)
    ends = {"receipt": digests[-1], "statement": sha256(text.encode()).hexdigest()}
    with_chain(people, replace(chain, **ends).as_property)


def truncated(people: People) -> None:
    """The first pass never was."""
    first = json.loads(statement(people, 1))["first"]
    chained_again(
        people,
        "case-3",
        {"previous_pass": None, "previous_receipt": None, "first": first},
        previous=None,
    )


def renumbered(people: People) -> None:
    """Two people less: the chain begins with the third receipt."""
    for name in ("case-1", "case-2"):
        people.store.delete([people.ctx.key(receipt_key(name))])
    chained_again(
        people, "case-3", {"previous_pass": None, "previous_receipt": None, "first": 1}, number=1
    )
    chain = Chain.of(people.snapshot.properties)
    with_chain(people, replace(chain, count=1).as_property)


def exchanged_lists(people: People, step: str) -> None:
    """One receipt names the list of another pass."""
    of_first, of_last = (receipt(people, name) for name in ("case-1", "case-3"))
    if step == "look":
        changed(people, look={**of_first["look"], "list": of_last["look"]["list"]})
    else:
        changed(people, **{step: of_last[step]})


def without(people: People, step: str) -> None:
    for key in lists(people, step):
        people.store.delete([people.ctx.key(key)])


def twice_said(people: People) -> None:
    """A member twice, in a whole frame: one reader takes the first, and another the last."""
    data = data_of(people, receipt_key("case-1"))
    head = b'{"removed_rows":0,' + data[1:].rpartition(b',"digest":"')[0]
    put(people, receipt_key("case-1"), head + _ending(_digest(head)))
    assert receipt(people)["removed_rows"] != 0


def in_other_bytes(people: People, old: bytes, new: bytes) -> None:
    """A receipt that says the same to a reader of JSON, in a whole frame."""
    head = data_of(people, receipt_key("case-1")).rpartition(b',"digest":"')[0]
    assert head.count(old) == 1
    head = head.replace(old, new)
    put(people, receipt_key("case-1"), head + _ending(_digest(head)))


def envelope_twice(people: People) -> None:
    key = lists(people, "pass")[0]
    head = data_of(people, key).rpartition(b',"digest":"')[0]
    more = json.dumps(envelope_of(statement(people), STRANGER))
    head += b',"envelope":' + more.encode()
    put(people, key, head + _ending(_digest(head)))


def twice_in_the_statement(people: People) -> None:
    text = statement(people).decode()
    rewritten(people, 0, statement='{"ended_us":0,' + text[1:])


def looks_alike(people: People, name: str) -> None:
    """The receipt under a name that cannot be told from hers by looking."""
    assert name != "case-1"
    put(people, receipt_key(name), encode_receipt({**_plain(receipt(people)), "id": name}))


def hidden(people: People) -> None:
    """Deleted in a bucket that keeps versions: still there for who knows the version."""
    people.store.enable_versioning()
    people.store.delete([people.ctx.key(receipt_key("case-2"))])


def hmac_of_the_public_key(people: People) -> None:
    """As readers that let the envelope choose the algorithm were deceived."""
    signed_as(people, hmac.digest(PUBLIC.key_id.encode(), to_sign(statement(people)), "sha256"))


def gone_file(people: People) -> str:
    named = (frame(people, key)["objects"] for key in lists(people, "gone"))
    return next(key for each in named for key, _ in each if key.startswith("data/"))


def below_a_delete_marker(people: People) -> None:
    """Her file is there again for whoever asks for older versions, under a version id of its own."""
    people.store.enable_versioning()
    put(people, gone_file(people), b"her rows")
    people.store.delete([people.ctx.key(gone_file(people))])


def below_what_is_left(people: People) -> None:
    """Her rows in a version of a file that is left, and then that file's own bytes again."""
    people.store.enable_versioning()
    objects = frame(people, lists(people, "left")[0])["objects"]
    key = next(key for key, *_ in objects if key.startswith("data/"))
    own = data_of(people, key)
    put(people, key, b"her rows")
    put(people, key, own)


def pointer_set_back(people: People) -> None:
    """The pointer as it was before the erasures ended, but for the end of the chain."""
    key = people.ctx.key("_latest_manifest")
    ended = receipt(people)["ended_version"]
    chain = people.snapshot.properties["erasure.chain"]
    snapshot = replace(people.snapshot, version=ended - 1)
    people.store.put(key, encode_snapshot(snapshot))
    with_chain(people, chain)


def said_again(people: People, which: int, said: dict[str, Any], digests: list[str]) -> str:
    """A pass with another statement over other receipts; the statement's digest."""
    key = lists(people, "pass")[which]
    body = frame(people, key)
    of = {**json.loads(body["statement"]), "root": root_of(digests), **said}
    text = json.dumps(of, sort_keys=True, separators=(",", ":"))
    put(people, key, encode_frame(LIST_KIND, {**body, "statement": text, "receipts": digests}))
    return sha256(text.encode()).hexdigest()


def passes_merged(people: People) -> None:
    """One pass over all three receipts, to which the pointer agrees."""
    first, second = (frame(people, key) for key in lists(people, "pass"))
    before = json.loads(first["statement"])
    said = {k: before[k] for k in ("previous_pass", "previous_receipt", "first")}
    digests = [*first["receipts"], *second["receipts"]]
    made = said_again(people, 1, {**said, "receipts": 3}, digests)
    with_chain(people, replace(Chain.of(people.snapshot.properties), statement=made).as_property)


def reordered(people: People) -> None:
    said_again(people, 0, {}, frame(people, lists(people, "pass")[0])["receipts"][::-1])


def ends_at(people: People, key: str) -> None:
    """The chain goes on with an object that is no pass."""
    with_chain(people, replace(Chain.of(people.snapshot.properties), made_by=key).as_property)


def signed_by_numbers(people: People) -> None:
    """r and s side by side, as JSON Web Signatures have them."""
    r, s = decode_dss_signature(SIGNER.sign(to_sign(statement(people))))
    signed_as(people, r.to_bytes(32, "big") + s.to_bytes(32, "big"))


def spaced(people: People) -> bytes:
    return json.dumps(json.loads(statement(people)), sort_keys=True).encode()


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def receipt_in(people: People, made: Callable[[bytes], bytes]) -> None:
    put(people, receipt_key("case-1"), made(data_of(people, receipt_key("case-1"))))


FORGERIES: dict[str, tuple[Callable[[People], None], str]] = {
    # what older versions of objects have
    "her file below a delete marker": (below_a_delete_marker, "was deleted and exists again"),
    "her rows below a file that is left": (below_what_is_left, "was written again"),
    "the pointer of before with today's chain": (pointer_set_back, "the pointer was set back"),
    # more of chains
    "two passes as one": (passes_merged, "not signed with that"),
    "receipts of a pass in another order": (reordered, "does not have the statement"),
    "a list of receipts in another order": (
        lambda p: rewritten(p, 0, receipts=frame(p, lists(p, "pass")[0])["receipts"][::-1]),
        "other receipts than its statement",
    ),
    "digests in capitals": (
        lambda p: rewritten(
            p, 0, receipts=[d.upper() for d in frame(p, lists(p, "pass")[0])["receipts"]]
        ),
        "has no statement that a pass of erasures makes",
    ),
    "a chain that ends elsewhere": (
        lambda p: ends_at(p, "../other/evidence/x"),
        "the pass of receipt 3, cannot be read",
    ),
    "a chain that ends with a receipt": (
        lambda p: ends_at(p, receipt_key("case-1")),
        "the pass of receipt 3, cannot be read",
    ),
    # more of signatures
    "over another hash": (
        lambda p: signed_as(p, SIGNER._key.sign(to_sign(statement(p)), ec.ECDSA(SHA384()))),
        "not signed with that",
    ),
    "of numbers side by side": (signed_by_numbers, "not signed with that"),
    "of another version of the envelope": (
        lambda p: signed_as(p, SIGNER.sign(to_sign(statement(p)).replace(b"DSSEv1", b"DSSEv0"))),
        "not signed with that",
    ),
    "of kind and payload without their lengths": (
        lambda p: signed_as(p, SIGNER.sign(STATEMENT_TYPE.encode() + statement(p))),
        "not signed with that",
    ),
    "of the digest": (
        lambda p: signed_as(p, SIGNER.sign(sha256(to_sign(statement(p))).digest())),
        "not signed with that",
    ),
    "of the statement with spaces": (
        lambda p: signed_as(p, SIGNER.sign(to_sign(spaced(p)))),
        "not signed with that",
    ),
    "of a payload with spaces": (
        lambda p: enveloped(p, payload=in_base64(spaced(p))),
        "not signed with that",
    ),
    "of a payload with a line's end": (
        lambda p: enveloped(p, payload=in_base64(statement(p) + b"\n")),
        "not signed with that",
    ),
    "signatures that are none": (
        lambda p: enveloped(p, signatures=[None, {"keyid": 5, "sig": "\u00e9"}]),
        "not signed with that",
    ),
    "an envelope as text": (
        lambda p: rewritten(p, 0, envelope=json.dumps(envelope(p))),
        "is not a list that an erasure wrote",
    ),
    # more of frames
    "a mark of byte order": (
        lambda p: receipt_in(p, lambda data: b"\xef\xbb\xbf" + data),
        "does not match its own digest",
    ),
    "something behind it": (lambda p: receipt_in(p, lambda data: data + b"\0"), "not whole JSON"),
    "in two bytes a letter": (
        lambda p: receipt_in(p, lambda data: data.decode().encode("utf-16")),
        "does not match its own digest",
    ),
    "a list as receipt": (
        lambda p: receipt_in(p, lambda _: data_of(p, lists(p, "left")[0])),
        "is a 'erasure_list'",
    ),
    "a member twice, once in escapes": (
        lambda p: in_other_bytes(p, b',"number":1,', b',"n\\u0075mber":2,"number":1,'),
        "receipt number 1 of the chain is missing or changed",
    ),
    "no number at all": (
        lambda p: in_other_bytes(p, b'"number":1,', b'"number":NaN,'),
        "is not a receipt that an erasure wrote",
    ),
    "a number without end": (
        lambda p: in_other_bytes(p, b'"number":1,', b'"number":' + b"9" * 6_000 + b","),
        "not whole JSON",
    ),
    # receipts
    "of another, renamed": (
        lambda p: put(
            p,
            receipt_key("case-1"),
            encode_receipt({**_plain(receipt(p, "case-2")), "id": "case-1"}),
        ),
        "is missing or changed",
    ),
    "a member twice": (twice_said, "it was changed since"),
    "a Cyrillic letter": (lambda p: looks_alike(p, "c\u0430se-1"), "the chain does not have it"),
    "another hyphen": (lambda p: looks_alike(p, "case\u20111"), "the chain does not have it"),
    "full width": (
        lambda p: looks_alike(p, "case-\uff11"),
        "the chain does not have it",
    ),
    "an invisible letter": (lambda p: looks_alike(p, "case-1\u200b"), "the chain does not have it"),
    "hidden by a delete marker": (hidden, "number 2 of the chain is missing"),
    "an hour later": (
        lambda p: changed(p, ended_us=receipt(p)["ended_us"] + 3_600_000_000),
        "it was changed since",
    ),
    # what it rests on
    "another pass's list of what went": (lambda p: exchanged_lists(p, "gone"), "changed since"),
    "another pass's list of what is left": (lambda p: exchanged_lists(p, "left"), "changed since"),
    "another pass's look": (lambda p: exchanged_lists(p, "look"), "changed since"),
    "no list of what went": (lambda p: without(p, "gone"), "evidence/"),
    "no list of what is left": (lambda p: without(p, "left"), "evidence/"),
    "no look": (lambda p: without(p, "look"), "evidence/"),
    # the chain
    "truncated": (truncated, "the chain has no receipt number 1"),
    "begun later": (renumbered, "there is no receipt of 'case-1'"),
    "a receipt more": (
        lambda p: rewritten(p, 1, receipts=[*frame(p, lists(p, "pass")[1])["receipts"], "0" * 64]),
        "other receipts than its statement",
    ),
    "a longer end": (
        lambda p: with_chain(p, replace(Chain.of(p.snapshot.properties), count=4).as_property),
        "does not end with the receipt",
    ),
    "the last pass is the first": (
        lambda p: with_chain(
            p,
            replace(Chain.of(p.snapshot.properties), made_by=lists(p, "pass")[0]).as_property,
        ),
        "does not have the statement",
    ),
    # signatures
    "no signature in the envelope": (lambda p: enveloped(p, signatures=[]), "not signed with that"),
    "an empty signature": (lambda p: signed_as(p, b""), "not signed with that"),
    "a stranger's under her key's id": (
        lambda p: signed_as(p, STRANGER.sign(to_sign(statement(p)))),
        "not signed with that",
    ),
    "a stranger's envelope": (
        lambda p: rewritten(p, 0, envelope=envelope_of(statement(p), STRANGER)),
        "not signed with that",
    ),
    "a MAC by the public key": (hmac_of_the_public_key, "not signed with that"),
    "of another kind of payload": (
        lambda p: enveloped(p, payloadType="application/vnd.in-toto+json"),
        "not signed with that",
    ),
    "of the payload without its kind": (
        lambda p: signed_as(p, SIGNER.sign(statement(p))),
        "not signed with that",
    ),
    "of the next pass": (
        lambda p: rewritten(p, 0, envelope=envelope(p, 1)),
        "not signed with that",
    ),
    "a statement that says a thing twice": (twice_in_the_statement, "does not have the statement"),
    "two strangers' signatures": (
        lambda p: enveloped(
            p,
            signatures=[
                *envelope_of(statement(p), STRANGER)["signatures"],
                {**envelope_of(statement(p), STRANGER)["signatures"][0], "keyid": SIGNER.key_id},
            ],
        ),
        "not signed with that",
    ),
    "her kind of payload in capitals": (
        lambda p: enveloped(p, payloadType=STATEMENT_TYPE.upper()),
        "not signed with that",
    ),
    "her kind of payload with a parameter": (
        lambda p: enveloped(p, payloadType=f"{STATEMENT_TYPE}; charset=utf-8"),
        "not signed with that",
    ),
    "an envelope twice, hers first": (envelope_twice, "not signed with that"),
    "a statement with spaces": (
        lambda p: rewritten(p, 0, statement=statement(p).decode().replace(":", ": ")),
        "does not have the statement",
    ),
    "a statement in other numbers": (
        lambda p: rewritten(
            p, 0, statement=statement(p).decode().replace('"first":1', '"first":1.0')
        ),
        "has no statement|does not have the statement",
    ),
    # letters and numbers
    "a number as a fraction": (
        lambda p: in_other_bytes(p, b'"number":1,', b'"number":1.0,'),
        "is not a receipt that an erasure wrote",
    ),
    "ends of lines of Windows": (
        lambda p: in_other_bytes(p, b',"opened_us"', b',\r\n"opened_us"'),
        "it was changed since",
    ),
    "letters as escapes": (
        lambda p: in_other_bytes(p, b'"case-1"', b'"c\\u0061se-1"'),
        "it was changed since",
    ),
    "an algorithm that is none": (
        lambda p: enveloped(p, signatures=[{"keyid": SIGNER.key_id, "alg": "none", "sig": ""}]),
        "not signed with that",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_and_named(name: str) -> None:
    people = three_receipts()
    assert check(people).problems == ()
    forge, said = FORGERIES[name]
    forge(people)
    try:
        problems = "\n".join(check(people).problems)
    except InlayError as error:
        problems = str(error)
    assert any(part in problems for part in said.split("|")), problems


@pytest.mark.parametrize("forge", [truncated, renumbered])
def test_what_is_left_of_a_chain_that_was_cut_is_not_signed(
    forge: Callable[[People], None],
) -> None:
    people = three_receipts()
    forge(people)
    assert "not signed with that" in "".join(check(people, "case-3", asked=None).problems)


# -- a second machine -----------------------------------------------------------------------------


class ReadRights:
    """What an auditor's role may do: read objects, and list below the table and its landing zone."""

    MAY = frozenset(
        ("get", "get_suffix", "head", "list", "list_versions", "list_uploads", "scheme", "bucket")
    )

    def __init__(self, store: Any) -> None:
        self._store = store
        self.listed: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in self.MAY:
            raise AssertionError(f"{name} by a check")
        found = getattr(self._store, name)
        if not name.startswith("list"):
            return found

        def listing(prefix: str, **more: Any) -> Any:
            self.listed.add(prefix)
            return found(prefix, **more)

        return listing


def branched() -> People:
    people = new_people(versioned=True)
    people.append(*ids_with(WHO))
    tag(people.ctx, "release", Ref(kind="tag", version=people.snapshot.version))
    branch(people.ctx, "work", Ref(kind="tag", version=people.snapshot.version))
    replace(people, ctx=replace(people.ctx, branch="work")).append(*ids_with(WHO, start=40))
    people.append(*ids_with(WHO, start=60))
    return people


def adopted() -> People:
    people = new_people()
    sink = io.BytesIO()
    pq.write_table(rows([*range(20, 29)]), sink)
    people.store.put("else/a.parquet", sink.getvalue())
    people.ingest(Location("memory", "b", "else/a.parquet"), adopt=True)
    people.append(*ids_with(WHO))
    people.ingest(people.land("b.parquet", *ids_with(WHO, start=60)))
    return people


@pytest.mark.parametrize("made", [branched, adopted])
def test_another_machine_checks_with_read_rights_and_no_secret(
    made: Callable[[], People],
) -> None:
    """It finds nothing on an honest table, and what was put back since on any branch."""
    people = made()
    people.erase()
    finish(people)
    store = ReadRights(people.store)
    auditor = people.on(store)
    asked = Asked(predicate=is_who())
    found = verify_receipt(auditor.ctx, "case-1", asked=asked, public_key=PUBLIC)
    assert (found.problems, found.rows) == ((), 0)
    assert found.signed == f"by {SIGNER.key_id}, checked"
    assert all(p.startswith(("tables/people/", "ingest/people/")) for p in store.listed)
    back = people if made is adopted else replace(people, ctx=replace(people.ctx, branch="work"))
    back.append(WHO)
    again = verify_receipt(auditor.ctx, "case-1", asked=asked, public_key=PUBLIC)
    assert again.rows == 1 and any("that the condition selects" in line for line in again.named)
    # Set back by hand: her file is there as before, and the receipt says that it went.
    went = [key for each in lists(people, "gone") for key, _ in frame(people, each)["objects"]]
    first = next(key for key in went if key.startswith("data/"))
    put(people, first, b"as it was")
    problems = verify_receipt(auditor.ctx, "case-1", public_key=PUBLIC).problems
    assert f"{first} was deleted and exists again" in problems


def test_a_rotated_key_vouches_for_its_own_passes_only() -> None:
    """The operator has a new key. Whoever found the old one cannot sign what came after, and the new one
    does not sign what was before: an auditor has both, each with its time."""
    people = three_receipts()
    rewritten(people, 1, envelope=envelope_of(statement(people, 1), STRANGER))
    third = {"asked": None}
    assert check(people, "case-3", **third, public_key=STRANGERS).problems == ()
    assert "not signed with that" in "".join(check(people, "case-3", **third).problems)
    assert check(people).problems == ()
    assert "not signed with that" in "".join(check(people, public_key=STRANGERS).problems)


def test_names_that_look_alike_are_other_erasures() -> None:
    """No reader takes one for another: neither by its letters nor by their composition."""
    composed = unicodedata.normalize("NFC", "case-e\u0301")
    names = {"case-1", "c\u0430se-1", "case\u20111", "CASE-1", composed, "case-e\u0301", "case-1 "}
    assert len({receipt_key(name) for name in names}) == len(names)


def test_a_key_on_a_curve_that_nobody_knows_is_refused_by_name() -> None:
    """SM2's, which `cryptography` raises an error of its own for; and a private one where a public one is
    asked for."""
    point = bytes.fromhex(
        "0432c4ae2c1f1981195f9904466a39c9948fe30bbff2660be1715a4589334c74c7"
        "bc3736a2f4f6779c59bdcee36b692153d0a9877cc62a474002df32e52139f0a0"
    )
    key = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d034200") + point
    text = in_base64(key)
    pem = f"-----BEGIN PUBLIC KEY-----\n{text[:64]}\n{text[64:]}\n-----END PUBLIC KEY-----\n"
    with pytest.raises(InvalidRequest, match="on the curve P-256"):
        PublicKey(pem.encode())
    with pytest.raises(InvalidRequest, match="on the curve P-256"):
        KeyFile(pem.encode())


def test_the_same_signature_in_other_bytes_is_no_second_statement() -> None:
    """ECDSA lets anybody make a second signature of the same message: it says the same."""
    people = three_receipts()
    assert STATEMENT_TYPE in to_sign(b"").decode()
    sig = base64.b64decode(envelope(people)["signatures"][0]["sig"])
    assert PublicKey.has_signed(PUBLIC, to_sign(statement(people)), sig)
    assert not PublicKey.has_signed(PUBLIC, to_sign(statement(people)), sig + b"\0")
    assert not PublicKey.has_signed(PUBLIC, to_sign(statement(people) + b" "), sig)


# -- places and words -----------------------------------------------------------------------------


def everything_of(people: People) -> dict[str, bytes]:
    return {
        info.key: people.store.get(info.key).body for info in people.store.list("tables/people/")
    }


def at_another_root(people: People, objects: dict[str, bytes]) -> People:
    for key, body in objects.items():
        people.store.put(key.replace("tables/people/", "tables/moved/"), body)
    return replace(people, ctx=replace(people.ctx, root="tables/moved"))


def test_a_receipt_beside_an_older_copy_of_the_table_is_found() -> None:
    """The bytes of a root, copied before the erasure, with its receipt and lists put beside them; and with
    the pointer, too. A copy from afterwards is the same table, and its receipts are true there."""
    people = new_people()
    people.append(*ids_with(WHO))
    older = everything_of(people)
    people.erase()
    finish(people)
    assert check(at_another_root(people, everything_of(people))).problems == ()
    of_it = {k: body for k, body in everything_of(people).items() if "/data/" not in k}
    swapped = {k: body for k, body in of_it.items() if not k.endswith("_latest_manifest")}
    said = check(at_another_root(people, {**older, **swapped})).problems
    assert any("the pointer was set back, or the receipt is forged" in line for line in said), said
    moved = at_another_root(people, {**older, **of_it})
    gone = [key for each in lists(people, "gone") for key, _ in frame(people, each)["objects"]]
    data = [key for key in gone if key.startswith("data/")]
    assert data and {f"{key} was deleted and exists again" for key in data} <= {
        *check(moved).problems
    }


def test_a_receipt_beside_a_copy_that_is_a_table_of_its_own_is_of_another_table() -> None:
    people = new_people()
    people.append(*ids_with(WHO))
    state = load_entries(people.ctx, load_pointer(people.ctx).state)
    into = replace(people.ctx, root="tables/copy")
    copy(people.ctx, state, into)
    people.erase()
    finish(people)
    for key, body in everything_of(people).items():
        if "/erasure/" in key or "/evidence/" in key:
            people.store.put(key.replace("tables/people/", "tables/copy/"), body)
    said = check(replace(people, ctx=into)).problems
    assert "the receipt is of another table" in said
    assert any("that the condition selects" in line for line in said), "she is in the copy"


def test_a_chain_without_its_middle_is_not_said_to_be_whole() -> None:
    """A pass and its receipt are taken out, and the next one says that it follows the first. Who forged it
    had no key: the check of an earlier receipt says that it cannot speak for that pass."""
    people = three_receipts()
    people.erase(is_who(5), "case-4")
    finish(people)
    assert check(people).problems == () and not unsigned_of(people)
    _, middle, last = lists(people, "pass")
    members = {
        k: json.loads(statement(people, 1))[k] for k in ("previous_pass", "previous_receipt")
    }
    people.store.delete([people.ctx.key(k) for k in (middle, receipt_key("case-3"))])
    before = members["previous_receipt"]
    chained_again(people, "case-4", {**members, "first": 3}, previous=before, number=3)
    with_chain(people, replace(Chain.of(people.snapshot.properties), count=3).as_property)
    assert check(people).problems == ()
    assert unsigned_of(people) == [
        f"{last} is not signed with that key: which receipts are missing there was not checked"
    ]
    assert "not signed with that" in "".join(check(people, "case-4", asked=None).problems)


def unsigned_of(people: People) -> list[str]:
    return [line for line in check(people).named if "not signed" in line]


def test_a_condition_is_compared_by_what_it_says_and_not_by_how_it_is_written() -> None:
    """Formats of numbers, order of parameters and ends of lines outside of values are the same condition;
    another normal form of a name, or another end of line in it, selects other rows."""
    name = unicodedata.normalize("NFC", "Zoe\u0308 A\r\nB")
    people = new_people()
    people.append(*ids_with(3))
    schema = people.snapshot.schema
    asked = parse_predicate("id = 3 AND name = ?", schema, Values([name]))
    people.erase(asked)
    finish(people)
    same = (
        ("id = 03 AND name = ?", [name]),
        ("id = ? AND name = ?", [3, name]),
        ("id\r\n=\t3\r\nAND name = :n", {"n": name}),
        ("ID = 3 and NAME = :b", {"b": name}),
    )
    for text, params in same:
        written = Asked(predicate=parse_predicate(text, schema, Values(params)), key=KEY)
        assert check(people, asked=written).problems == (), text
    for other in (unicodedata.normalize("NFD", name), name.replace("\r\n", "\n"), f"{name} "):
        written = Asked(
            predicate=parse_predicate("id = 3 AND name = ?", schema, Values([other])), key=KEY
        )
        assert check(people, asked=written).problems == ("the receipt is of another condition",)

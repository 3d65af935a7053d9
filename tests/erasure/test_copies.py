"""Copies of receipts under S3 Object Lock, in a bucket of another account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import boto3
import pytest
from moto.s3.models import s3_backends
from tests.simulator.faults import Fate, Killed

from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.format.codec import decode_frame
from inlay.ops.erase import copies, finish
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.copies import LockedCopies
from inlay.ops.erase.receipt import LIST_KIND
from inlay.plan.receipt_chain import Chain

from .people import People, new_people
from .test_receipt import receipt

COPIES = LockedCopies("s3://audit/inlay", "COMPLIANCE", 30)


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The client of a server without the bucket yet."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name="us-east-1")
    yield client
    server.stop()


def retention_of(key: str) -> tuple[str, datetime]:
    """As the server has it, whose answer to GetObjectRetention is broken."""
    [bucket] = [
        found
        for account in s3_backends.values()
        for backend in account.values()
        if (found := backend.buckets.get("audit")) is not None
    ]
    held = bucket.keys[key]
    return held.lock_mode, datetime.fromisoformat(held.lock_until)


def due() -> People:
    """A table whose two erasures end with the next collection."""
    people = new_people()
    people.append(*range(10))
    people.erase(request="case-1")
    people.erase(request="case-2")
    people.advance()
    for _ in range(2):
        people.collect(copies=COPIES)
        people.time.sleep(1_000)
    return people


def steps(people: People) -> Counter[str]:
    """How many lists there are, by the step that wrote them."""
    lists = people.store.list(people.ctx.key("evidence/"))
    return Counter(
        decode_frame(LIST_KIND, people.store.get(info.key).body, key=info.key)["step"]
        for info in lists
    )


def test_an_erasure_ends_once_its_copies_are_locked(audit: Any) -> None:
    people = due()
    waiting = people.collect(copies=COPIES)
    assert waiting.receipts == ()
    assert {(name, w.what, w.name) for name, w in waiting.waiting} == {
        ("case-1", "copies", COPIES.uri),
        ("case-2", "copies", COPIES.uri),
    }
    assert "no bucket 'audit'" in waiting.waiting[0][1].reason
    assert len(people.snapshot.erasures) == 2, "still open"
    kept = steps(people)
    assert (kept["pass"], kept["left"]) == (0, 0), "the next try writes its own"
    for _ in range(3):  # hours in which the bucket is not there
        people.time.sleep(3_600)
        assert people.collect(copies=COPIES).receipts == ()
    assert steps(people) == kept

    audit.create_bucket(Bucket="audit", ObjectLockEnabledForBucket=True)
    people.time.sleep(3_600)
    assert len(people.collect(copies=COPIES).receipts) == 2
    assert people.snapshot.erasures == ()
    assert steps(people)["pass"] == 1
    copied = {
        each["Key"]: audit.get_object(Bucket="audit", Key=each["Key"])
        for each in audit.list_objects_v2(Bucket="audit")["Contents"]
    }
    bodies = {key: got["Body"].read() for key, got in copied.items()}
    for key, body in bodies.items():
        assert sha256(body).hexdigest()[:32] in key
        mode, until = retention_of(key)
        assert mode == "COMPLIANCE"
        now = datetime.fromtimestamp(people.time.now_us() / 1e6, UTC)
        assert abs(until - now - timedelta(days=30)) < timedelta(minutes=1)
    # What is needed to check them without the table's bucket: the receipts, all lists they name, the pass.
    by_digest = {sha256(body).hexdigest(): body for body in bodies.values()}
    for name in ("case-1", "case-2"):
        receipt = people.store.get(people.ctx.key(f"erasure/{name}.json")).body
        assert by_digest[sha256(receipt).hexdigest()] == receipt
        said = decode_frame("erasure", receipt, key=name)
        named = [*said["gone"], said["left"], said["look"]["list"]]
        assert named and all(each["sha256"] in by_digest for each in named)
        assert verify_receipt(people.ctx, name).problems == ()
    made_by = Chain.of(people.snapshot.properties).made_by
    assert made_by is not None
    assert people.store.get(people.ctx.key(made_by)).body in by_digest.values()


def copy_of(people: People, name: str) -> str:
    receipt = people.store.get(people.ctx.key(f"erasure/{name}.json")).body
    return f"inlay/tables/people/erasure/{name}.{sha256(receipt).hexdigest()[:32]}.json"


def test_copies_made_again_are_objects_of_their_own(
    audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that died between the copies and the commit, and a later one, which writes the receipts again:
    whoever may write to the bucket may have written what is there."""
    audit.create_bucket(Bucket="audit", ObjectLockEnabledForBucket=True)
    people = due()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(finish, "CloseErasures", die)
        with pytest.raises(KeyboardInterrupt):
            people.collect(copies=COPIES)
    died = {name: copy_of(people, name) for name in ("case-1", "case-2")}
    people.time.sleep(60)
    assert {w.reason for _, w in people.collect(copies=COPIES).waiting} == {
        "another run is ending it"
    }
    people.time.sleep(3_600)
    assert len(people.collect(copies=COPIES).receipts) == 2
    versions = audit.list_object_versions(Bucket="audit")["Versions"]
    keys = [each["Key"] for each in versions]
    assert len(keys) == len(set(keys)), "none has two versions"
    for name in ("case-1", "case-2"):
        assert copy_of(people, name) != died[name]
        assert {copy_of(people, name), died[name]} <= set(keys)
    with pytest.raises(audit.exceptions.ClientError, match="AccessDenied"):
        audit.delete_object(Bucket="audit", Key=keys[0], VersionId=versions[0]["VersionId"])


class Audit:
    """A bucket under Object Lock, whose `number`-th request meets `fate`."""

    def __init__(self, number: int = 0, fate: Fate = Fate.DONE) -> None:
        self.number, self.fate, self.sent = number, fate, 0
        self.kept: dict[str, bytes] = {}

    def put_locked(self, key: str, data: bytes, **_: object) -> None:
        self.sent += 1
        fate = self.fate if self.sent == self.number else Fate.DONE
        if fate is Fate.KILLED_BEFORE:
            raise Killed
        if fate is not Fate.UNSENT:
            assert self.kept.setdefault(key, data) == data
        if fate is Fate.KILLED_AFTER:
            raise Killed
        if fate in (Fate.UNSENT, Fate.LOST):
            raise StoreUnavailable("no answer")


FATES = (Fate.UNSENT, Fate.LOST, Fate.TWICE, Fate.KILLED_BEFORE, Fate.KILLED_AFTER)


@pytest.mark.parametrize("fate", FATES)
def test_whatever_becomes_of_a_copy_no_erasure_ends_without_all_of_them(
    fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to the other bucket in turn; the table's own are in tests/erasure/test_crash.py."""
    audit = Audit()
    monkeypatch.setattr(copies, "open_store", lambda uri: (audit, "inlay"))
    due().collect(copies=COPIES)
    for number in range(1, audit.sent + 1):
        audit = Audit(number, fate)
        people = due()
        with suppress(Killed):
            people.collect(copies=COPIES)
        missed = fate in (Fate.UNSENT, Fate.KILLED_BEFORE)
        assert bool(people.snapshot.erasures) == (fate is not Fate.TWICE), "ends with its copies"
        for _ in range(3):
            people.time.sleep(1_000)
            people.collect(copies=COPIES)
        assert people.snapshot.erasures == () and audit.sent >= number + missed
        made_by = Chain.of(people.snapshot.properties).made_by
        assert made_by is not None
        said = [receipt(people, name) for name in ("case-1", "case-2")]
        lists = [each["key"] for r in said for each in (*r["gone"], r["left"], r["look"]["list"])]
        for key in ("erasure/case-1.json", "erasure/case-2.json", made_by, *lists):
            assert people.store.get(people.ctx.key(key)).body in audit.kept.values(), key
        for name in ("case-1", "case-2"):
            assert verify_receipt(people.ctx, name).problems == ()


def test_a_retention_is_checked_when_it_is_set() -> None:
    assert LockedCopies.of_text("s3://audit/x", None, None) == LockedCopies(
        "s3://audit/x", "GOVERNANCE", 3_650
    )
    for uri, mode, days in (
        ("file:///tmp", "GOVERNANCE", "1"),
        ("s3://audit", "LEGAL", "1"),
        ("s3://audit", "COMPLIANCE", "0"),
        ("s3://audit", "COMPLIANCE", "a year"),
    ):
        with pytest.raises(InvalidRequest):
            LockedCopies.of_text(uri, mode, days)

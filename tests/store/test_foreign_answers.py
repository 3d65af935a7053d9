"""What answers 200 and is no S3: a proxy's page, another document, nothing. None is a list of nothing.

An erasure looks at what is left by listing it, and collectors delete by it: a server that does not know
`?versions` and answers with its objects would make every version look gone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inlay.errors import InlayError, StoreUnavailable, UnsupportedStore
from inlay.storage import s3
from inlay.storage.base import IF_ABSENT, ByteRange, Got, IfMatch, Location, Part
from inlay.storage.s3 import S3Store

from .test_s3_store import DATE, Say, ScriptedS3, scripted, server, store

__all__ = ["scripted", "server", "store"]  # fixtures


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.0)


OBJECTS = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix/>
<KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"""
BODIES = {
    "page": b"<!DOCTYPE html><html><body>Please log in</body></html>",
    "nothing": b"",
    "json": b"{}",
    "half an entry": b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
    "another document": b"<s3:Other xmlns:s3='x'/>",
}
SOURCE = Location("s3", "bucket", "source")
REQUESTS: dict[str, Callable[[S3Store], object]] = {
    "get": lambda store: store.get("k"),
    "head": lambda store: store.head("k"),
    "list": lambda store: list(store.list("")),
    "list_prefixes": lambda store: list(store.list_prefixes("")),
    "list_versions": lambda store: list(store.list_versions("")),
    "list_uploads": lambda store: list(store.list_uploads("")),
    "put": lambda store: store.put("k", b"x", condition=IF_ABSENT),
    "copy": lambda store: store.copy(SOURCE, "k", if_source_match="e", condition=IF_ABSENT),
    "delete": lambda store: store.delete(["k"]),
    "delete_versions": lambda store: store.delete_versions([("k", "1")]),
    "create_multipart": lambda store: store.create_multipart("k"),
    "upload_part": lambda store: store.upload_part("k", "u", 1, b"x"),
    "upload_part_copy": lambda store: store.upload_part_copy(
        "k", "u", 1, source=SOURCE, byte_range=ByteRange(0, 5 << 20), if_source_match="e"
    ),
    "complete_multipart": lambda store: store.complete_multipart("k", "u", [Part(1, "e")]),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("body", BODIES)
def test_another_answer_of_200_is_an_error_of_the_library(
    scripted: ScriptedS3, store: S3Store, body: str, request_: str
) -> None:
    scripted.script = [Say(200, body=BODIES[body])]
    with pytest.raises(InlayError):
        REQUESTS[request_](store)


@pytest.mark.parametrize("request_", ["list_versions", "list_uploads", "delete", "delete_versions"])
def test_a_list_of_objects_is_no_answer_to_another_request(
    scripted: ScriptedS3, store: S3Store, request_: str
) -> None:
    scripted.script = [Say(200, body=OBJECTS)]
    assert list(store.list("")) == []
    with pytest.raises(InlayError, match="in place of <"):
        REQUESTS[request_](store)


ENDLESS = {
    "list": b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    "list again": b"<ListBucketResult><IsTruncated>true</IsTruncated>"
    b"<NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
    "list_versions": b"<ListVersionsResult><IsTruncated>true</IsTruncated></ListVersionsResult>",
    "list_uploads": b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
    b"<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"
    b"</ListMultipartUploadsResult>",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", ENDLESS)
def test_a_listing_that_never_comes_to_an_end_is_refused(
    scripted: ScriptedS3, store: S3Store, case: str
) -> None:
    scripted.script = [Say(200, body=ENDLESS[case])]
    with pytest.raises(UnsupportedStore, match="where the next"):
        REQUESTS[case.partition(" ")[0]](store)


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("status", [200, 404, 412])
def test_a_head_that_is_cut_short_is_no_answer_whatever_its_status(
    scripted: ScriptedS3, store: S3Store, status: int, request_: str
) -> None:
    scripted.script = [Say(status, cut=True)]
    with pytest.raises(StoreUnavailable):
        REQUESTS[request_](store)


ASKED_UNDER_A_CONDITION: dict[str, Callable[[S3Store], object]] = {
    "swap": lambda store: store.put("k", b"x", condition=IfMatch("e")),
    "get_suffix": lambda store: store.get_suffix("k", 8),
}


@pytest.mark.parametrize(
    "request_", [name for name in REQUESTS if name != "head"] + ["swap", "get_suffix"]
)
@pytest.mark.parametrize("status", [404, 405, 409])
@pytest.mark.parametrize(
    "body", [b"", b"404 page not found\n", b"<html><body>default backend</body></html>"]
)
def test_a_proxy_that_does_not_find_its_s3_says_nothing_of_an_object(
    scripted: ScriptedS3, store: S3Store, status: int, body: bytes, request_: str
) -> None:
    """A landed file would be taken back, a pointer missing, a swap refused."""
    scripted.script = [Say(status, body=body)]
    with pytest.raises(StoreUnavailable, match="without a code of S3"):
        (REQUESTS | ASKED_UNDER_A_CONDITION)[request_](store)


BYTES = bytes(range(100))
RANGES = {None: (0, 100), "bytes=10-19": (10, 20), "bytes=90-120": (90, 100), "bytes=-8": (92, 100)}
ASK: dict[str | None, Callable[[S3Store], object]] = {
    None: lambda store: store.get("k"),
    "bytes=10-19": lambda store: store.get("k", byte_range=ByteRange(10, 20)),
    "bytes=90-120": lambda store: store.get("k", byte_range=ByteRange(90, 121)),
    "bytes=-8": lambda store: store.get_suffix("k", 8),
}


def partial(start: int, end: int, length: int | None = None, said: str | None = None) -> Say:
    """A 206 that says these bytes, and has so many."""
    body = BYTES[start : end if length is None else start + length]
    headers = {"ETag": '"e"', "Last-Modified": DATE}
    range_ = f"bytes {start}-{end - 1}/100" if said is None else said
    return Say(206, body=body, headers=headers | ({"Content-Range": range_} if range_ else {}))


@pytest.mark.parametrize("asked", RANGES)
def test_the_bytes_of_an_answer_are_those_that_were_asked_for(
    scripted: ScriptedS3, store: S3Store, asked: str | None
) -> None:
    start, end = RANGES[asked]
    scripted.script = [partial(start, end)]
    answer = ASK[asked](store)
    assert isinstance(answer, Got)
    assert (answer.body, answer.size) == (BYTES[start:end], 100)
    others = [(start + a, end + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    wrong = [partial(a, b) for a, b in others if (a, b) != (start, end) and a >= 0 and b <= 100]
    wrong += [partial(start, end, length) for length in (0, end - start - 1)]
    wrong += [partial(start, end, said=said) for said in ("", "bytes 10-19/*", "x")]
    for say in wrong:
        scripted.script = [say]
        with pytest.raises(StoreUnavailable, match="no answer of S3 that can be read"):
            ASK[asked](store)


KEPT = "<DeleteResult><Error>{}</Error></DeleteResult>"


@pytest.mark.parametrize(
    "said", ["<Key>a%2Bb</Key><Code>SlowDown</Code>", "<Code>AccessDenied</Code>", "<Key>a+b</Key>"]
)
def test_an_error_of_a_deletion_names_a_key_that_was_asked_for(
    scripted: ScriptedS3, store: S3Store, said: str
) -> None:
    scripted.script = [Say(200, body=KEPT.format(said).encode())]
    with pytest.raises(StoreUnavailable, match="of no key that was asked for"):
        store.delete(["a+b"])


ENTRY = (
    "<Key>b/1</Key><VersionId>1</VersionId><IsLatest>true</IsLatest><Size>1</Size><ETag>e</ETag>"
    "<UploadId>u</UploadId><LastModified>2026-11-20T16:00:00Z</LastModified>"
    "<Initiated>2026-11-20T16:00:00Z</Initiated>"
)
LISTINGS = {
    "list": "<ListBucketResult><Contents>{}</Contents></ListBucketResult>",
    "list_versions": "<ListVersionsResult><Version>{}</Version></ListVersionsResult>",
    "list_uploads": "<ListMultipartUploadsResult><Upload>{}</Upload></ListMultipartUploadsResult>",
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_listing_lists_what_was_asked_for_and_whole_entries(
    scripted: ScriptedS3, store: S3Store, listing: str
) -> None:
    """A collector would take what is another table's, where a proxy drops the query, for its own."""
    scripted.script = [Say(200, body=LISTINGS[listing].format(ENTRY).encode())]
    assert [item.key for item in getattr(store, listing)("b/")] == ["b/1"]  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedStore, match="where 'a/' was asked for"):
        list(getattr(store, listing)("a/"))
    scripted.script = [Say(200, body=LISTINGS[listing].format("<Key>b/1</Key>").encode())]
    with pytest.raises(StoreUnavailable):
        list(getattr(store, listing)("b/"))

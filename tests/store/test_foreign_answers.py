"""What answers 200 and is no S3: a proxy's page, another document, nothing. None is a list of nothing.

An erasure looks at what is left by listing it, and collectors delete by it: a server that does not know
`?versions` and answers with its objects would make every version look gone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inlay.errors import InlayError, StoreUnavailable, UnsupportedStore
from inlay.storage.base import IF_ABSENT, ByteRange, Location, Part
from inlay.storage.s3 import S3Store

from .test_s3_store import Say, ScriptedS3, scripted, server, store

__all__ = ["scripted", "server", "store"]  # fixtures

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

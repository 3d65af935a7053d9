"""What answers 200 and is no S3: a proxy's page, another document, nothing. None is a list of nothing.

An erasure looks at what is left by listing it, and collectors delete by it: a server that does not know
`?versions` and answers with its objects would make every version look gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from inlay.errors import InlayError, StoreUnavailable, UnsupportedStore
from inlay.storage import s3
from inlay.storage.base import IF_ABSENT, ByteRange, Location, Part
from inlay.storage.s3 import S3Store

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


class _Answering(ThreadingHTTPServer):
    daemon_threads = True
    body = b""
    status_line = b""  # all that is answered, if any


class _Handler(BaseHTTPRequestHandler):
    server: _Answering

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.server.status_line:
            self.wfile.write(self.server.status_line)
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[_Answering]:
    with _Answering(("127.0.0.1", 0), _Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def store(server: _Answering, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(s3, "_back_off", lambda *_: None)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return S3Store("bucket", endpoint_url=url, region="us-east-1")


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("body", BODIES)
def test_another_answer_of_200_is_an_error_of_the_library(
    server: _Answering, store: S3Store, body: str, request_: str
) -> None:
    server.body = BODIES[body]
    with pytest.raises(InlayError):
        REQUESTS[request_](store)


@pytest.mark.parametrize("request_", ["list_versions", "list_uploads", "delete", "delete_versions"])
def test_a_list_of_objects_is_no_answer_to_another_request(
    server: _Answering, store: S3Store, request_: str
) -> None:
    server.body = OBJECTS
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
    server: _Answering, store: S3Store, case: str
) -> None:
    server.body = ENDLESS[case]
    with pytest.raises(UnsupportedStore, match="where the next"):
        REQUESTS[case.partition(" ")[0]](store)


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "412 Precondition Failed"])
def test_a_head_that_is_cut_short_is_no_answer_whatever_its_status(
    server: _Answering, store: S3Store, monkeypatch: pytest.MonkeyPatch, status: str, request_: str
) -> None:
    monkeypatch.setattr(server, "status_line", f"HTTP/1.1 {status}\r\n".encode())
    with pytest.raises(StoreUnavailable):
        REQUESTS[request_](store)

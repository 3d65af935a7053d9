"""How the S3 store behaves when S3 answers anything but success.

A scripted server replaces S3: it gives the scripted answers, in order, and records the requests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import botocore.session
import pytest
from botocore.config import Config

from inlay.errors import (
    AccessDenied,
    ErrorKind,
    InlayError,
    InvalidRequest,
    KeyTaken,
    PageError,
    StoreUnavailable,
    UnsupportedStore,
)
from inlay.storage import s3
from inlay.storage.base import (
    IF_ABSENT,
    ByteRange,
    Condition,
    Got,
    Head,
    IfMatch,
    Location,
    Missing,
    Part,
    Refused,
    Written,
)
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect
from inlay.storage.write_once import complete_once, write_once

if TYPE_CHECKING:
    from inlay.local.s3server import AwsProcess

DATE = "Fri, 20 Nov 2026 16:00:00 GMT"
DATE_US = 1_795_190_400_000_000


@dataclass(frozen=True)
class Say:
    """One scripted answer; status 0 drops the connection, `cut` ends it after the status line."""

    status: int
    code: str = ""
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    date: str | None = DATE
    cut: bool = False

    def content(self) -> bytes:
        if not self.code:
            return self.body
        return f"<Error><Code>{self.code}</Code><Message>words</Message></Error>".encode()


OK = Say(200, headers={"ETag": '"abc"'})


class ScriptedS3:
    """Gives `script` in order; past its end, the last answer again."""

    def __init__(self) -> None:
        self.script: list[Say] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                scripted.asked.append((self.command, self.path, headers))
                say = scripted.script.pop(0) if len(scripted.script) > 1 else scripted.script[0]
                if say.status == 0:
                    self.close_connection = True
                    return
                self.send_response_only(say.status)
                if say.cut:
                    self.flush_headers()
                    self.close_connection = True
                    return
                if say.date is not None:
                    self.send_header("Date", say.date)
                content = say.content()
                for name, value in say.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in say.headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    yield server
    server.stop()


@pytest.fixture
def scripted(server: ScriptedS3) -> ScriptedS3:
    server.script.clear()
    server.asked.clear()
    return server


@pytest.fixture
def store(scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.0)
    return S3Store("lake", client=connect(endpoint_url=scripted.url))


@pytest.mark.parametrize(
    "failure", [Say(503, "SlowDown"), Say(500, "InternalError"), Say(429, "x"), Say(0)]
)
class TestTransientFailures:
    def test_a_read_is_tried_again(
        self, store: S3Store, scripted: ScriptedS3, failure: Say
    ) -> None:
        dated = {"ETag": '"abc"', "Last-Modified": DATE}
        scripted.script = [failure, failure, Say(200, body=b"there", headers=dated)]
        answer = store.get("k")
        assert isinstance(answer, Got)
        assert (answer.body, answer.etag) == (b"there", "abc")
        assert (answer.date_us, answer.modified_us) == (DATE_US, DATE_US)

    def test_attempts_are_bounded(self, store: S3Store, scripted: ScriptedS3, failure: Say) -> None:
        scripted.script = [failure]
        with pytest.raises(StoreUnavailable):
            store.put("k", b"x")
        assert len(scripted.asked) == s3.MAX_ATTEMPTS

    def test_a_swap_is_tried_once(self, store: S3Store, scripted: ScriptedS3, failure: Say) -> None:
        scripted.script = [failure]
        with pytest.raises(StoreUnavailable):
            store.put("pointer", b"x", condition=IfMatch("abc"))
        assert len(scripted.asked) == 1
        assert scripted.asked[0][2]["if-match"] == '"abc"'

    def test_a_create_is_refused_whoever_wrote_what_is_there(
        self, store: S3Store, scripted: ScriptedS3, failure: Say
    ) -> None:
        """Its own first attempt may have, or a writer of equal bytes: the store does not decide that."""
        scripted.script = [failure, Say(412, "PreconditionFailed")]
        assert isinstance(store.put("k", b"mine", condition=IF_ABSENT), Refused)
        assert len(scripted.asked) == 2

    def test_what_is_written_once_is_compared(
        self, store: S3Store, scripted: ScriptedS3, failure: Say
    ) -> None:
        there = Say(200, body=b"mine", headers={"ETag": '"abc"', "Last-Modified": DATE})
        scripted.script = [failure, Say(412, "PreconditionFailed"), there]
        stored = write_once(store, "k", b"mine")
        assert (stored.etag, stored.was_there) == ("abc", True)
        scripted.script = [failure, Say(412, "PreconditionFailed"), there]
        with pytest.raises(KeyTaken):
            write_once(store, "k", b"other")


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (Say(412, "PreconditionFailed"), "exists"),
        (Say(404, "NoSuchKey"), "missing"),
        (Say(409, "ConditionalRequestConflict"), "race"),
    ],
)
def test_a_refused_swap_says_why_and_when(
    store: S3Store, scripted: ScriptedS3, say: Say, reason: str
) -> None:
    scripted.script = [say]
    refused = store.put("k", b"x", condition=IfMatch("abc"))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.date_us) == (reason, DATE_US)
    assert len(scripted.asked) == 1


@pytest.mark.parametrize(
    ("say", "error", "kind", "words"),
    [
        (Say(403, "AccessDenied"), AccessDenied, ErrorKind.PAGE, "policies"),
        (Say(403, "SignatureDoesNotMatch"), AccessDenied, ErrorKind.PAGE, "credentials"),
        (Say(400, "ExpiredToken"), AccessDenied, ErrorKind.PAGE, "credentials"),
        (Say(403, "RequestTimeTooSkewed"), AccessDenied, ErrorKind.PAGE, "clock"),
        (Say(400, "RequestTimeTooSkewed"), AccessDenied, ErrorKind.PAGE, "clock"),
        (Say(408), StoreUnavailable, ErrorKind.RETRY, "408"),
        (Say(403, "InvalidObjectState"), AccessDenied, ErrorKind.PAGE, "Restore"),
        (Say(403, "KMS.AccessDeniedException"), AccessDenied, ErrorKind.PAGE, "policy of the key"),
        (Say(400, "KMS.DisabledException"), AccessDenied, ErrorKind.PAGE, "state"),
        (Say(400, "KMS.NotFoundException"), AccessDenied, ErrorKind.PAGE, "state"),
        (Say(400, "KMS.KMSInvalidStateException"), AccessDenied, ErrorKind.PAGE, "state"),
        (Say(400, "KMS.ThrottlingException"), StoreUnavailable, ErrorKind.RETRY, "KMS"),
        (Say(302, headers={"Location": "/login"}), PageError, ErrorKind.PAGE, "redirect"),
        (
            Say(307, "TemporaryRedirect", headers={"Location": "/bucket/k"}),
            PageError,
            ErrorKind.PAGE,
            "proxy",
        ),
        (Say(404, "NoSuchBucket"), InvalidRequest, ErrorKind.INPUT, "lake"),
        (Say(400, "InvalidArgument"), InvalidRequest, ErrorKind.INPUT, "InvalidArgument"),
        (Say(400, "RequestTimeout"), StoreUnavailable, ErrorKind.RETRY, "RequestTimeout"),
        (Say(501, "NotImplemented"), UnsupportedStore, ErrorKind.PAGE, "conditional writes"),
        (Say(501, body=b"no such thing"), UnsupportedStore, ErrorKind.PAGE, "conditional writes"),
        (Say(418, "Teapot"), PageError, ErrorKind.PAGE, "Teapot"),
        (Say(409, "OperationAborted"), StoreUnavailable, ErrorKind.RETRY, "OperationAborted"),
        (
            Say(200, date=None, headers={"ETag": '"a"', "Last-Modified": DATE}),
            PageError,
            ErrorKind.PAGE,
            "Date",
        ),
    ],
)
def test_what_s3_says_decides_who_acts(
    store: S3Store,
    scripted: ScriptedS3,
    say: Say,
    error: type[InlayError],
    kind: ErrorKind,
    words: str,
) -> None:
    scripted.script = [say]
    with pytest.raises(error) as caught:
        store.get("some/key")
    assert caught.value.kind is kind
    assert words in str(caught.value)


@pytest.mark.parametrize("ask", ["get", "get_suffix", "head"])
def test_only_of_a_version_is_an_invalid_argument_an_absence(
    store: S3Store, scripted: ScriptedS3, ask: str
) -> None:
    """That is how S3 calls an id that never was a version's."""
    code = "" if ask == "head" else "InvalidArgument"  # the answer to a HEAD has no body
    if ask != "head":
        scripted.script = [Say(400, code)]
        arguments = (5,) if ask == "get_suffix" else ()
        assert isinstance(getattr(store, ask)("k", *arguments, version_id="none"), Missing)
        scripted.script = [Say(400, "InvalidRequest")]
        with pytest.raises(InvalidRequest):
            getattr(store, ask)("k", *arguments, version_id="none")
    tagged = Say(200, headers={"ETag": '"a"', "Last-Modified": DATE, "x-amz-tagging-count": "2"})
    scripted.script = [tagged, Say(400, "InvalidArgument")]
    with pytest.raises(InvalidRequest, match="InvalidArgument"):
        store.head("k")  # its tags are not taken for none
    scripted.script = [tagged, Say(400, "InvalidArgument")]
    found = store.head("k", version_id="v")
    assert isinstance(found, Head) and found.info.unread_tags


def test_a_server_that_is_not_there_is_unavailable(store: S3Store) -> None:
    stopped = ScriptedS3()
    stopped.stop()
    with pytest.raises(StoreUnavailable):
        S3Store("lake", client=connect(endpoint_url=stopped.url)).get("k")


def test_an_answer_cut_short_is_tried_again(store: S3Store, scripted: ScriptedS3) -> None:
    dated = {"ETag": '"abc"', "Last-Modified": DATE}
    short = Say(200, body=b"the", headers={**dated, "Content-Length": "9", "Connection": "close"})
    scripted.script = [short, Say(200, body=b"the whole", headers=dated)]
    answer = store.get("k")
    assert isinstance(answer, Got)
    assert answer.body == b"the whole"


def test_a_copy_that_fails_behind_a_200_did_not_happen(
    store: S3Store, scripted: ScriptedS3
) -> None:
    scripted.script = [Say(200, "InternalError")]
    with pytest.raises(StoreUnavailable):
        store.copy(Location("s3", "lake", "src"), "dst", condition=IF_ABSENT)
    assert len(scripted.asked) == 1  # conditional: not repeated


SOURCE = Location("s3", "lake", "src")
JOINED = [Part(1, "e")]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("PreconditionFailed", "exists"), ("ConditionalRequestConflict", "race")],
)
def test_a_condition_that_fails_behind_a_200_is_refused(
    store: S3Store, scripted: ScriptedS3, code: str, outcome: str
) -> None:
    """S3 sends the head before it has copied or joined what is large. It is no fault of the server, which
    asking again would mend."""
    scripted.script = [Say(200, code)]
    joined = store.complete_multipart("k", "u", JOINED, condition=IF_ABSENT)
    copied = store.copy(SOURCE, "k", if_source_match="e", condition=IF_ABSENT)
    for answer in (joined, copied):
        assert isinstance(answer, Refused)
        assert answer.reason == outcome
    assert len(scripted.asked) == 2


def test_what_is_missing_behind_a_200_is_missing(store: S3Store, scripted: ScriptedS3) -> None:
    scripted.script = [Say(200, "NoSuchUpload")]
    assert isinstance(store.complete_multipart("k", "u", JOINED, condition=IF_ABSENT), Missing)
    scripted.script = [Say(200, "NoSuchKey")]
    assert isinstance(store.copy(SOURCE, "k", if_source_match="e", condition=IF_ABSENT), Missing)
    assert len(scripted.asked) == 2


def test_what_landed_before_its_completion_is_refused_behind_a_200_is_found(
    store: S3Store, scripted: ScriptedS3
) -> None:
    there = Say(200, headers={"ETag": '"abc"', "Last-Modified": DATE, "Content-Length": "9"})
    scripted.script = [Say(0), Say(200, "PreconditionFailed"), there]
    stored = complete_once(store, "k", "u", JOINED, size=9)
    assert (stored.etag, stored.was_there) == ("abc", True)
    assert len(scripted.asked) == 3


def test_who_may_not_is_refused_behind_a_200_once(store: S3Store, scripted: ScriptedS3) -> None:
    scripted.script = [Say(200, "AccessDenied")]
    with pytest.raises(AccessDenied):
        store.complete_multipart("k", "u", JOINED, condition=IF_ABSENT)
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "SDK"])
@pytest.mark.parametrize("condition", [None, IF_ABSENT, IfMatch("e")])
def test_a_body_goes_with_its_digest(
    store: S3Store,
    scripted: ScriptedS3,
    monkeypatch: pytest.MonkeyPatch,
    direct: bool,
    condition: Condition,
) -> None:
    """SeaweedFS 4.48 keeps an empty object where a connection ends behind the head of a PUT without it."""
    if not direct:
        monkeypatch.setattr(s3, "s3_direct", _NeverDirect)
    scripted.script = [OK, OK]
    store.put("k", b"a pointer", condition=condition)
    store.put("k", memoryview(b""), condition=condition)
    said = [headers["content-md5"] for _, _, headers in scripted.asked]
    assert said == ["00gB5BSfclsEP23qnj3U4g==", "1B2M2Y8AsgTpgAmY7PhCfg=="]


def test_of_large_bodies_only_swaps_go_with_their_digest(
    store: S3Store, scripted: ScriptedS3
) -> None:
    scripted.script = [OK]
    large = bytes(s3.DIGEST_BYTES + 1)
    for condition in (IF_ABSENT, IfMatch("e")):
        store.put("k", large, condition=condition)
    assert ["content-md5" in headers for _, _, headers in scripted.asked] == [False, True]


def _page(*keys: str, following: str = "") -> Say:
    each = (
        "<Contents><Key>{}</Key><Size>1</Size><ETag>&quot;e&quot;</ETag>"
        "<LastModified>2026-11-20T16:00:00.000Z</LastModified></Contents>"
    )
    truncated = "true" if following else "false"
    token = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    body = f"<IsTruncated>{truncated}</IsTruncated>{token}" + "".join(map(each.format, keys))
    return Say(200, body=f"<ListBucketResult>{body}</ListBucketResult>".encode())


@pytest.mark.parametrize("start_after", [None, "a"])
def test_a_listing_that_walks_folders_is_refused(
    store: S3Store, scripted: ScriptedS3, start_after: str | None
) -> None:
    """As SeaweedFS lists, also from one page to the next."""
    scripted.script = [_page("a/x", "b/x", following="2"), _page("b-/x")]
    found = store.list("", start_after=start_after)
    assert [next(found).key, next(found).key] == ["a/x", "b/x"]
    with pytest.raises(UnsupportedStore, match="lists 'b-/x' behind 'b/x', which is greater"):
        next(found)


def test_a_listing_that_begins_before_what_was_asked_for_is_refused(
    store: S3Store, scripted: ScriptedS3
) -> None:
    scripted.script = [_page("a", "b")]
    with pytest.raises(UnsupportedStore, match="lists 'a' behind 'aa', which is greater"):
        list(store.list("", start_after="aa"))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "SDK"])
def test_a_listing_that_fails_behind_a_200_is_asked_again(
    store: S3Store, scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:
        monkeypatch.setattr(s3, "s3_direct", _NeverDirect)
    empty = Say(200, body=b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    scripted.script = [Say(200, "SlowDown"), empty]
    assert list(store.list("")) == []
    assert len(scripted.asked) == 2


class _NeverDirect:
    OPERATIONS = frozenset[str]()


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "SDK"])
def test_a_weak_etag_is_the_strong_one_to_the_store_behind_a_proxy(
    store: S3Store, scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:
        monkeypatch.setattr(s3, "s3_direct", _NeverDirect)
    weak = {"ETag": 'W/"abc"', "Last-Modified": DATE}
    scripted.script = [Say(200, body=b"there", headers=weak), OK]
    found = store.get("k")
    assert isinstance(found, Got)
    store.put("k", b"x", condition=IfMatch(found.etag))
    assert scripted.asked[-1][2]["if-match"] == '"abc"'


UNREADABLE = {
    "a date of nothing": {"ETag": '"abc"', "Last-Modified": "soon", "Content-Length": "5"},
    "a size of nothing": {"ETag": '"abc"', "Last-Modified": DATE, "Content-Range": "bytes 0-4/*"},
    "no size": {"ETag": '"abc"', "Last-Modified": DATE, "Content-Length": "five"},
}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "SDK"])
@pytest.mark.parametrize("head", UNREADABLE)
def test_a_head_that_means_nothing_is_no_answer(
    store: S3Store,
    scripted: ScriptedS3,
    monkeypatch: pytest.MonkeyPatch,
    head: str,
    direct: bool,
) -> None:
    if not direct:
        monkeypatch.setattr(s3, "s3_direct", _NeverDirect)
    headers = {"Connection": "close", **UNREADABLE[head]}
    dated = {"ETag": '"abc"', "Last-Modified": DATE}
    scripted.script = [
        Say(200, body=b"there", headers=headers),
        Say(200, body=b"there", headers=dated),
    ]
    answer = store.get("k")
    assert isinstance(answer, Got)
    assert (answer.body, answer.size, len(scripted.asked)) == (b"there", 5, 2)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "SDK"])
def test_a_date_without_a_zone_is_utc(
    store: S3Store, scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:
        monkeypatch.setattr(s3, "s3_direct", _NeverDirect)
    plain = DATE.replace("GMT", "-0000")
    scripted.script = [Say(200, date=plain, headers={"ETag": '"abc"', "Last-Modified": plain})]
    head = store.head("k")
    assert isinstance(head, Head)
    assert (head.date_us, head.info.modified_us) == (DATE_US, DATE_US)


@pytest.mark.parametrize("date", [None, "soon"])
@pytest.mark.parametrize("status", [200, 412])
def test_a_write_whose_answer_has_no_date_may_have_been_done(
    store: S3Store, scripted: ScriptedS3, status: int, date: str | None
) -> None:
    """Not `PageError`, as for a read: that would say that the swap was not done."""
    scripted.script = [Say(status, headers={"ETag": '"abc"'}, date=date)]
    with pytest.raises(StoreUnavailable, match="can be read"):
        store.put("pointer", b"x", condition=IfMatch("abc"))
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("given", [False, True], ids=["own client", "client that was given"])
def test_a_model_without_conditions_on_copies_sends_them_all_the_same(
    s3_store: S3Store, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lambda's runtimes, Glue and EMR bring SDKs from before October 2025, whose models reject them."""
    store = s3_store
    if given:
        fresh = botocore.session.Session().create_client(
            "s3",
            region_name="eu-central-1",
            endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"],
            config=Config(s3={"addressing_style": "path"}),
        )
        store = S3Store(s3_store.bucket, client=fresh)
    shape = store.client.meta.service_model.operation_model("CopyObject").input_shape
    for name in ("IfMatch", "IfNoneMatch"):
        monkeypatch.delitem(shape.members, name, raising=False)
    source = Location("s3", store.bucket, "source")
    store.put("source", b"new")
    assert isinstance(store.copy(source, "target", condition=IF_ABSENT), Written)
    assert isinstance(store.copy(source, "target", condition=IF_ABSENT), Refused)
    old = store.head("target")
    assert isinstance(old, Head)
    store.put("source", b"newer")
    assert isinstance(store.copy(source, "target", condition=IfMatch("0" * 32)), Refused)
    assert isinstance(store.copy(source, "target", condition=IfMatch(old.info.etag)), Written)


def test_a_server_that_ignores_ranges_is_cut_here(store: S3Store, scripted: ScriptedS3) -> None:
    dated = {"ETag": '"abc"', "Last-Modified": DATE}
    scripted.script = [Say(200, body=b"0123456789", headers=dated)]
    part = store.get("k", byte_range=ByteRange(2, 5))
    end = store.get_suffix("k", 3)
    assert isinstance(part, Got)
    assert isinstance(end, Got)
    assert (part.body, part.size, end.body, end.size) == (b"234", 10, b"789", 10)


def test_deletes_have_the_only_digest_that_each_server_takes(
    store: S3Store, scripted: ScriptedS3
) -> None:
    scripted.script = [Say(200, body=b"<DeleteResult></DeleteResult>")]
    assert not store.delete(["a", "b"])
    [(_, _, headers)] = scripted.asked
    assert len(headers["content-md5"]) == 24
    assert "content-md5" in headers["authorization"]  # signed with the rest


def test_keys_a_batched_delete_kept_are_reported_and_the_transient_tried_again(
    store: S3Store, scripted: ScriptedS3
) -> None:
    def failed(*keys: tuple[str, str]) -> Say:
        errors = "".join(
            f"<Error><Key>{key}</Key><Code>{code}</Code></Error>" for key, code in keys
        )
        return Say(200, body=f"<DeleteResult>{errors}</DeleteResult>".encode())

    scripted.script = [
        failed(("a", "AccessDenied"), ("b", "InternalError")),
        failed(),
    ]
    (failure,) = store.delete(["a", "b", "c"])
    assert (failure.key, failure.reason) == ("a", "AccessDenied")
    assert len(scripted.asked) == 2


def test_head_carries_what_a_rewrite_must_set_again(store: S3Store, scripted: ScriptedS3) -> None:
    scripted.script = [
        Say(
            200,
            headers={
                "ETag": '"abc"',
                "Last-Modified": DATE,
                "Content-Type": "application/x-parquet",
                "Cache-Control": "no-store",
                "x-amz-storage-class": "STANDARD_IA",
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "arn:key",
                "x-amz-server-side-encryption-bucket-key-enabled": "true",
                "x-amz-tagging-count": "2",
                "x-amz-meta-owner": "me",
            },
        ),
        Say(
            200,
            body=b"<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag>"
            b"<Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>",
        ),
        Say(200, body=b"<X><UploadId>u</UploadId></X>"),
    ]
    head = store.head("k")
    assert isinstance(head, Head)
    assert head.info.headers == {
        "BucketKeyEnabled": "true",
        "CacheControl": "no-store",
        "ContentType": "application/x-parquet",
        "SSEKMSKeyId": "arn:key",
        "ServerSideEncryption": "aws:kms",
        "StorageClass": "STANDARD_IA",
        "Tagging": "a+b=1%262&c=",
    }
    store.create_multipart("k2", metadata=head.info.metadata, headers=head.info.headers)
    sent = scripted.asked[-1][2]
    assert sent["x-amz-server-side-encryption-bucket-key-enabled"] == "true"
    assert sent["x-amz-storage-class"] == "STANDARD_IA"
    assert sent["x-amz-tagging"] == "a+b=1%262&c="
    assert sent["x-amz-meta-owner"] == "me"


def test_tags_that_may_not_be_read_are_left_out(store: S3Store, scripted: ScriptedS3) -> None:
    scripted.script = [
        Say(200, headers={"ETag": '"a"', "Last-Modified": DATE, "x-amz-tagging-count": "1"}),
        Say(403, "AccessDenied"),
    ]
    head = store.head("k")
    assert isinstance(head, Head)
    assert "Tagging" not in head.info.headers
    assert head.info.unread_tags


def test_no_credentials_is_access_denied(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    with pytest.raises(AccessDenied, match="credentials"):
        S3Store("lake", client=connect(endpoint_url=scripted.url)).get("k")


def test_one_client_serves_all_stores_of_an_environment(
    aws_env: AwsProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert S3Store("one").client is S3Store("two").client
    assert S3Store("one").at("three").client is S3Store("one").client
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert S3Store("one").client is not S3Store("one", client=connect(region="eu-west-1")).client


def test_a_missing_bucket_is_named(aws_env: AwsProcess) -> None:
    store = S3Store("no-such-bucket-here")
    for call in (
        lambda: store.get("k"),
        lambda: store.put("k", b""),
        lambda: list(store.list("")),
        lambda: store.delete(["k"]),
    ):
        with pytest.raises(InvalidRequest, match="no-such-bucket-here"):
            call()


def test_versions_of_a_missing_key(s3_store: S3Store) -> None:
    assert isinstance(s3_store.get("k", version_id="null"), Missing)

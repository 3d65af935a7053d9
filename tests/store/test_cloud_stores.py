"""How the stores of gs:// and az:// behave when the service answers anything but success, and what leaves a
process: no credential, in no pickle, log or error.

A scripted server replaces the service: it gives the scripted answers, in order, and records the requests.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.simulator.fault_proxy import Fault, FaultProxy, Passing

import inlay
from inlay.errors import (
    AccessDenied,
    InvalidRequest,
    KeyTaken,
    StoreUnavailable,
    UnsupportedStore,
)
from inlay.storage import azure_account, gcs, rest
from inlay.storage.azure import AzureStore
from inlay.storage.base import (
    IF_ABSENT,
    ByteRange,
    Got,
    Head,
    IfMatch,
    Location,
    Missing,
    Refused,
    Written,
)
from inlay.storage.gcs import GcsStore
from inlay.storage.open import parse_location, store_at
from inlay.storage.write_once import complete_once, write_once

from .conftest import ACCOUNT_KEY
from .test_s3_store import DATE, Say, ScriptedS3

MADE = b'{"name": "k", "generation": "7", "size": "3", "updated": "2026-11-20T16:00:00.5Z"}'
BODY_HEADERS = {"X-Goog-Generation": "7", "Last-Modified": "Fri, 20 Nov 2026 16:00:00 GMT"}
BLOB = {"ETag": '"0x7"', "Last-Modified": "Fri, 20 Nov 2026 16:00:00 GMT"}
Service = Any


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    yield server
    server.stop()


@pytest.fixture(params=["gcs", "azure"])
def service(
    request: pytest.FixtureRequest, server: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> Service:
    """(store, server, a write's success, a read's success)"""
    server.asked.clear()
    monkeypatch.setattr(rest, "_FIRST_BACKOFF_SECONDS", 0.001)
    if request.param == "gcs":
        store: Any = GcsStore("lake", endpoint_url=server.url)
        return store, server, Say(200, body=MADE), Say(200, body=b"new", headers=BODY_HEADERS)
    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
    store = AzureStore("lake", account="acct", endpoint_url=server.url)
    return store, server, Say(201, headers=BLOB), Say(200, body=b"new", headers=BLOB)


def refusal(store: Any, status: int, code: str = "", message: str = "words") -> Say:
    if isinstance(store, GcsStore):
        said = {"error": {"code": status, "message": message, "errors": [{"reason": code}]}}
        return Say(status, body=json.dumps(said).encode())
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Say(status, body=text.encode())


UNMET = {GcsStore: (412, "conditionNotMet"), AzureStore: (409, "BlobAlreadyExists")}


class TestLostAnswers:
    """A refusal may be the answer to our own first write, or equal bytes may be another's: the store does
    not decide that."""

    def test_a_create_is_refused_whoever_wrote_what_is_there(self, service: Service) -> None:
        store, server, _, _ = service
        server.script = [Say(0), refusal(store, *UNMET[type(store)])]
        refused = store.put("k", b"new", condition=IF_ABSENT)
        assert isinstance(refused, Refused)
        assert refused.reason == "exists"
        assert [a[0] for a in server.asked].count("GET") == 0

    def test_what_is_written_once_is_compared(self, service: Service) -> None:
        store, server, _, read = service
        server.script = [Say(0), refusal(store, *UNMET[type(store)]), read]
        assert write_once(store, "k", b"new").was_there
        server.script = [Say(503), refusal(store, *UNMET[type(store)]), read]
        with pytest.raises(KeyTaken):
            write_once(store, "k", b"another")

    @pytest.mark.parametrize("ours", [True, False])
    def test_a_completion_is_refused_whoever_made_what_is_there(
        self, gcs_store: GcsStore, gcs_env: str, monkeypatch: pytest.MonkeyPatch, ours: bool
    ) -> None:
        """What its first try has made, or somebody else in between: the caller compares."""
        monkeypatch.setattr(rest, "_FIRST_BACKOFF_SECONDS", 0.001)
        store = gcs_store
        upload = store.create_multipart("k")
        part = store.upload_part("k", upload, 1, b"three")
        fault: Fault = "reset_after" if ours else "reset_before"
        met: list[Fault] = []

        def plan(passing: Passing) -> Fault | None:
            if "/compose" not in passing.target or met:
                return None
            met.append(fault)
            if not ours:
                store.put("k", b"3", condition=IF_ABSENT)
            return fault

        with FaultProxy(gcs_env, plan) as proxy:
            through = GcsStore(store.bucket, endpoint_url=proxy.endpoint_url)
            answer = through.complete_multipart("k", upload, [part], condition=IF_ABSENT)
        assert met == [fault]
        assert isinstance(answer, Refused)
        assert answer.reason == "exists"
        # Of what was made nothing else is left; what another stands in the way of stays an upload.
        assert len(list(store.list_uploads("k"))) == (not ours)
        if ours:
            upload = store.create_multipart("q")
            part = store.upload_part("q", upload, 1, b"three")
            met.clear()
            with FaultProxy(gcs_env, plan) as proxy:
                through = GcsStore(store.bucket, endpoint_url=proxy.endpoint_url)
                assert complete_once(through, "q", upload, [part], size=5).was_there

    @pytest.mark.parametrize("lost", [Say(0), Say(500), Say(503), Say(429), Say(408)])
    def test_a_swap_is_sent_once_and_its_outcome_is_unknown(
        self, service: Service, lost: Say
    ) -> None:
        store, server, done, _ = service
        server.script = [lost, done]
        with pytest.raises(StoreUnavailable):
            store.put("k", b"new", condition=IfMatch("7" if isinstance(store, GcsStore) else "0x7"))
        assert len(server.asked) == 1

    def test_what_is_cut_short_is_no_success(self, service: Service) -> None:
        store, server, done, _ = service
        server.script = [Say(done.status, headers={"Content-Length": "0"}), done]
        assert isinstance(store.put("k", b"new"), Written)
        assert len(server.asked) == 2
        server.script = [Say(done.status, body=done.body, headers=done.headers, date=None)]
        with pytest.raises(StoreUnavailable):
            store.put("k", b"new")

    def test_bytes_of_another_place_are_no_answer(self, service: Service) -> None:
        store, server, _, read = service

        def partial(said: str, body: bytes) -> Say:
            return replace(
                read, status=206, body=body, headers={**read.headers, "Content-Range": said}
            )

        asked = ByteRange(2, 5)
        server.script = [partial("bytes 2-4/10", b"234")]
        answer = store.get("k", byte_range=asked)
        assert isinstance(answer, Got)
        assert (answer.body, answer.size) == (b"234", 10)
        for said, body in (
            ("bytes 3-5/10", b"345"),
            ("bytes 2-4/10", b"23"),
            ("bytes 2-3/10", b"23"),
            ("bytes 0-9/10", b"0123456789"),
            ("bytes */10", b"234"),
        ):
            server.script = [partial(said, body)]
            with pytest.raises(StoreUnavailable, match="no answer from"):
                store.get("k", byte_range=asked)

    def test_a_proxys_page_is_no_deletion(self, service: Service) -> None:
        store, server, _, _ = service
        server.script = [Say(200, body=b"<!DOCTYPE html>please log in")]
        with pytest.raises(StoreUnavailable):
            store.delete(["k"])
        with pytest.raises(StoreUnavailable):
            store.upload_part("k", "0" * 32, 1, b"part")

    def test_a_listing_that_never_comes_to_an_end_is_refused(self, service: Service) -> None:
        store, server, _, _ = service
        page = b'{"kind": "storage#objects", "nextPageToken": "t"}'
        if isinstance(store, AzureStore):
            page = b"<EnumerationResults><Blobs/><NextMarker>t</NextMarker></EnumerationResults>"
        server.script = [Say(200, body=page)]
        with pytest.raises(UnsupportedStore, match="where the next"):
            list(store.list(""))
        assert len(server.asked) == 2

    def test_a_weak_etag_is_the_strong_one_to_the_store_behind_a_proxy(
        self, server: ScriptedS3
    ) -> None:
        store = azure_store(server)
        weak = {"ETag": 'W/"0x7"', "Last-Modified": DATE}
        server.script = [Say(200, body=b"there", headers=weak), Say(201, headers=weak)]
        found = store.get("k")
        assert isinstance(found, Got)
        store.put("k", b"new", condition=IfMatch(found.etag))
        assert server.asked[-1][2]["if-match"] == '"0x7"'


class TestMeanings:
    @pytest.mark.parametrize(("count", "unread"), [({}, False), ({"x-ms-tag-count": "2"}, True)])
    def test_a_blobs_index_tags_are_said_to_be_unread(
        self, server: ScriptedS3, count: dict[str, str], unread: bool
    ) -> None:
        store = azure_store(server)
        described = {"ETag": '"0x7"', "Last-Modified": DATE, "Content-Length": "5", **count}
        server.script = [Say(200, headers=described)]
        found = store.head("k")
        assert isinstance(found, Head)
        assert found.info.unread_tags is unread

    def test_a_race_is_a_race(self, service: Service) -> None:
        store, server, _, _ = service
        server.script = [refusal(store, 409, "OperationConflict")]
        refused = store.put("k", b"new", condition=IF_ABSENT)
        assert isinstance(refused, Refused)
        assert refused.reason == "race"

    def test_refused_credentials_and_buckets_that_are_not_there(self, service: Service) -> None:
        store, server, _, _ = service
        for status in (401, 403):
            server.script = [refusal(store, status, "forbidden")]
            with pytest.raises(AccessDenied):
                store.get("k")
        words = "The specified bucket does not exist."
        server.script = [refusal(store, 404, "ContainerNotFound", words)]
        for ask in (
            lambda: store.get("k"),
            lambda: store.put("k", b""),
            lambda: list(store.list("")),
        ):
            with pytest.raises(InvalidRequest):
                ask()

    def test_a_lease_and_an_immutable_blob_are_no_lost_race(self, server: ScriptedS3) -> None:
        store = azure_store(server)
        for status, code in ((412, "LeaseIdMissing"), (409, "BlobImmutableDueToPolicy")):
            server.script = [refusal(store, status, code)]
            with pytest.raises(InvalidRequest):
                store.put("k", b"new", condition=IfMatch("0x7"))

    def test_an_etag_that_no_generation_is_does_not_reach_the_service_as_a_zero(
        self, server: ScriptedS3
    ) -> None:
        store = GcsStore("lake", endpoint_url=server.url)
        server.asked.clear()
        server.script = [Say(200, body=MADE)]
        for etag in ("0", "00", "abc", "", "-1", "1" * 40):
            assert isinstance(store.put("k", b"new", condition=IfMatch(etag)), Refused)
            assert isinstance(store.get("k", if_match=etag), Refused)
        assert all(method == "GET" for method, _, _ in server.asked)

    def test_a_large_copy_goes_on_until_it_is_done(self, server: ScriptedS3) -> None:
        store = GcsStore("lake", endpoint_url=server.url)
        server.asked.clear()
        more = b'{"done": false, "rewriteToken": "t/1"}'
        last = b'{"done": true, "resource": {"generation": "9"}}'
        server.script = [Say(200, body=more), Say(200, body=last)]
        done = store.copy(Location("gs", "lake", "src"), "dst", condition=IF_ABSENT)
        assert isinstance(done, Written)
        assert "rewriteToken=t%2F1" in server.asked[1][1]


def azure_store(server: ScriptedS3) -> AzureStore:
    server.asked.clear()
    return AzureStore("lake", account="acct", endpoint_url=server.url)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("AZURE_", "STORAGE_EMULATOR", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)


LISTING = b"""\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>t/a</Name><Deleted>true</Deleted><VersionId>v1</VersionId><Properties>
<Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified><Etag>0x1</Etag>
<Content-Length>5</Content-Length><RemainingRetentionDays>6</RemainingRetentionDays></Properties></Blob>
<Blob><Name>t/a</Name><Snapshot>2026-11-20T16:00:00.1Z</Snapshot><Properties>
<Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified><Etag>0x2</Etag>
<Content-Length>5</Content-Length></Properties></Blob>
<Blob><Name>t/a</Name><VersionId>v2</VersionId><Properties>
<Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified><Etag>0x3</Etag>
<Content-Length>5</Content-Length></Properties></Blob>
<Blob><Name>t/a</Name><VersionId>v3</VersionId><IsCurrentVersion>true</IsCurrentVersion><Properties>
<Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified><Etag>0x4</Etag>
<Content-Length>5</Content-Length></Properties></Blob>
<Blob><Name>t/d</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>
<Blob><Name Encoded="true">t/%EF%BF%BF</Name><Properties>
<Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified><Etag>0x5</Etag>
<Content-Length>5</Content-Length></Properties></Blob>
</Blobs><NextMarker/></EnumerationResults>"""


def test_what_azure_keeps_of_deleted_blobs_is_listed_and_not_claimed_gone(
    server: ScriptedS3,
) -> None:
    store = azure_store(server)
    server.script = [Say(200, body=LISTING)]
    found = list(store.list_versions("t/"))
    assert [(v.key, v.version_id, v.is_latest) for v in found] == [
        ("t/a", "soft-deleted:6:v1", False),
        ("t/a", "snapshot:2026-11-20T16:00:00.1Z", False),
        ("t/a", "v2", False),
        ("t/a", "v3", True),
        ("t/\uffff", "null", True),
    ]
    assert "include=deleted%2Csnapshots%2Cversions" in server.asked[0][1]
    server.asked.clear()
    server.script = [Say(202)]
    failures = store.delete_versions([(v.key, v.version_id) for v in found])
    assert [f.version_id for f in failures] == ["soft-deleted:6:v1"]
    assert "soft delete keeps it for 6 more days" in failures[0].reason
    paths = sorted(path for _, path, _ in server.asked)
    assert [p.partition("?")[2] for p in paths] == [
        "",
        "snapshot=2026-11-20T16%3A00%3A00.1Z",
        "versionid=v2",
        "versionid=v3",
    ]


def test_a_listing_in_no_order_is_refused(server: ScriptedS3) -> None:
    store = azure_store(server)
    blob = (
        "<Blob><Name>{}</Name><Properties><Last-Modified>Fri, 20 Nov 2026 16:00:00 GMT</Last-Modified>"
        "<Etag>0x1</Etag><Content-Length>1</Content-Length></Properties></Blob>"
    )
    blobs = f"<Blobs>{blob.format('b')}{blob.format('a')}</Blobs><NextMarker/>"
    listing = f"<EnumerationResults>{blobs}</EnumerationResults>"
    server.script = [Say(200, body=listing.encode())]
    with pytest.raises(UnsupportedStore, match="lists 'a' behind 'b', which is greater"):
        list(store.list(""))


# -- credentials ----------------------------------------------------------------------------------

SIGNATURE = "c2VjcmV0c2VjcmV0"


def test_no_pickle_log_or_error_holds_a_credential(
    server: ScriptedS3, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "_FIRST_BACKOFF_SECONDS", 0.001)
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"?sv=2023-11-03&sp=rwdl&sig={SIGNATURE}")
    store = azure_store(server)
    caplog.set_level(logging.DEBUG, "inlay")
    server.script = [Say(503), Say(0), Say(503), Say(0)]
    with pytest.raises(StoreUnavailable) as caught:
        store.get("k")
    assert SIGNATURE in server.asked[0][1]  # it was sent
    texts = [caplog.text, str(caught.value), repr(caught.value.fields()), repr(store)]
    texts += [repr(azure_account.settings()), pickle.dumps(store).decode("latin-1")]
    assert caplog.text and not any(SIGNATURE in text for text in texts)

    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
    again = pickle.loads(pickle.dumps(store))
    assert (again.bucket, again._endpoint) == (store.bucket, store._endpoint)
    assert ACCOUNT_KEY not in pickle.dumps(again).decode("latin-1") + repr(azure_account.settings())
    secret = AzureStore("lake", account="acct", endpoint_url="https://user:pass@host")
    with pytest.raises(InvalidRequest, match="credentials"):
        pickle.dumps(secret)


def test_tokens_are_not_sent_over_plain_http(server: ScriptedS3, monkeypatch: Any) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    store = azure_store(server)
    with pytest.raises(AccessDenied, match="plain HTTP"):
        store.get("k")
    assert server.asked == []
    plain = GcsStore("lake", endpoint_url=server.url)
    server.script = [refusal(plain, 404)]
    assert isinstance(plain.get("k"), Missing)
    assert "authorization" not in server.asked[0][2]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    with pytest.raises(InvalidRequest) as caught:
        inlay.open("gs://lake/t")
    assert caught.value.next_step == "pip install 'inlay-tables[gcs]'"
    with pytest.raises(InvalidRequest) as caught:
        inlay.open("abfss://lake@acct.dfs.core.windows.net/t")
    assert "pip install 'inlay-tables[azure]'" in caught.value.next_step


def test_a_service_account_gets_a_token(
    server: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    pytest.importorskip("google.auth")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    named = {
        "type": "service_account",
        "client_email": "inlay@example.iam.gserviceaccount.com",
        "private_key": key.decode(),
        "token_uri": f"{server.url}/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(named))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    body = b'{"access_token": "tok", "expires_in": 3600, "token_type": "Bearer"}'
    server.asked.clear()
    server.script = [Say(200, body=body, headers={"Content-Type": "application/json"})]
    for _ in range(2):
        signed = gcs._sign("https://storage.googleapis.com", rest.Request("GET", "/", {}, {}, b""))
        assert signed[1]["authorization"] == "Bearer tok"
    assert [path for _, path, _ in server.asked] == ["/token"]  # once, for both


# -- locations ------------------------------------------------------------------------------------


def test_an_account_is_in_the_uri_the_environment_or_an_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = "lake@acct.dfs.core.windows.net"
    assert parse_location(f"abfss://{full}/t").bucket == full
    assert parse_location("wasbs://lake@acct.blob.core.windows.net/t").bucket == full
    with pytest.raises(InvalidRequest, match="account") as caught:
        inlay.connect("az://lake/t")
    assert "AZURE_STORAGE_ACCOUNT" in caught.value.next_step
    named = inlay.connect("az://lake/t", storage_options={"account_name": "acct"})
    assert named.store.bucket == full
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    for uri in ("az://lake/t", "azure://lake/t", "abfs://lake/t"):
        assert parse_location(uri) == Location("abfss", full, "t")
    store = store_at(parse_location("az://lake/t"))
    assert isinstance(store, AzureStore)
    assert store._endpoint == "https://acct.blob.core.windows.net"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT")
    text = f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={ACCOUNT_KEY};BlobEndpoint=http://h/acct"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert parse_location("az://lake/t").bucket == full
    assert AzureStore("lake")._endpoint == "http://h/acct"


def test_options_are_names_and_never_credentials() -> None:
    for uri, options in (
        ("gs://lake/t", {"service_account_key": "x"}),
        ("gs://lake/t", {"token": "x"}),
        ("az://lake/t", {"azure_storage_account_key": "x"}),
        ("az://lake/t", {"sas_token": "x"}),
    ):
        with pytest.raises(InvalidRequest, match="not taken") as caught:
            inlay.connect(uri, storage_options=options)
        assert "environment" in caught.value.next_step


def test_core_and_layer_do_not_import_these_stores() -> None:
    import subprocess

    program = (
        "import sys, inlay, inlay.storage.open, inlay.storage.s3, inlay.cli.app\n"
        "names = ('inlay.storage.gcs', 'inlay.storage.azure', 'google.auth', 'azure.identity')\n"
        "print([n for n in names if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr

"""The requests sent without the SDK's model: the same requests, the same answers, the same signature.

The SDK is the reference: whatever it sends for an operation, and makes of the answer, is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore
import botocore.session
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials, RefreshableCredentials
from hypothesis import given
from hypothesis import strategies as st
from tests.store.test_s3_store import DATE, Say, ScriptedS3

from inlay.errors import AccessDenied
from inlay.storage import s3, s3_client, s3_direct
from inlay.storage.base import IF_ABSENT, ByteRange, Got, IfMatch, Missing, Written
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect
from inlay.storage.s3_signature import Scope

DATED = {"ETag": '"abc"', "Last-Modified": DATE}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    server = ScriptedS3()
    yield server
    server.stop()


@pytest.fixture
def scripted(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> ScriptedS3:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.0)
    server.script.clear()
    server.asked.clear()
    return server


def client_of(**options: Any) -> Any:
    session = botocore.session.Session()
    session.set_credentials("AKID", "secret", options.pop("token", None))
    return session.create_client("s3", **{"region_name": "eu-central-1"} | options)


# -- signatures -----------------------------------------------------------------------------------


class NotSent(Exception):
    """Where a request would leave."""


header_values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(
    operation=st.sampled_from(sorted(s3_direct.OPERATIONS)),
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    version=st.none() | st.text(max_size=10).filter(lambda text: text.isascii()),
    metadata=st.dictionaries(st.from_regex(r"\A[a-z0-9-]{1,8}\Z"), header_values, max_size=3),
    body=st.binary(max_size=30),
    token=st.none() | st.just("tok/en=="),
    host=st.sampled_from(["http://127.0.0.1:9000/lake", "https://lake.s3.amazonaws.com"]),
)
def test_every_signature_is_the_sdks(
    operation: str,
    key: str,
    version: str | None,
    metadata: dict[str, str],
    body: bytes,
    token: str | None,
    host: str,
) -> None:
    sent = []

    def keep(*request: Any) -> Any:
        sent.append(request)
        raise NotSent

    line = s3_direct.DirectLine(
        send=keep,
        credentials=lambda: Credentials("AKID", "secret", token),
        host=host.split("/")[2],
        base_path="/lake" if host.endswith("/lake") else "",
        user_agent="test",
        scope=Scope("eu-central-1", "s3"),
    )
    arguments: dict[str, Any] = {"Key": key, "Metadata": metadata, "IfMatch": '"e"'}
    if operation == "put_object":
        arguments["Body"] = body
    if version is not None:
        arguments["VersionId"] = version
    if operation == "list_objects_v2":
        arguments = {"Prefix": key, "StartAfter": key}
    with pytest.raises(NotSent):
        line.ask(operation, arguments)
    ((method, path, headers, body),) = sent
    unsigned = {
        name: value
        for name, value in headers.items()
        if name.lower() not in ("authorization", "content-length", "user-agent")
    }
    request = AWSRequest(
        method=method, url=host.removesuffix("/lake") + path, headers=unsigned, data=body or b""
    )
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials("AKID", "secret", token), "s3", "eu-central-1")
    signature = auth.signature(
        auth.string_to_sign(request, auth.canonical_request(request)), request
    )
    assert headers["Authorization"].endswith(f"Signature={signature}")


# -- where requests go ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bucket", "options", "base"),
    [
        ("lake", {}, "https://lake.s3.eu-central-1.amazonaws.com"),
        ("dots.in.name", {}, "https://s3.eu-central-1.amazonaws.com/dots.in.name"),
        ("lake", {"region_name": "cn-north-1"}, "https://lake.s3.cn-north-1.amazonaws.com.cn"),
        (
            "lake",
            {"config": Config(s3={"addressing_style": "path"}), "endpoint_url": "http://h:9000/s3"},
            "http://h:9000/s3/lake",
        ),
        ("lake", {"endpoint_url": "http://[::1]:9000"}, "http://[::1]:9000/lake"),
        ("lake", {"token": "t"}, "https://lake.s3.eu-central-1.amazonaws.com"),
        (
            "lake",
            {"config": Config(s3={"use_accelerate_endpoint": True})},
            "https://lake.s3-accelerate.amazonaws.com",
        ),
        (
            "lake",
            {"config": Config(use_dualstack_endpoint=True)},
            "https://lake.s3.dualstack.eu-central-1.amazonaws.com",
        ),
        (
            "arn:aws:s3:us-west-2:123456789012:accesspoint/mine",
            {"config": Config(s3={"use_arn_region": True})},
            "https://mine-123456789012.s3-accesspoint.us-west-2.amazonaws.com",
        ),
    ],
)
def test_the_endpoint_is_the_sdks(bucket: str, options: dict[str, Any], base: str) -> None:
    line = s3_client.find(client_of(**options), bucket)
    assert line is not None
    assert base.endswith(f"://{line.host}{line.base_path}")


def test_a_client_that_does_not_sign_so_keeps_its_requests() -> None:
    for version in (botocore.UNSIGNED, "s3"):
        client = client_of(config=Config(signature_version=version))
        assert s3_client.find(client, "lake") is None


def test_a_client_with_hooks_of_its_own_keeps_its_requests() -> None:
    answering = client_of()
    answering.meta.events.register(
        "before-send.s3", lambda request, **_: AWSResponse(request.url, 200, {}, NoBody())
    )
    assert s3_client.find(answering, "lake") is None
    adding = client_of()
    adding.meta.events.register(
        "before-sign.s3",
        lambda request, **_: request.headers.add_header("x-amz-request-payer", "r"),
    )
    assert s3_client.find(adding, "lake") is None


class NoBody:
    def stream(self) -> list[bytes]:
        return []


def test_credentials_are_read_again_when_they_expire(scripted: ScriptedS3) -> None:
    served: list[str] = []

    def refresh() -> dict[str, str]:
        served.append(f"AKID{len(served)}")
        expiry = datetime.now(UTC) + timedelta(seconds=1)  # so every request needs new ones
        return {
            "access_key": served[-1],
            "secret_key": "secret",
            "token": f"token{len(served)}",
            "expiry_time": expiry.isoformat(),
        }

    session = botocore.session.Session()
    session._credentials = RefreshableCredentials.create_from_metadata(
        refresh(), refresh_using=refresh, method="test"
    )
    client = session.create_client("s3", region_name="us-east-1", endpoint_url=scripted.url)
    store = S3Store("lake", client=client)
    scripted.script = [Say(200, body=b"x", headers=DATED)]
    for _ in range(2):
        store.get("k")
    first, second = (headers["authorization"] for _, _, headers in scripted.asked)
    tokens = [headers["x-amz-security-token"] for _, _, headers in scripted.asked]
    assert first.partition("/")[0] != second.partition("/")[0]
    assert tokens[0] != tokens[1]


# -- redirects ------------------------------------------------------------------------------------


def test_a_bucket_in_another_region_is_found_by_the_sdk_and_remembered(
    scripted: ScriptedS3,
) -> None:
    client = connect(endpoint_url=scripted.url, region="us-east-1")
    store = S3Store("lake", client=client)
    elsewhere = Say(
        400,
        body=b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
        headers={"x-amz-bucket-region": "eu-west-3"},
    )
    there = Say(200, body=b"there", headers=DATED)
    scripted.script = [elsewhere, elsewhere, there, there]
    for _ in range(2):
        answer = store.get("k")
        assert isinstance(answer, Got)
        assert answer.body == b"there"
    regions = [headers["authorization"].split("/")[2] for _, _, headers in scripted.asked]
    assert regions == ["us-east-1", "us-east-1", "eu-west-3", "eu-west-3"]


def test_a_head_without_words_is_asked_by_the_sdk(scripted: ScriptedS3) -> None:
    store = S3Store("lake", client=connect(endpoint_url=scripted.url))
    scripted.script = [Say(400, headers={"x-amz-bucket-region": "eu-west-3"}), Say(403)]
    with pytest.raises(AccessDenied):
        store.head("k")


# -- the same answers -----------------------------------------------------------------------------


def test_the_sdk_and_the_direct_line_give_the_same_answers(
    s3_store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        "a b+c%20",
        "dots/../and/./dots",
        "slash//slash",
        "ü/日本/\U0001f600",
        "q?x=1&y#z",
        "~t'(!)*",
    ]
    for key in keys:
        written = s3_store.put(
            key,
            key.encode() * 3,
            condition=IF_ABSENT,
            metadata={"Owner": "a  b"},
            headers={"ContentType": "application/x", "CacheControl": "no-store"},
        )
        assert isinstance(written, Written)

    def answers() -> list[object]:
        seen: list[object] = []
        for key in [*keys, "none"]:
            seen += [
                timeless(s3_store.get(key)),
                timeless(s3_store.get(key, if_match="other")),
                timeless(s3_store.get_suffix(key, 4)),
                timeless(s3_store.head(key)),
                timeless(s3_store.put("none/x", b"x", condition=IfMatch("none"))),
            ]
            if key != "none":
                seen.append(timeless(s3_store.get(key, byte_range=ByteRange(1, 4))))
        seen.append(list(s3_store.list("")))
        seen.append(list(s3_store.list("a", start_after="a b")))
        seen.append(list(s3_store.list_prefixes("")))
        return seen

    direct = answers()
    with monkeypatch.context() as patch:
        patch.setattr(s3_direct, "OPERATIONS", frozenset())
        assert answers() == direct
    assert isinstance(s3_store.get("none"), Missing)


def timeless(answer: Any) -> object:
    """The answer without the time at which it was given."""
    return {name: getattr(answer, name) for name in type(answer).__slots__ if name != "date_us"} | {
        "type": type(answer)
    }

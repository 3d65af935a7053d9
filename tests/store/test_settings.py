"""What an AWS environment may hold: each mistake is an error by type that names it, and none of the
services that credentials come from is taken for S3."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.session
import pytest
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError

from inlay.errors import AccessDenied, InlayError, PageError, StoreUnavailable
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect

from .test_s3_store import ScriptedS3, scripted, server

__all__ = ["scripted", "server"]  # fixtures

KEYS = "aws_access_key_id = a\naws_secret_access_key = b\n"
ROLE = "role_arn = arn:aws:iam::111122223333:role/r\n"
SSO = "sso_session = my\nsso_account_id = 111122223333\nsso_role_name = r\n"
SESSION = "[sso-session my]\nsso_region = eu-west-1\nsso_start_url = https://x.awsapps.com/start\n"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No AWS setting at all; returns the place of the config file."""
    import os

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "config"


def process(command: str) -> str:
    return f"[default]\ncredential_process = {command}\n"


WRONG: list[tuple[str, dict[str, str], str, type[InlayError]]] = [
    ("", {"AWS_PROFILE": "nope"}, "nope", AccessDenied),
    ("\ufeff[default]\n" + KEYS, {}, "config", PageError),
    ("[default]\n" + KEYS + "[default]\n", {}, "config", PageError),
    ("garbage\n", {}, "config", PageError),
    ("", {"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY", AccessDenied),
    ("", {"AWS_REGION": "x", "AWS_DEFAULT_REGION": "eu west"}, "eu west", PageError),
    ("", {"AWS_ENDPOINT_URL_S3": "minio:9000"}, "minio:9000", PageError),
    (process("false"), {}, "custom-process", AccessDenied),
    (process("/no/such"), {}, "/no/such", PageError),
    (process("echo hello"), {}, "JSONDecodeError", PageError),
    (process("echo '{\"Version\": 2}'"), {}, "version '2'", AccessDenied),
    (f"[profile a]\n{ROLE}source_profile = b\n", {"AWS_PROFILE": "a"}, '"b"', PageError),
    (
        f"[profile a]\n{ROLE}source_profile = b\n[profile b]\n{ROLE}source_profile = a\n",
        {"AWS_PROFILE": "a"},
        "loop",
        PageError,
    ),
    (f"[profile s]\n{SSO}", {"AWS_PROFILE": "s"}, '"my"', PageError),
    (f"[profile s]\n{SSO}{SESSION}", {"AWS_PROFILE": "s"}, "SSO", AccessDenied),
    (
        "",
        {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://elsewhere.example/x"},
        "elsewhere.example",
        PageError,
    ),
    (
        "",
        {
            "AWS_ROLE_ARN": "arn:aws:iam::111122223333:role/r",
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/no/token",
        },
        "/no/token",
        PageError,
    ),
    ("", {"AWS_ACCESS_KEY_ID": "a\n", "AWS_SECRET_ACCESS_KEY": "b"}, "line break", PageError),
    ("", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b\r"}, "line break", PageError),
    (
        process(
            'echo \'{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "t",'
            ' "Expiration": "2020-01-01T00:00:00Z"}\''
        ),
        {},
        "expired",
        PageError,
    ),
]


@pytest.mark.parametrize(("config", "variables", "named", "kind"), WRONG)
def test_a_wrong_setting_is_named(
    config: str,
    variables: dict[str, str],
    named: str,
    kind: type[InlayError],
    bare: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare.write_text(config, "utf-8")
    for name, value in {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InlayError) as failed:
        S3Store("lake").get("k")
    assert type(failed.value) is kind
    assert named in str(failed.value)
    assert failed.value.next_step


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "NoSuchKey", "ForbiddenException"])
@pytest.mark.parametrize("status", [404, 403, 412])
def test_a_refusal_of_credentials_is_no_answer_about_an_object(
    code: str, status: int, scripted: ScriptedS3
) -> None:
    """An SSO role that is no longer assigned is a 404: objects were taken for missing, so for erased."""
    good = {"access_key": "a", "secret_key": "b", "token": "t"}
    now = datetime.now(UTC)

    def refresh() -> dict[str, str]:
        raise ClientError(
            {
                "Error": {"Code": code, "Message": "no"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            },
            "GetRoleCredentials",
        )

    session = botocore.session.Session()
    session._credentials = RefreshableCredentials.create_from_metadata(
        {**good, "expiry_time": (now + timedelta(seconds=1)).isoformat()},
        refresh_using=refresh,
        method="sso",
    )
    client = session.create_client("s3", region_name="us-east-1", endpoint_url=scripted.url)
    store = S3Store("lake", client=client)
    for ask in (
        lambda: store.get("k"),
        lambda: store.head("k"),
        lambda: store.delete(["k"]),
        lambda: list(store.list("p")),
    ):
        with pytest.raises(AccessDenied, match="GetRoleCredentials"):
            ask()
    assert scripted.asked == []


def test_credentials_that_cannot_be_had_now_are_asked_for_again(scripted: ScriptedS3) -> None:
    asked: list[int] = []

    def refresh() -> dict[str, str]:
        asked.append(1)
        raise ClientError(
            {
                "Error": {"Code": "TooManyRequestsException", "Message": "slower"},
                "ResponseMetadata": {"HTTPStatusCode": 429},
            },
            "GetRoleCredentials",
        )

    session = botocore.session.Session()
    session._credentials = RefreshableCredentials.create_from_metadata(
        {
            "access_key": "a",
            "secret_key": "b",
            "token": "t",
            "expiry_time": (datetime.now(UTC) + timedelta(seconds=1)).isoformat(),
        },
        refresh_using=refresh,
        method="sso",
    )
    client = session.create_client("s3", region_name="us-east-1", endpoint_url=scripted.url)
    with pytest.raises(StoreUnavailable, match="TooManyRequests"):
        S3Store("lake", client=client).get("k")
    assert len(asked) > 1


def test_configured_endpoints_can_be_ignored(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.write_text(f"[default]\nendpoint_url = http://one:9000\n{KEYS}")
    assert connect().meta.endpoint_url == "http://one:9000"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://two:9000")
    assert S3Store("lake").client.meta.endpoint_url == "http://two:9000"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert "amazonaws.com" in S3Store("lake").client.meta.endpoint_url
    given = S3Store("lake", endpoint_url="http://three:9000")
    assert given.client.meta.endpoint_url == "http://three:9000"


def test_a_profile_decides_where_the_name_of_the_bucket_stands(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://store.example")
    bare.write_text(f"[default]\n{KEYS}")
    assert _url_of(S3Store("lake")) == "http://store.example/lake/k"
    bare.write_text(f"[default]\n{KEYS}s3 =\n  addressing_style = virtual\n")
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "another")  # another environment, so another client
    assert _url_of(S3Store("lake")) == "http://lake.store.example/k"


def _url_of(store: S3Store) -> str:
    return store.client.generate_presigned_url(
        "get_object", Params={"Bucket": "lake", "Key": "k"}
    ).partition("?")[0]

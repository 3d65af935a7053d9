"""The way to a bucket by variables alone is the SDK's way, or none.

Both are asked in the same environment. Whatever is answered without the SDK must be what the SDK says of
where, how signed and whose; what it leaves to the SDK is listed, with the settings that a user may have.
"""

from __future__ import annotations

import os
from pathlib import Path

import botocore.session
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay.storage import s3_client, s3_environment
from inlay.storage.s3 import S3Store
from inlay.storage.s3_direct import DirectLine

from .test_s3_store import Say, ScriptedS3, scripted, server

__all__ = ["scripted", "server"]  # fixtures

KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}
ENDPOINTS = (
    "http://127.0.0.1:9000",
    "http://127.0.0.1:9000/",
    "http://store.example",
    "http://store.example:80",
    "https://store.example:443/s3",
    "https://store.example:80/a/b_c/",
    "HTTP://Store.example",
    "http://[::1]:9000",
    "http://user@store.example",
    "http://store.example/a%20b",
    "http://store.example//",
    "http://store.example?x=1",
    "https://s3.eu-central-1.amazonaws.com",
    "https://s3-accelerate.amazonaws.com",
)
OTHER_BUCKETS = (
    "lake.with.dots",
    "Lake",
    "lake_1",
    "lake--use1-az4--x-s3",
    "lake-abc-s3alias",
    "lake--op-s3",
    "123",
    "la",
    "1.2.3.4",
)
# What a user may set, one beside the keys: each is the SDK's.
SETTINGS = {
    "AWS_PROFILE": "p",
    "AWS_DEFAULT_PROFILE": "p",
    "AWS_USE_DUALSTACK_ENDPOINT": "true",
    "AWS_USE_FIPS_ENDPOINT": "true",
    "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional",
    "AWS_S3_USE_ARN_REGION": "true",
    "AWS_S3_DISABLE_EXPRESS_SESSION_AUTH": "true",
    "AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z",
    "AWS_SECURITY_TOKEN": "t",
    "AWS_SESSION_TOKEN": "",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "AWS_DATA_PATH": "/somewhere",
    "AWS_SIGV4A_SIGNING_REGION_SET": "*",
    "AWS_AUTH_SCHEME_PREFERENCE": "sigv4a",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported",
    "AWS_SETTING_OF_NEXT_YEAR": "x",
    "AWS_CA_BUNDLE": "/no/such/file",
    "REQUESTS_CA_BUNDLE": "",
    "HTTPS_PROXY": "http://proxy:1",
    "no_proxy": "*",
}


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keys in variables and nothing else; returns the home."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith(("_proxy", "_ca_bundle")):
            monkeypatch.delenv(name)
    for name, value in {**KEYS, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def by_variables(bucket: str = "lake", region: str | None = None) -> DirectLine | None:
    endpoint = s3_environment.endpoint_of(None)
    return s3_environment.line_to(bucket, endpoint=endpoint, region=region)


def by_the_sdk(bucket: str, region: str | None) -> DirectLine | None:
    client = s3_client._create(s3_environment.endpoint_of(None), region)
    return s3_client.find(client, bucket)


def said(line: DirectLine) -> tuple[object, ...]:
    """What a line says, and where it sends: the SDK's connections, or those of `s3_environment`."""
    keys = line.credentials()
    return (line.host, line.base_path, line.scope, keys.access_key, keys.secret_key, keys.token)


def regions() -> list[str]:
    session = botocore.session.Session()
    names = [
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("s3", partition, allow_non_regional=True)
    ]
    return [*names, "auto", "garage", "eu-future-9", "us-east-1-fips", "eusc-de-east-1"]


# A client of the SDK takes a fifth of a second to make: of the regions `make test` asks each sixth.
@pytest.mark.parametrize(
    ("endpoint", "one_in"),
    [
        (None, 6),
        pytest.param(None, 1, marks=pytest.mark.wide),
        pytest.param("https://store.example:8443/s3", 6, marks=pytest.mark.wide),
    ],
)
def test_every_region_that_is_known_here_is_as_the_sdk_has_it(
    endpoint: str | None, one_in: int, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    known = 0
    for region in regions()[::one_in]:
        if (line := by_variables(region=region)) is not None:
            theirs = by_the_sdk("lake", region)
            assert theirs is not None
            assert said(line) == said(theirs)
            known += 1
    assert known > 25 // one_in


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    bucket=st.just("lake")
    | st.sampled_from(OTHER_BUCKETS)
    | st.from_regex(r"\A[a-z0-9][a-z0-9-]{1,20}[a-z0-9]\Z"),
    endpoint=st.none() | st.sampled_from(ENDPOINTS),
    region=st.none() | st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1", "auto"]),
    default=st.none() | st.sampled_from(["us-east-1", "ap-south-1", "us-gov-west-1"]),
    token=st.none() | st.just("tok/en=="),
)
def test_what_is_said_without_the_sdk_is_what_it_says(
    bucket: str,
    endpoint: str | None,
    region: str | None,
    default: str | None,
    token: str | None,
    plain: Path,
) -> None:
    variables = {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_DEFAULT_REGION": default,
        "AWS_SESSION_TOKEN": token,
        "AWS_REGION": "elsewhere",  # not the SDK's
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            if value is not None:
                patch.setenv(name, value)
        line = by_variables(bucket, region)
        if line is not None:
            theirs = by_the_sdk(bucket, region)
            assert theirs is not None
            assert said(line) == said(theirs)


@pytest.mark.parametrize("endpoint", [None, *ENDPOINTS[:6]])
def test_the_usual_places_are_known(
    endpoint: str | None, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert by_variables() is not None


@pytest.mark.parametrize("bucket", OTHER_BUCKETS[:6])
def test_names_of_other_kinds_are_the_sdks(bucket: str, plain: Path) -> None:
    assert by_variables(bucket) is None


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_not_known_is_the_sdks(
    name: str, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_variables() is not None
    monkeypatch.setenv(name, SETTINGS[name])
    assert by_variables() is None


@pytest.mark.parametrize("value", ["", "true", "http://elsewhere.example"])
def test_settings_of_other_tools_are_none_of_the_sdks(
    value: str, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_environment._OF_OTHERS:
        monkeypatch.setenv(name, value)
    line = by_variables()
    theirs = by_the_sdk("lake", None)
    assert line is not None
    assert theirs is not None
    assert said(line) == said(theirs)


@pytest.mark.parametrize("name", [".aws/config", ".aws/credentials", ".aws/models/x", "other"])
def test_files_of_settings_are_the_sdks(
    name: str, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain / name).parent.mkdir(parents=True, exist_ok=True)
    (plain / name).write_text("[default]\n")
    if name == "other":
        assert by_variables() is not None
        monkeypatch.setenv("AWS_CONFIG_FILE", "~/other")
    assert by_variables() is None


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_SECRET_ACCESS_KEY": "b\r"},
        {"AWS_ACCESS_KEY_ID": " a"},
        {"AWS_SESSION_TOKEN": "é"},
    ],
)
def test_keys_that_the_sdk_refuses_or_changes_are_the_sdks(
    variables: dict[str, str], plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert by_variables() is None


def test_both_ways_give_the_same_answers(
    scripted: ScriptedS3, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a store by variables, and of one whose client the SDK made in the same environment."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": scripted.url}.items():
        monkeypatch.setenv(name, value)
    stores = (S3Store("lake"), S3Store("lake", client=s3_client.connect()))
    assert [store._directs.get().plain is None for store in stores] == [False, True]
    dated = {"ETag": '"abc"', "Last-Modified": "Tue, 10 Nov 2026 10:00:00 GMT"}
    found = []
    for store in stores:
        scripted.script = [Say(200, body=b"x", headers=dated), Say(404), Say(412)]
        scripted.asked.clear()
        got = store.get("k")
        absent = store.get("none")
        refused = store.get("k", if_match="y")
        # Times and what is signed with them aside.
        asked = [(method, path) for method, path, _ in scripted.asked]
        names = [
            {name for name in headers if name not in ("amz-sdk-invocation-id", "amz-sdk-request")}
            for _, _, headers in scripted.asked
        ]
        found.append((got.body, type(absent), type(refused), asked, names))
    assert found[0] == found[1]


def test_a_bucket_elsewhere_is_found_by_the_sdk(
    scripted: ScriptedS3, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": scripted.url}.items():
        monkeypatch.setenv(name, value)
    store = S3Store("lake")
    assert store._directs.get().plain is not None
    elsewhere = Say(
        400,
        body=b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
        headers={"x-amz-bucket-region": "eu-west-3"},
    )
    dated = {"ETag": '"abc"', "Last-Modified": "Tue, 10 Nov 2026 10:00:00 GMT"}
    there = Say(200, body=b"there", headers=dated)
    scripted.script = [elsewhere, elsewhere, there, there]
    for _ in range(2):
        assert store.get("k").body == b"there"
    regions = [headers["authorization"].split("/")[2] for _, _, headers in scripted.asked]
    assert regions == ["us-east-1", "us-east-1", "eu-west-3", "eu-west-3"]

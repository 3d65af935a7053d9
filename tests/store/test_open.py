"""Locations: what is accepted, what is refused, and that nothing is decoded."""

from __future__ import annotations

import pytest

from inlay.errors import InvalidRequest
from inlay.storage.base import Got, Location
from inlay.storage.open import open_store, parse_location


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("s3://lake/tables/t", Location("s3", "lake", "tables/t")),
        ("s3://lake/tables/t///", Location("s3", "lake", "tables/t")),
        ("s3://lake", Location("s3", "lake", "")),
        ("s3://lake/a b%20c+d/é?x#y", Location("s3", "lake", "a b%20c+d/é?x#y")),
        ("s3://lake//a/../b", Location("s3", "lake", "/a/../b")),
        ("gs://lake/tables/t", Location("gs", "lake", "tables/t")),
        ("gcs://lake/t", Location("gs", "lake", "t")),
        (
            "abfss://lake@acct.dfs.core.windows.net/t/",
            Location("abfss", "lake@acct.dfs.core.windows.net", "t"),
        ),
        ("memory://m/t", Location("memory", "m", "t")),
        ("memory://lake/t", Location("memory", "lake", "t")),
        ("file:///data/t/", Location("file", "", "data/t")),
        ("file:///", Location("file", "", "")),
        ("/data/./x/../t/", Location("file", "", "data/t")),
    ],
)
def test_locations_are_taken_literally(uri: str, location: Location) -> None:
    assert parse_location(uri) == location


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "s3:",
        "s3:/lake/t",
        "s3://",
        "s3:///t",
        "s3://la ke/t",
        "s3://a/t",
        "s3x://lake/t",
        "gs:///t",
        "gs://La_Ke/t",
        "abfss://lake@/t",
        "abfss://l/t",
        "https://lake.s3.amazonaws.com/t",
        "file://host/t",
        "file:/t",
        "memory:///t",
        "a\0b",
    ],
)
def test_everything_else_says_what_to_write(uri: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_location(uri)
    assert "//" in caught.value.next_step


def test_memory_buckets_are_shared_within_the_process() -> None:
    one, key = open_store("memory://test-open/t")
    one.put(f"{key}/k", b"x")
    other, _ = open_store("memory://test-open/elsewhere")
    answer = other.get("t/k")
    assert isinstance(answer, Got)
    assert answer.body == b"x"


def test_names_of_hadoop_mean_s3():
    assert parse_location("s3a://lake/tables/t") == parse_location("s3://lake/tables/t")


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("https://lake.blob.core.windows.net/t", "a web server"),
        ("hdfs://host/t", "HDFS"),
    ],
)
def test_stores_that_are_not_supported_are_refused_by_name(uri: str, name: str) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        parse_location(uri)
    assert "docs/STORES.md" in caught.value.next_step


def test_options_of_s3_are_its_endpoint_and_region_and_never_credentials() -> None:
    import pickle

    import inlay

    given = {"aws_endpoint_url": "http://127.0.0.1:9", "region": "eu-west-1"}
    context = inlay.connect("s3://lake/t", storage_options=given)
    for each in (context, pickle.loads(pickle.dumps(context))):
        client = each.store.inner.client
        assert client.meta.endpoint_url == "http://127.0.0.1:9"
        assert client.meta.region_name == "eu-west-1"
    for options in ({"aws_access_key_id": "x"}, {"secret": "y"}, {"aws_session_token": "z"}):
        with pytest.raises(InvalidRequest) as caught:
            inlay.connect("s3://lake/t", storage_options=options)
        assert "environment" in caught.value.next_step
    with pytest.raises(InvalidRequest, match="takes no storage_options"):
        inlay.connect("memory://x/t", storage_options=given)
    with pytest.raises(InvalidRequest, match="not taken") as caught:
        inlay.connect("s3://lake/t", storage_options={"colour": "red"})
    assert "endpoint_url, region, dialect" in caught.value.next_step


@pytest.mark.parametrize(
    "uri", ["s3:lake/t", "S3:lake/t", "arn:aws:s3:::lake/t", "gs:t", "az:c/t", "file:t", "https:t"]
)
def test_what_looks_like_a_uri_is_no_local_path(uri: str) -> None:
    """It made a folder of that name, in place of a table in the bucket that was meant."""
    with pytest.raises(InvalidRequest) as refused:
        parse_location(uri)
    assert f"./{uri}" in refused.value.next_step
    assert parse_location(f"./{uri}").scheme == "file"


def test_the_home_is_what_shells_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_location("~/t") == Location("file", "", "home/me/t")
    assert parse_location("~").key == "home/me"
    assert parse_location("./~/t").key.endswith("/~/t")
    assert parse_location("a~/t").key.endswith("a~/t")

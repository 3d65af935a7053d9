"""Locations: what is accepted, what is refused, and that only file:/// is decoded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.errors import InvalidRequest
from inlay.ops.publish import publish as publish_module
from inlay.storage.base import Got, Location
from inlay.storage.open import below, named_location, open_store, parse_location


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
        ("file:/data/my%20t", Location("file", "", "data/my t")),
        ("file://localhost/data/t", Location("file", "", "data/t")),
        ("file:///data/a+b?c#d=100%25%2520", Location("file", "", "data/a+b?c#d=100%%20")),
        ("file:///data/%C3%A9/100%", Location("file", "", "data/é/100%")),
        ("/data/my%20t", Location("file", "", "data/my%20t")),
        ("/data/./x/../t/", Location("file", "", "data/t")),
    ],
)
def test_only_file_uris_are_decoded(uri: str, location: Location) -> None:
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
        "file://",
        "file:///%FF",
        "file:///a%00b",
        "file:t",
        "file:",
        "memory:///t",
        "a\0b",
    ],
)
def test_everything_else_says_what_to_write(uri: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_location(uri)
    assert "//" in caught.value.next_step


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: name not in (".", ".."))


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_every_path_is_found_by_its_uri(names: list[str]) -> None:
    path = Path("/", *names)
    there = Location("file", "", str(path).removeprefix("/"))
    assert parse_location(path.as_uri()) == there
    assert parse_location(path.as_uri().replace("file://", "file:", 1)) == there
    assert parse_location(str(path)) == there
    assert parse_location(below(path.parent.as_uri(), path.name)) == there
    # As the metadata of a table names it.
    assert named_location(there.uri) == there
    assert (
        named_location(f"s3://lake{path}").key
        == there.key
        == parse_location(f"s3://lake{path}").key
    )


ODD = ["my data", "month=2", "100%", "a%20b", "é#?;&+", 'quo"te', "~x", "[b]*"]


@pytest.mark.parametrize("name", ODD)
def test_a_file_uri_is_one_place_for_whoever_reads_it(name: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    place = tmp_path / name / "t"
    made = inlay.create(place.as_uri(), schema)
    assert (place / "_latest_manifest").exists()
    source = tmp_path / name / "in" / f"{name}.parquet"
    source.parent.mkdir()
    pq.write_table(pa.table({"id": [1]}), source)
    for uri in (source.as_uri(), source.as_uri().replace("file://", "file:")):
        made.ingest([uri])
    made.refresh()
    assert made.count() == 1, "one place, ingested once"
    pq.write_table(pa.table({"id": [2]}), source.with_name("2.parquet"))
    made.ingest([source.with_name("2.parquet").as_uri()], adopt=True)
    for again in (place.as_uri(), str(place), made.uri):
        assert sorted(inlay.open(again).scan().to_arrow()["id"].to_pylist()) == [1, 2]
    [listed] = inlay.tables((tmp_path / name).as_uri())
    assert inlay.open(listed).count() == 2
    [from_above] = inlay.tables(tmp_path.as_uri())
    assert inlay.open(from_above).count() == 2
    shown = CliRunner().invoke(app, ["scan", place.as_uri(), "--json"])
    assert re.findall(r'"id": ?(\d+)', shown.stdout) == ["1", "2"], shown.output


@pytest.mark.filterwarnings("ignore:adopting")
@pytest.mark.parametrize("name", ODD)
def test_a_table_at_a_file_uri_is_published_and_adopted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Inlay does not publish where engines cannot read; others' tables are there.
    monkeypatch.setattr(publish_module, "ends_early", lambda location: False)
    place = tmp_path / name / "a"
    made = inlay.create(place.as_uri(), pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1, 2]}))
    made.publish()
    hint = (place / "metadata" / "version-hint.text").read_text()
    metadata = place / "metadata" / f"v{hint}.metadata.json"
    for n, source in enumerate((place.as_uri(), metadata.as_uri())):
        inlay.adopt(source, (tmp_path / f"{name} {n}").as_uri())
        assert inlay.open((tmp_path / f"{name} {n}").as_uri()).count() == 2
        inlay.adopt(source, (tmp_path / f"{name} copy {n}").as_uri(), copy=True)
        assert inlay.open(str(tmp_path / f"{name} copy {n}")).count() == 2


def test_memory_buckets_are_shared_within_the_process() -> None:
    one, key = open_store("memory://test-open/t")
    one.put(f"{key}/k", b"x")
    other, _ = open_store("memory://test-open/elsewhere")
    answer = other.get("t/k")
    assert isinstance(answer, Got)
    assert answer.body == b"x"


def test_a_file_as_hadoop_prints_it_is_the_same_file() -> None:
    assert parse_location("file:/data/t") == parse_location("file:///data/t")


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


@pytest.mark.parametrize(
    "uri", ["file:///", "/", "file:////", "file:///.", "file:///tmp/..", "file:///%2F"]
)
def test_no_table_is_made_of_a_whole_disk(uri: str) -> None:
    """As of f"file:///{variable}" where the variable is empty. Nothing is written before it is refused."""
    with pytest.raises(InvalidRequest, match="the root of the disk"):
        inlay.create(uri, pa.schema([("id", pa.int64())]))


def test_a_process_that_names_files_in_another_encoding_is_told(tmp_path: Path) -> None:
    """It would find no table whose path has other letters than ASCII, and say that there is none."""
    names_in_ascii = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    inlay.create(str(tmp_path / "café"), pa.schema([("id", pa.int64())]))
    for asked in (["tables", str(tmp_path)], ["scan", (tmp_path / "café").as_uri()]):
        told = subprocess.run(
            [sys.executable, "-m", "inlay", *asked],
            env={**os.environ, **names_in_ascii},
            capture_output=True,
            text=True,
        )
        assert told.returncode == 2
        assert "names files in ascii" in told.stderr and "PYTHONUTF8=1" in told.stderr

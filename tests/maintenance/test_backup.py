"""The drill of docs/BACKUP.md: replicate, lose, restore."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import boto3
import pyarrow as pa
import pytest

import inlay
from inlay.errors import InlayError
from inlay.format.keys import POINTER
from inlay.local.s3server import AwsProcess
from inlay.local.stack import environment


def ids(place: Path) -> list[int]:
    return sorted(inlay.open(place).scan().to_arrow()["id"].to_pylist())


def objects_of(place: Path) -> list[Path]:
    return sorted(p for p in place.rglob("*") if p.is_file() and p.name != POINTER)


def test_a_replica_shows_a_version_whole_or_the_one_before(tmp_path: Path) -> None:
    source, replica = tmp_path / "t", tmp_path / "replica"
    t = inlay.create(source, pa.table({"id": [1]}), primary_key="id")
    for n in range(2, 5):
        before = ids(replica) if replica.exists() else None
        pointer = (source / POINTER).read_bytes()  # read first
        t.append(pa.table({"id": [n]}))  # committed while it is copied
        t.delete(f"id = {n - 1}", mode="rewrite")
        for made in objects_of(source):
            there = replica / made.relative_to(source)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(made, there)
            if before is not None:  # at each moment
                assert ids(replica) == before
        (replica / POINTER).write_bytes(pointer)  # put last
        assert ids(replica) == [n - 1]


def test_a_pointer_of_the_past_is_the_table_of_the_past(tmp_path: Path) -> None:
    place = tmp_path / "t"
    t = inlay.create(place, pa.table({"id": [1, 2]}), primary_key="id")
    t.append(pa.table({"id": [3]}))
    versions = {p: p.read_bytes() for p in (*objects_of(place), place / POINTER)}
    t.delete("id < 3", mode="rewrite")
    t.append(pa.table({"id": [4]}))
    for lost in objects_of(place):  # what a collection would have taken
        if lost in versions and "data" in lost.parts:
            lost.unlink()
    # Objects first, the pointer last.
    for path, body in versions.items():
        if path.name != POINTER and not path.exists():
            path.write_bytes(body)
    (place / POINTER).write_bytes(versions[place / POINTER])
    assert ids(place) == [1, 2, 3]
    # A process that has seen more does not write over it.
    with pytest.raises(InlayError):
        t.append(pa.table({"id": [5]}))
    assert ids(place) == [1, 2, 3]


def test_a_copy_is_a_backup_that_outlives_its_source(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.table({"id": [1, 2]}), primary_key="id")
    t.copy_to(tmp_path / "backup")
    shutil.rmtree(tmp_path / "t")
    inlay.open(tmp_path / "backup").copy_to(tmp_path / "t")
    assert ids(tmp_path / "t") == [1, 2]


def test_a_bucket_with_versions_has_the_table_of_a_moment() -> None:
    """The page's steps by a client that knows nothing of tables, after a collection that hid objects."""
    with AwsProcess(["s3"]) as server, environment(variables_of(server)):
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="lake")
        s3.put_bucket_versioning(Bucket="lake", VersioningConfiguration={"Status": "Enabled"})
        t = inlay.create("s3://lake/t", pa.table({"id": [1, 2]}), primary_key="id")
        t.append(pa.table({"id": [3]}))
        moment = s3.head_object(Bucket="lake", Key=f"t/{POINTER}")["VersionId"]
        before = {each["Key"] for each in s3.list_objects_v2(Bucket="lake")["Contents"]}
        t.delete("id < 3", mode="rewrite")
        t.append(pa.table({"id": [4]}))
        t.maintain.compact()
        t.maintain.expire(days=0, min_versions=1)
        time.sleep(1.1)  # the server's clock has whole seconds: what goes is older by one
        t.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
        hidden = before - {each["Key"] for each in s3.list_objects_v2(Bucket="lake")["Contents"]}
        assert any(key.startswith("t/data/") for key in hidden), "the drill is of a collection"

        # 1. What was hidden since; 2. archives of versions to come; 3. the pointer, last.
        for page in s3.get_paginator("list_object_versions").paginate(Bucket="lake", Prefix="t/"):
            for each in page.get("DeleteMarkers", []):
                if each["IsLatest"] and each["Key"] in before:
                    s3.delete_object(Bucket="lake", Key=each["Key"], VersionId=each["VersionId"])
        old = s3.get_object(Bucket="lake", Key=f"t/{POINTER}", VersionId=moment)["Body"].read()
        version = json.loads(old)["version"]
        for each in s3.list_objects_v2(Bucket="lake", Prefix="t/manifest/v")["Contents"]:
            if int(each["Key"].rpartition("/v")[2].removesuffix(".json")) >= version:
                s3.delete_object(Bucket="lake", Key=each["Key"])
        s3.put_object(Bucket="lake", Key=f"t/{POINTER}", Body=old)

        found = subprocess.run(
            [sys.executable, "-c", GO_ON], capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == ["[1,2,3]", "[]", "[1,2,3,5]", "[]"]


def variables_of(server: AwsProcess) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_S3": server.endpoint_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": "us-east-1",
    }


# In another process: this one has seen versions to come.
GO_ON = """
import inlay, pyarrow as pa
t = inlay.open("s3://lake/t")
def show():
    print(str(sorted(t.scan().to_arrow()["id"].to_pylist())).replace(" ", ""))
    print(list(t.maintain.verify(depth="pages").errors))
show()
t.append(pa.table({"id": [5]}))
show()
"""

"""The same erasure on a directory and on S3 as an embedded server speaks it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inlay.ops.context import SystemClock
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.schema.create import create
from inlay.storage.directory import DirectoryStore
from inlay.storage.open import open_store
from inlay.storage.s3 import S3Store

from .oracle import views
from .people import NAME, SCHEMA, SECRETS, WHO, People, ids_with, new_people


def test_a_table_in_a_directory(tmp_path: Path) -> None:
    store, key = open_store(f"file://{tmp_path}/lake")
    assert isinstance(store, DirectoryStore)
    people = _at(store, f"{key}/tables/people")
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=20))
    people.erase()
    people.advance()
    result = people.collect(life_seconds=0, clock_margin_seconds=0, landing=f"{key}/ingest/people/")
    assert result.receipts == ("erasure/case-1.json",)
    bodies = {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert bodies and [name for name, body in bodies.items() if _tells(body)] == []
    assert people.ids() == [*range(10), *range(20, 30)]


def test_a_receipt_in_a_copy_of_a_directory_says_where_to_check_it(tmp_path: Path) -> None:
    """Its files are others, whatever they hold: not a line for each of them."""
    store, key = open_store(f"file://{tmp_path}/lake")
    people = _at(store, f"{key}/tables/people")
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=20))
    people.erase()
    people.advance()
    assert people.collect(life_seconds=0, clock_margin_seconds=0).receipts
    assert verify_receipt(people.ctx, "case-1").problems == ()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    _, copied = open_store(f"file://{tmp_path}/copy")
    elsewhere = replace(people.ctx, root=f"{copied}/tables/people")
    [problem] = verify_receipt(elsewhere, "case-1").problems
    assert problem.startswith("no object is the one that was left: a copy")


def _tells(body: bytes) -> bool:
    return any(form in data for _, data in views(body) for s in SECRETS for form in s.forms)


class _RealTime:
    """Stores with a clock of their own: a step waits until their whole second has passed."""

    def __init__(self) -> None:
        self.clock = SystemClock()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(min(seconds, 1.01))


def _at(store: Any, root: str) -> People:
    from dataclasses import replace

    people = new_people()
    ctx = replace(people.ctx, store=store, root=root, uri=f"file:///{root}", clock=SystemClock())
    create(ctx, SCHEMA, primary_key=["id"])
    return replace(people, store=store, ctx=ctx, time=_RealTime())  # type: ignore[arg-type]


@pytest.fixture(params=[False, True], ids=["unversioned", "versioned"])
def s3_people(request: pytest.FixtureRequest, s3_store: S3Store) -> Any:
    client = s3_store.client
    if request.param:
        client.put_bucket_versioning(
            Bucket=s3_store.bucket, VersioningConfiguration={"Status": "Enabled"}
        )
    return _at(s3_store, "tables/people"), client


def test_a_table_in_a_bucket(s3_people: Any) -> None:
    people, client = s3_people
    bucket = people.store.bucket
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=20))
    client.put_object(Bucket=bucket, Key="tables/people/data/o.parquet", Body=NAME)
    people.erase()
    people.advance()
    result = people.collect(life_seconds=0, clock_margin_seconds=0)
    assert result.receipts == ("erasure/case-1.json",), result.waiting
    listed = client.list_object_versions(Bucket=bucket)
    assert not listed.get("DeleteMarkers")
    for version in listed["Versions"]:
        body = client.get_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])[
            "Body"
        ].read()
        assert not _tells(body), version["Key"]
    assert people.ids() == [*range(10), *range(20, 30)]

"""Verify and repair over other stores: S3 with versioning, and a folder of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import inlay
from inlay.format import keys
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.verify.repair import repair
from inlay.ops.verify.table import verify


def test_on_s3_a_deleted_pointer_comes_back_from_its_versions(s3_store: Any) -> None:
    s3_store.client.put_bucket_versioning(
        Bucket=s3_store.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    uri = f"s3://{s3_store.bucket}/tables/t"
    ctx = Context(store=s3_store, root="tables/t", uri=uri, executor=InlineExecutor())
    t = inlay.create(uri, pa.schema([("id", pa.int64())]), context=ctx)
    for n in range(3):
        t.append(pa.table({"id": [n]}))
    assert verify(ctx, depth="pages").findings == ()
    s3_store.client.delete_object(Bucket=s3_store.bucket, Key=ctx.key(keys.POINTER))
    assert not verify(ctx).ok
    result = repair(ctx, dry_run=False)
    assert result.mends[0].lost is None
    assert inlay.open(uri, context=ctx).count() == 3
    t = inlay.open(uri, context=ctx)
    t.append(pa.table({"id": [3]}))
    assert (t.version, t.count()) == (6, 4)
    assert verify(ctx, depth="pages").errors == ()


def test_in_a_folder_a_pointer_that_was_edited_by_hand_is_rebuilt(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    t.append(pa.table({"id": [1]}))
    pointer = tmp_path / "t" / keys.POINTER
    pointer.write_bytes(pointer.read_bytes().replace(b'"version":2', b'"version":9'))
    ctx = inlay.connect(tmp_path / "t")
    result = repair(ctx, dry_run=False)
    assert "shows version 9" in (result.mends[0].lost or "")
    assert inlay.open(tmp_path / "t").version == 2
    assert verify(ctx).errors == ()

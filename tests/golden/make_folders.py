"""Make the golden table of format version 2 whose files leave columns to their partitions.

    python tests/golden/make_folders.py

writes `tests/golden/folders/`, the objects of a bucket: a folder as pyarrow writes it, a table over its
files, and `expected.json`, its rows. It is made once; every later library must read it.
"""

from __future__ import annotations

import io
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.golden.make import Time, plain
from tests.golden.make_v2 import BUCKET, lake, objects

import inlay
from inlay.ops.context import Context
from inlay.storage.memory import MemoryStore

HERE = Path(__file__).parent / "folders"
EXPECTED = "expected.json"
# Numbers, NULL, and texts with what is escaped in the names of folders.
FOLDERS = (
    "year=2023/region=eu",
    "year=2024/region=us%2Feast",
    "year=2024/region=__HIVE_DEFAULT_PARTITION__",
    "year=__HIVE_DEFAULT_PARTITION__/region=50%25",
)


def context(store: MemoryStore, time: Time) -> Context:
    return lake(store, time, "folders")["a"]


def build() -> tuple[MemoryStore, Time]:
    time = Time()
    store = MemoryStore(BUCKET, now_us=time.now_us)
    for n, folder in enumerate(FOLDERS):
        body = io.BytesIO()
        pq.write_table(pa.table({"id": [2 * n, 2 * n + 1], "name": ["ada", None]}), body)
        store.put(f"source/{folder}/part-0.parquet", body.getvalue())
    time.sleep(60)
    ctx = context(store, time)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = inlay.adopt(f"memory://{BUCKET}/source", ctx.uri, context=ctx)
    time.sleep(60)
    table.append(
        pa.table({"id": [100], "name": ["eve"], "year": [2030], "region": ["eu"]}, table.schema)
    )
    time.sleep(60)
    table.delete("id = 2", mode="tombstone")
    time.sleep(60)
    table.alter(rename={"year": "y"})
    return store, time


def golden() -> dict[str, bytes]:
    """What was written down, key by key."""
    files = [p for p in sorted(HERE.rglob("*")) if p.is_file() and p.name != EXPECTED]
    return {str(p.relative_to(HERE)): p.read_bytes() for p in files}


def opened() -> tuple[MemoryStore, Time]:
    time = Time()
    time.sleep(3_600)
    store = MemoryStore(BUCKET, now_us=time.now_us)
    for key, body in golden().items():
        store.put(key, body)
    return store, time


def seen(store: MemoryStore, time: Time) -> dict[str, Any]:
    ctx = context(store, time)
    table = inlay.open(ctx.uri, context=ctx)
    return {"version": table.version, "rows": plain(table.scan().to_arrow())}


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / EXPECTED).read_text())
    return found


def write() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    store, time = build()
    for key, body in objects(store).items():
        path = HERE / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    (HERE / EXPECTED).write_text(json.dumps(seen(store, time)) + "\n")


if __name__ == "__main__":
    write()

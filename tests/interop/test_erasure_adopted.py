"""Erased from tables that were adopted: nothing is left in the new table, and what is left at the source
is named."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from inlay.format.codec import decode_frame
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.table import Table

from ..erasure import oracle
from .iceberg_deletes import Iceberg
from .test_adopt import adopt, published
from .test_adopt_delta import PLAIN, Delta
from .test_erasure import SECRET, finish, forms

HERS = 4_242


def people(start: int, *, hers: bool) -> pa.Table:
    ids = [HERS if hers and i == start + 3 else i for i in range(start, start + 8)]
    return pa.table({"id": ids, "s": [SECRET if i == HERS else f"s{i}" for i in ids]})


def iceberg(root: Path, rng: random.Random) -> str:
    """By Inlay, published; with deletes by position and by keys, which name her, too."""
    t = published(root, files=0, properties={"write.compression": "none"})
    for n in range(3):
        t.append(people(10 * n, hers=n > 0))
    t.publish(format="v2")
    version = (root / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{root}/metadata/v{version}.metadata.json")
    files = table.data_files()
    deletes = []
    for file, kind, spec in files:
        if rng.random() < 0.5:
            at = sorted(rng.sample(range(8), 2))
            deletes.append((table.positions({file["file_path"]: at}, file), kind, spec))
    file, kind, spec = rng.choice(files)
    keys = pa.table({"s": [SECRET + "-other", "s12"]})
    deletes.append((table.keys(keys, [2], file), kind, spec))
    table.add_deletes(deletes)
    return table.write()


def delta(root: Path, rng: random.Random) -> str:
    """With vectors, and statistics in the log that name her."""
    table = Delta(root, PLAIN)
    for n in range(3):
        add = table.add(f"f{n}.parquet", people(10 * n, hers=n > 0))
        add["stats"] = json.dumps({"numRecords": 8, "maxValues": {"s": SECRET}})
        table.commit({"add": add})
    actions: list[Any] = []
    for add in table.live():
        if rng.random() < 0.7:
            vector = table.vector(rng.choice("iup"), sorted(rng.sample(range(8), 2)))
            gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
            actions += [{"remove": gone}, {"add": {**add, "deletionVector": vector}}]
    if actions:
        table.commit(*actions)
    return str(root)


def left(root: Path) -> list[str]:
    """Objects of the table that name her, as they are or once a reader has unpacked them."""
    found = []
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        data = path.read_bytes()
        seen = [*forms(path), *(view for _, view in oracle.views(data))]
        if any(SECRET.encode() in view for view in seen) or SECRET in str(path):
            found.append(str(path.relative_to(root)))
    return found


def receipt_of(t: Table, root: Path) -> dict[str, Any]:
    [path] = (root / "erasure").iterdir()
    return decode_frame("erasure", path.read_bytes(), key=path.name)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
@pytest.mark.parametrize("source", [iceberg, delta])
def test_nothing_is_left_in_a_table_that_was_adopted(
    tmp_path: Path, source: Any, copy: bool, seed: int
) -> None:
    rng = random.Random(seed)
    root = tmp_path / "t"
    t = adopt(source(tmp_path / "source", rng), root, copy=copy)
    before = sorted(t.scan().to_arrow().to_pylist(), key=str)
    first = {f.key for f in t.inspect.entries()[0]}
    expected = [row for row in before if row["s"] != SECRET]
    if rng.random() < 0.5:
        t.refs.branch("work").delete("id = 1", mode="vector")
    if rng.random() < 0.5:
        t.maintain.compact()
    # Files of Delta have no field ids, which engines need.
    publishes = rng.random() < 0.5 and (copy or source is iceberg)
    if publishes:
        t.publish(format="v3")
    where = rng.choice([f"s = '{SECRET}'", f"s LIKE '{SECRET[:6]}%'", f"s IN ('{SECRET}', 'x')"])
    t.refresh().delete(where, mode="erase", request_id="case-1")
    done: Any = None
    for _ in range(4):
        done = finish(t.refresh())
        if done.receipts:
            break
        if publishes:
            t.refresh().publish()
    assert done.receipts, done.waiting
    assert left(root) == []
    assert sorted(t.refresh().scan().to_arrow().to_pylist(), key=str) == expected
    assert verify_receipt(t._ctx, "case-1").problems == ()
    body = receipt_of(t, root)
    if source is delta:  # its log names her, and stays
        assert any(SECRET in log.read_text() for log in (tmp_path / "source").rglob("*.json"))
    assert any("manifests" in place["what"] for place in body["out_of_reach"])
    look = body["look"]
    live = {f.key for f in t.inspect.entries()[0]}
    if not copy and "work" not in t.snapshot.refs:
        assert [name for name, _ in look["originals"]] == sorted(first - live)
    if copy:
        assert look["originals"] == []
    else:
        assert look["originals_count"] >= 1

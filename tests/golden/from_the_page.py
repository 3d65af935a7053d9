"""A reader of what format version 2 brought, written from docs/FORMAT.md alone: nothing of the library.

It knows what the golden lake has: whole snapshots with inline entries, and markers of ranges and of one
value. Anything else it refuses.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import uuid
from typing import Any

import pyarrow.parquet as pq

Objects = dict[str, bytes]


class NewerVersion(Exception):
    """A frame of a version above those that this reader knows (section 4)."""


def frame(data: bytes, kind: str, *, knows: int = 2) -> dict[str, Any]:
    """Section 4."""
    compressed = data[:2] == b"\x1f\x8b"
    text = gzip.decompress(data) if compressed else data
    found: dict[str, Any] = json.loads(text)
    assert list(found)[:2] == ["inlay", "kind"]
    if found["inlay"] > knows:
        raise NewerVersion(found["inlay"])
    assert list(found)[-1] == "digest"
    before, _, _ = text.rpartition(b',"digest":')
    assert hashlib.blake2b(before, digest_size=8).hexdigest() == found["digest"]
    assert text.endswith(b'"}\n')
    assert text.count(b"\n") == 1
    assert found["kind"] == kind
    version_2 = kind in ("prepared", "decision")
    assert not (version_2 and compressed)  # section 14
    lacking = any("partition" in f for s in found.get("schemas", ()) for f in s["fields"])
    assert found["inlay"] == (2 if version_2 or lacking else 1)  # sections 14 and 15
    return found


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def place(uri: str) -> str:
    """The key of a URI in the bucket of the lake."""
    return uri.split("://", 1)[1].split("/", 1)[1]


def decision(objects: Objects, prepared: dict[str, Any]) -> bool | None:
    assert prepared["decision"].endswith(f"/transaction/{prepared['transaction']}.json")
    body = objects.get(place(prepared["decision"]))
    if body is None:
        return None
    found = frame(body, "decision")
    assert list(found) == ["inlay", "kind", "transaction", "committed", "tables", "digest"]
    assert found["transaction"] == prepared["transaction"]
    assert found["tables"] == prepared["tables"]
    assert isinstance(found["committed"], bool)
    return found["committed"]


def pointer(objects: Objects, root: str) -> tuple[bytes, dict[str, Any] | None]:
    """The frame of version 1 that the table is (section 14, 1), and the prepared frame around it."""
    data = objects[f"{root}/_latest_manifest"]
    if not data.startswith(b'{"inlay":2,"kind":"prepared",'):
        return data, None
    found = frame(data, "prepared")
    names = ["transaction", "decision", "began_us", "deadline_us", "tables", "current"]
    assert [n for n in found if n != "pending"] == ["inlay", "kind", *names, "digest"]
    assert found["began_us"] < found["deadline_us"]
    current = unpadded(found["current"])
    base = frame(current, "snapshot")
    mine = next(t for t in found["tables"] if t[0] == base["table"])
    assert place(mine[1]) == root
    assert mine[2] == base["version"]
    if "pending" not in found:
        return current, found
    pending = unpadded(found["pending"])
    after = frame(pending, "snapshot")
    assert after["table"] == base["table"]
    assert after["version"] == base["version"] + 1
    # Section 14, 6, and section 10: what is archived before.
    named = f"{found['transaction']}/{base['table']}".encode()
    digest = hashlib.blake2b(named, digest_size=16).digest()
    assert after["commit"]["id"] == str(uuid.UUID(bytes=digest, version=4))
    assert objects[archive(root, base["version"])] == current
    return (pending if decision(objects, found) else current), found


def archive(root: str, version: int) -> str:
    return f"{root}/manifest/v{version:08}.json"


def rows(objects: Objects, root: str, data: bytes) -> list[dict[str, Any]]:
    """Sections 5, 7 and 8."""
    snapshot = frame(data, "snapshot")
    assert snapshot["files"]["segments"] == snapshot["markers"]["segments"] == []
    schema = next(s for s in snapshot["schemas"] if s["id"] == snapshot["schema"])
    names = {f["id"]: f["name"] for f in schema["fields"]}
    found = []
    for entry in snapshot["files"]["inline"]:
        key, sequence = entry[0], entry[6]
        table = pq.read_table(io.BytesIO(objects[place(key) if "://" in key else f"{root}/{key}"]))
        values = in_partition(snapshot, entry)
        recorded = next(s for s in snapshot["schemas"] if s["id"] == entry[5])
        of = {f["name"]: f["id"] for f in recorded["fields"] if "partition" not in f}
        for row in table.to_pylist():
            by_id = {of[name]: value for name, value in row.items() if name in of} | values
            now = {name: by_id.get(i) for i, name in names.items()}
            if not deleted(snapshot, names, now, sequence):
                found.append(now)
    return sorted(found, key=lambda row: row["id"])


def in_partition(snapshot: dict[str, Any], entry: list[Any]) -> dict[int, Any]:
    """Section 15: by field id what the entry's partition has of columns that its file lacks. Of texts and
    integers, which are in JSON what they are."""
    recorded = next(s for s in snapshot["schemas"] if s["id"] == entry[5])
    lacking = [f for f in recorded["fields"] if "partition" in f]
    if not lacking:
        return {}
    spec = next(s for s in snapshot["specs"] if s["id"] == entry[12])
    for field in lacking:
        source, transform, _ = spec["fields"][field["partition"]]
        assert (source, transform) == (field["id"], "identity")
        assert field["type"] in ("string", "int32"), "not in the golden lake"
    return {f["id"]: entry[13][f["partition"]] for f in lacking}


def deleted(
    snapshot: dict[str, Any], names: dict[int, str], row: dict[str, Any], sequence: int
) -> bool:
    for marker in snapshot["markers"]["inline"]:
        _, kind, body, its_sequence, file = [*marker, None, None][:5]
        assert file is None, "not in the golden lake"
        if kind == "where":
            operator, field, _, value = body
            assert operator == "=", "not in the golden lake"
            body = [field, _, value, value, True, True]
        else:
            assert kind == "range", "not in the golden lake"
        field, _, lower, upper, with_lower, with_upper = body
        value = row[names[field]]
        above = lower is None or value > lower or (with_lower and value == lower)
        below = upper is None or value < upper or (with_upper and value == upper)
        if sequence < its_sequence and above and below:
            return True
    return False

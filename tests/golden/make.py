"""Make the golden table: every feature of the format in one small table, as plain files.

    python tests/golden/make.py

writes `tests/golden/v<format version>/table/` and, beside it, `expected.json` with the rows of every
version that can be read. The table of a version stays as it is, and every later library must read it: make
one only for a version that is new.

Time and randomness are fixed. The bytes of the Parquet files depend on the version of pyarrow, so
another one makes a table with other bytes and the same rows.
"""

from __future__ import annotations

import io
import json
import math
import random
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay.format.snapshot import FORMAT_VERSION, Ref
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import ingest
from inlay.plan.change import AdvanceStream, Change, ClusterLeaves, SetRefs
from inlay.plan.commit import apply as apply_module
from inlay.plan.metadata import leaves as tiers
from inlay.storage.base import Got, Location
from inlay.storage.memory import MemoryStore

HERE = Path(__file__).parent
ROOT = "tables/golden"
DAY = 86_400

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("born", pa.date32()),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("blob", pa.binary()),
        ("ok", pa.bool_()),
        ("place", pa.struct([("city", pa.string()), ("at", pa.list_(pa.float32()))])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


class Time:
    """The store's clock and the writer's durations: nothing waits."""

    seconds = 1_790_000_000.0

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def rows(first: int, count: int) -> pa.Table:
    """Rows with NULLs, NaN, both zeros, empty and nested values."""
    rng = random.Random(first)

    def some(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    made = [
        {
            "id": n,
            "name": some(f"näme-{n % 17}" if n % 13 else ""),
            "score": some([math.nan, -0.0, 0.0, n / 7, -n / 3][n % 5]),
            "price": some(Decimal(n * 7 % 10_000) / 100),
            "born": some(date(1970, 1, 1) + timedelta(days=n * 11)),
            "seen": some(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n, microseconds=n)),
            "blob": some(bytes([n % 256, 0, 255])),
            "ok": some(n % 3 == 0),
            "place": some({"city": some(f"city-{n % 5}"), "at": some([n / 2, None])}),
            "tags": some(["a", None, f"t{n % 4}"][: n % 4]),
            "counts": some([(f"k{i}", n + i) for i in range(n % 3)]),
        }
        for n in range(first, first + count)
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def build() -> tuple[Time, Context, inlay.Table]:
    """The table, step by step. Half of it keeps next to nothing inline, so that segments roll."""
    time = Time()
    ctx = Context(
        store=MemoryStore("golden", now_us=time.now_us),
        root=ROOT,
        uri=f"memory://golden/{ROOT}",
        executor=InlineExecutor(),
        clock=time,
        random=random.Random(20_26),
    )
    t = inlay.create(
        ctx.uri,
        SCHEMA,
        primary_key="id",
        sort_by="id",
        properties={"history.days": 3, "ledger.days": 30},
        context=ctx,
    )
    with (
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_000),
        patch.object(apply_module, "INLINE_MIN_BYTES", 0, create=True),
    ):
        for step in chain(early(t, time), expiry(t, time), deletes(t), maintenance(t)):
            step.refresh()
            time.sleep(60)
    with (
        patch.object(apply_module, "SCHEMAS_INLINE_BYTES", 400),
        patch.object(apply_module, "POINTER_TARGET_BYTES", 2_000),
        patch.object(apply_module, "INLINE_MIN_BYTES", 600),
        patch.object(apply_module._Files, "most", 2),
        patch.object(tiers, "GATHER_LEAVES", 2),
    ):
        for step in chain(partitions(t), clustering(t, ctx), branches(t)):
            step.refresh()
            time.sleep(60)
    with patch.object(apply_module, "SCHEMAS_INLINE_BYTES", 400):
        for step in late(t, ctx):
            step.refresh()
            time.sleep(60)
    return time, ctx, t


def early(t: inlay.Table, time: Time) -> Iterator[inlay.Table]:
    for n in range(10):
        t.append(rows(20 * n, 20), request_id=f"append-{n}")
        yield t
    t.set_properties(delete__mode="vector")
    yield t
    time.sleep(10 * DAY)


def expiry(t: inlay.Table, time: Time) -> Iterator[inlay.Table]:
    t.append(rows(200, 20))
    yield t
    t.maintain.expire()
    yield t
    t.maintain.collect_garbage()
    t.maintain.compact(max_bytes=40_000)
    time.sleep(9 * DAY)
    t.maintain.collect_garbage()
    yield t


def deletes(t: inlay.Table) -> Iterator[inlay.Table]:
    t.append(rows(220, 120))
    yield t
    t.delete("id >= 230 AND id < 330")  # a deletion vector
    yield t
    t.delete("id IN (3, 5)")  # row positions
    yield t
    t.delete("id <= 1", mode="tombstone")  # a range
    yield t
    t.delete("name LIKE 'näme-1%' AND id < 40", mode="tombstone")  # a predicate
    yield t
    t.delete(keys={"id": list(range(40, 140, 2))})
    yield t
    t.delete(keys={"id": [21, 23, 999], "name": ["näme-4", None, "x"]})  # a file of keys
    yield t
    t.update({"name": "'changed'"}, where="id BETWEEN 150 AND 153")
    yield t
    t.upsert(rows(150, 2), on="id")
    yield t


def maintenance(t: inlay.Table) -> Iterator[inlay.Table]:
    t.delete("id = 165", mode="surgery")
    yield t
    t.maintain.rewrite(where="id < 20")
    yield t


def partitions(t: inlay.Table) -> Iterator[inlay.Table]:
    t.set_partitioning("year(born)", "bucket(3, id)", "score")
    yield t
    t.append(rows(500, 3))
    yield t
    t.set_partitioning("truncate(6, name)", "month(seen)", "price", "blob", "ok")
    t.append(rows(510, 2))
    yield t
    t.set_partitioning()
    yield t


def clustering(t: inlay.Table, ctx: Context) -> Iterator[inlay.Table]:
    for _ in range(4):
        t.append(rows(600, 6))
        yield t
    t.maintain.compact(small_bytes=0)
    yield t
    leaves = frozenset(s.id for s in t.snapshot.files.segments)
    commit(
        ctx, Change(operation="compact", updates=(ClusterLeaves(leaves),))
    )  # packed by key, under a node
    yield t


def branches(t: inlay.Table) -> Iterator[inlay.Table]:
    t.refs.tag("before-branches")
    side = t.refs.branch("side")
    side.append(rows(700, 4))
    side.delete("id = 701 OR id = 604", mode="tombstone")
    yield t
    merged = t.refs.branch("merged")
    merged.append(rows(710, 3))
    t.refresh()
    t.append(rows(720, 2))
    t.refs.merge("merged")
    yield t
    t.delete("id >= 700")
    t.refs.restore(version=t.version - 1)
    yield t


def late(t: inlay.Table, ctx: Context) -> Iterator[inlay.Table]:
    t.delete("id = 166", mode="surgery")  # leaves a dead entry in a segment
    yield t
    sink = io.BytesIO()
    pq.write_table(rows(400, 30), sink, row_group_size=10)
    ctx.store.put("in/landed.parquet", sink.getvalue())
    ingest(ctx, [IngestSource(Location("memory", "golden", "in/landed.parquet"))])
    t.refresh()
    yield t
    landed = next(f.key for f in t.inspect.entries()[0] if f.row_groups == 3)
    t.maintain.delete_row_groups(landed, [1])
    yield t
    tag = SetRefs({"before-summer": Ref(kind="tag", version=t.version)}, {})
    commit(ctx, Change(operation="tag", updates=(tag, AdvanceStream("query-1", 41))))
    yield t
    t.delete("id >= 425", mode="tombstone", request_id="delete-1")
    yield t
    yield from evolution(t)
    t.delete("id = 400", mode="erase", request_id="erase-1")  # stays open
    yield t


def evolution(t: inlay.Table) -> Iterator[inlay.Table]:
    """Columns that change under deletes and files that were written before."""
    t.delete("born < DATE '1972-01-01' AND id > 60", mode="tombstone")
    yield t
    t.delete(keys={"born": [date(1970, 1, 1) + timedelta(days=11 * n) for n in range(180, 190)]})
    yield t
    t.alter(
        drop=["blob"],
        add={
            "note": pa.string(),
            "rank": pa.field("rank", pa.int16(), nullable=False),
            "place.land": pa.string(),
            "blob": pa.int8(),  # the name again, for another column
        },
        defaults={"note": "none", "rank": 7, "place.land": "?"},
        widen={
            "born": pa.timestamp("us"),
            "counts.value": pa.int64(),
            "place.at.element": pa.float64(),
        },
        rename={"ok": "fine", "place.city": "town"},
        order=["id", "rank"],
    )
    yield t
    more = {"id": 500, "born": datetime(2026, 1, 31, 12), "blob": 1, "place": {"town": "new"}}
    t.append(pa.Table.from_pylist([more, {"id": 501, "rank": 1, "note": None}]))
    yield t
    t.alter(optional=["rank"])
    t.update({"rank": "NULL"}, where="id = 501")
    yield t


def versions(t: inlay.Table, ctx: Context) -> dict[int, list[dict[str, Any]]]:
    """The rows of each version that can be read, as JSON values, in the order of their keys."""
    oldest, newest = t.snapshot.oldest_version, t.version
    held = {ref.version for ref in t.snapshot.refs.values()}
    return {
        version: plain(inlay.open(t.uri, version=version, context=ctx).scan().to_arrow())
        for version in sorted({*range(oldest, newest + 1), *held})
    }


def plain(found: pa.Table) -> list[dict[str, Any]]:
    ordered = sorted(found.to_pylist(), key=lambda row: (row["id"], row["name"] or ""))
    return [{name: _plain(value) for name, value in row.items()} for row in ordered]


def _plain(value: Any) -> Any:
    """JSON that distinguishes NaN from NULL and -0.0 from 0.0."""
    match value:
        case float():
            return repr(value)
        case bytes():
            return value.hex()
        case date() | Decimal():
            return str(value)
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return value


def write(folder: Path) -> None:
    """Make the table and what is expected of it in `folder`."""
    _, ctx, t = build()
    shutil.rmtree(folder, ignore_errors=True)
    prefix = ctx.key("")
    for info in ctx.store.list(prefix):
        got = ctx.store.get(info.key)
        assert isinstance(got, Got)
        path = folder / "table" / info.key[len(prefix) :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(got.body)
    refs = {
        n: plain(inlay.open(t.uri, ref=n, context=ctx).scan().to_arrow()) for n in t.snapshot.refs
    }
    expected = {"version": t.version, "rows": _shared(versions(t, ctx)), "refs": refs}
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    (folder / "expected.json").write_text(text.replace('{"id"', '\n{"id"') + "\n", encoding="utf-8")


def _shared(found: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Each distinct row once, and for each version which of them it has: most versions share most."""
    texts: dict[str, int] = {}
    distinct: list[dict[str, Any]] = []
    of: dict[str, list[int]] = {}
    for version, held in found.items():
        places = []
        for row in held:
            text = json.dumps(row, sort_keys=True)
            if text not in texts:
                texts[text] = len(distinct)
                distinct.append(row)
            places.append(texts[text])
        of[str(version)] = places
    return {"versions": of, "distinct": distinct}


def expected(folder: Path) -> tuple[int, dict[int, list[dict[str, Any]]]]:
    """What `write` wrote down: the newest version, and the rows of each."""
    found = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    distinct = found["rows"]["distinct"]
    of = found["rows"]["versions"]
    return found["version"], {int(v): [distinct[n] for n in places] for v, places in of.items()}


if __name__ == "__main__":
    target = HERE / f"v{FORMAT_VERSION}"
    write(target)
    sizes = [p.stat().st_size for p in target.rglob("*") if p.is_file()]
    print(f"{target}: {len(sizes)} files, {sum(sizes):,} bytes")

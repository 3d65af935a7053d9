"""Landing files that are broken in every way: each has its own outcome, and none affects another.

Every batch holds sound files between broken ones. Whatever the broken ones are, the sound ones are
ingested, each broken one is ingested or refused by a typed error, and no other error occurs. Seeds are
fixed: a run is the same each time.
"""

from __future__ import annotations

import base64
import copy
import io
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InlayError
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import Ingested, Rejected, Superseded, ingest
from inlay.parquet.footer.fields import ARROW_SCHEMA, Chunk, File, Group, KeyValue, Meta, Stats
from inlay.parquet.footer.footer import end_of_file
from inlay.parquet.footer.thrift import STRUCT, Items, decode_struct, unpack
from inlay.storage.base import Location, Written

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("who", pa.string()),
        pa.field("amount", pa.decimal128(20, 4)),
        pa.field("raw", pa.binary(8)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("x", pa.float64()), ("y", pa.float32())])),
        pa.field("on", pa.bool_()),
    ]
)
ROWS = 40
SEEDS = range(12)
# Broken files of one batch; sound ones stand before, between and behind them.
BROKEN = 16


def rows(first: int, days: int = 1) -> pa.Table:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    return pa.Table.from_pylist(
        [
            {
                "id": first + n,
                "at": start + timedelta(days=n % days, hours=n % 24),
                "who": None if n % 7 == 0 else f"who {n % 5}",
                "amount": Decimal(n) / 4,
                "raw": bytes([n]) * 8,
                "tags": [f"t{k}" for k in range(n % 3)],
                "place": {"x": n / 3, "y": float(n)},
                "on": n % 2 == 0,
            }
            for n in range(ROWS)
        ],
        SCHEMA,
    )


FORMS: Sequence[dict[str, Any]] = (
    {"compression": "none", "use_dictionary": False},
    {"compression": "zstd", "row_group_size": 15, "write_page_index": True},
    {"compression": "snappy", "data_page_version": "2.0", "data_page_size": 64},
    {"compression": "gzip", "write_page_checksum": True, "store_schema": False},
)


def parquet(table: pa.Table, form: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **FORMS[form % len(FORMS)])
    return buffer.getvalue()


# -- what is done to a file ----------------------------------------------------------------------

Break = Callable[[bytes, random.Random], bytes]


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def flip_in_footer(data: bytes, rng: random.Random) -> bytes:
    return flipped(data, rng, footer_start(data), len(data))


def flip_in_pages(data: bytes, rng: random.Random) -> bytes:
    return flipped(data, rng, 4, footer_start(data))


def flipped(data: bytes, rng: random.Random, start: int, end: int) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(start, end)] = rng.randrange(256)
    return bytes(found)


def cut_short(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice((0, 1, 4, 8, 11, 12, rng.randrange(len(data)), len(data) - 1))]


def hole(data: bytes, rng: random.Random) -> bytes:
    """A footer that is whole, behind pages of which some are missing."""
    start = rng.randrange(4, footer_start(data))
    return data[:start] + data[start + rng.randrange(1, footer_start(data) - start + 1) :]


def zeros(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    end = rng.randrange(start, len(data) + 1)
    return data[:start] + bytes(end - start) + data[end:]


def wrong_length(data: bytes, rng: random.Random) -> bytes:
    said = rng.choice((0, 1, len(data), 2**31 - 1, 2**32 - 1, rng.randrange(2**32)))
    return data[:-8] + said.to_bytes(4, "little") + data[-4:]


def other_magic(data: bytes, rng: random.Random) -> bytes:
    return data[:-4] + rng.choice((b"PARE", b"\0\0\0\0", b"ORC1", b"par1"))


def not_parquet(data: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b"id,who\n1,2\n" * 9, b"\x1f\x8b" + data[:50], rng.randbytes(300)))


NUMBERS = (0, 1, -1, 2, 7, 127, -128, 2**15, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
TEXTS = (
    b"",
    b"\xff\xfe",
    b"\xc3",
    b"\0",
    b"a.b",
    b"id",
    b"parquet-mr version \xff",
    b"\xed\xa0\x80",
    b"x" * 999,
)


def edit_footer(data: bytes, rng: random.Random) -> bytes:
    """A well-formed footer in which fields have other values than they may have."""
    start = footer_start(data)
    tree = copy.deepcopy(whole_tree(data))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change(rng, *rng.choice(list(places(tree))))
    return data[:start] + end_of_file(tree)


def whole_tree(data: bytes) -> Any:
    found = decode_struct(data[footer_start(data) : -8])
    return found[0] if isinstance(found, tuple) else found


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    held = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(held):
        yield tree, key
        if isinstance(value, dict | Items):
            yield from places(value)


def change(rng: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if rng.random() < 0.15:
        del holder[key]
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = rng.choice((*NUMBERS, value + 1, value - 1, value * 2, -value))
    elif isinstance(value, bytes):
        holder[key] = rng.choice((*TEXTS, value[:-1], value + b"\xff", rng.randbytes(len(value))))
    elif isinstance(value, list):
        rng.choice((value.clear, value.reverse, lambda: value.extend(copy.deepcopy(value[:1]))))()


# Writers whose oldest dates and times some readers shift, and one whose they do not.
MARKS: Sequence[dict[str, str]] = (
    {},
    {"org.apache.spark.version": "2.4.8"},
    {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""},
    {"org.apache.spark.version": "3.0.0", "org.apache.spark.legacyINT96": ""},
    {"writer.date.proleptic": "false"},
)
MOMENTS = (
    0,
    -1,
    -(2**63) + 1,
    2**63 - 1,
    -(2**62),
    253_402_300_800_000_000,
    -62_135_596_800_000_001,
)


def extremes(data: bytes, rng: random.Random) -> bytes:
    """A sound file with values at the ends of their types, for which Python often has none."""
    table = rows(0)
    unit = rng.choice(("us", "us", "ns", "ms"))
    at = pa.array([rng.choice((*MOMENTS, None)) for _ in range(ROWS)], pa.int64())
    numbers = pa.array([rng.choice((-(2**63), 2**63 - 1, 0)) for _ in range(ROWS)], pa.int64())
    amounts = [rng.choice((Decimal(10**20 - 1), Decimal(1 - 10**20))) / 10**4 for _ in range(ROWS)]
    floats = [rng.choice((float("nan"), float("-inf"), 5e-324, -0.0, 1.8e308)) for _ in range(ROWS)]
    columns = {
        "id": numbers,
        "at": at.cast(pa.timestamp(unit, "UTC")),
        "amount": pa.array(amounts, pa.decimal128(20, 4)),
        "place": pa.array([{"x": x, "y": 3.4e38} for x in floats], SCHEMA.field("place").type),
    }
    for name in rng.sample(list(columns), rng.randint(1, len(columns))):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, columns[name])
    buffer = io.BytesIO()
    int96 = rng.random() < 0.3
    marked = table.replace_schema_metadata(rng.choice(MARKS))
    pq.write_table(marked, buffer, use_deprecated_int96_timestamps=int96)
    return buffer.getvalue()


BREAKS: Sequence[Break] = (
    extremes,
    extremes,
    flip_in_footer,
    flip_in_footer,
    flip_in_pages,
    cut_short,
    hole,
    zeros,
    wrong_length,
    other_magic,
    not_parquet,
    edit_footer,
    edit_footer,
    edit_footer,
    edit_footer,
    edit_footer,
)

NAMES = (
    "plain",
    "späce d",
    "100%25",
    "a+b",
    "q?x=1",
    "日本語",
    "tab\tnew",
    "dots..",
    "quote'\"",
    "~!@#$&*()",
)


@dataclass
class Lake:
    table: inlay.Table
    base: str

    @classmethod
    def of(cls, *partition_by: str, **properties: str) -> Lake:
        base = f"memory://fuzz-{uuid.uuid4().hex}"
        made = inlay.create(
            f"{base}/tables/t", SCHEMA, partition_by=partition_by, properties=properties
        )
        return cls(made, base)

    @property
    def store(self) -> Any:
        return self.table._ctx.store

    def land(self, name: str, body: bytes) -> IngestSource:
        key = f"in/{name}.parquet"
        put = self.store.put(key, body)
        assert isinstance(put, Written)
        return IngestSource(Location("memory", self.store.bucket, key), etag=put.etag)


def check_batch(lake: Lake, sources: Sequence[IngestSource], sound: Sequence[int]) -> list[int]:
    """Ingest, and see that every source had the outcome it may have; which broken ones came in."""
    done = ingest(lake.table._ctx, sources)
    inlay.open(lake.table.uri)  # whatever came in, it can be opened
    taken = []
    for position, outcome in enumerate(done.outcomes):
        assert outcome.source.location == sources[position].location
        if position in sound:
            assert isinstance(outcome, Ingested), (position, outcome)
            assert outcome.rows == ROWS
        elif isinstance(outcome, Ingested):
            taken.append(position)
        else:
            assert isinstance(outcome, Rejected | Superseded), outcome
            if isinstance(outcome, Rejected):
                assert isinstance(outcome.error, InlayError)
                assert outcome.error.kind.value == "input", outcome.error.fields()
                assert str(outcome.error).encode()  # and can be logged
    return taken


LAKES: dict[str, Callable[[], Lake]] = {
    "whole": lambda: Lake.of(),
    "cut": lambda: Lake.of("day(at)"),
    "stamped": lambda: Lake.of(**{"ingest.field_ids": "stamp"}),
}


@pytest.mark.parametrize("kind", LAKES)
@pytest.mark.parametrize("seed", SEEDS)
def test_sound_files_are_ingested_and_broken_ones_reported_one_by_one(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    lake = LAKES[kind]()
    bodies, sound = [], []
    for n in range(BROKEN):
        if n % 5 == 0:
            sound.append(len(bodies))
            bodies.append(parquet(rows(1000 * n, days=2), rng.randrange(len(FORMS))))
        whole = parquet(
            rows(100_000 + 1000 * n, days=rng.choice((1, 3))), rng.randrange(len(FORMS))
        )
        bodies.append(rng.choice(BREAKS)(whole, rng))
    sources = [lake.land(f"{n:02d}{rng.choice(NAMES)}", body) for n, body in enumerate(bodies)]
    for victim in rng.sample([n for n in range(len(bodies)) if n not in sound], 3):
        match rng.choice(("gone", "shorter", "other event")):
            case "gone":
                lake.store.delete([sources[victim].location.key])
            case "shorter":  # after the event
                lake.store.put(sources[victim].location.key, bodies[victim][:-3])
            case "other event":
                sources[victim] = replace(sources[victim], etag="0" * 32)
    check_batch(lake, sources, sound)

    # What came in can be read, or the file that cannot is named; the sound rows are all there.
    table = lake.table.refresh()
    try:
        ids = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    except InlayError as error:
        assert error.key is not None
    else:
        assert {1000 * n + m for n in range(0, BROKEN, 5) for m in range(ROWS)} <= set(ids)
    # And once more: nothing comes twice.
    done = ingest(table._ctx, [sources[n] for n in sound])
    assert not any(isinstance(outcome, Ingested) for outcome in done.outcomes)


def test_a_writer_that_names_itself_in_no_unicode_is_one_file():
    lake = Lake.of()
    whole = parquet(rows(0), 1)
    tree = whole_tree(whole)
    tree[File.CREATED_BY] = b"parquet-mr \xff\xfe version 1"
    odd = whole[: footer_start(whole)] + end_of_file(tree)
    sources = [
        lake.land("a", parquet(rows(100), 0)),
        lake.land("b", odd),
        lake.land("c", parquet(rows(200), 0)),
    ]
    check_batch(lake, sources, [0, 2])


def test_the_fuzz_reaches_what_it_is_about():
    """A fuzz whose files were all refused at the first byte, or all taken, would show nothing."""
    rng = random.Random(1)
    errors: dict[str, int] = {}
    taken = 0
    for n in range(120):
        body = rng.choice(BREAKS)(parquet(rows(0), n), rng)
        lake = Lake.of()
        [outcome] = ingest(lake.table._ctx, [lake.land("x", body)]).outcomes
        if isinstance(outcome, Ingested):
            taken += 1
        else:
            name = type(outcome.error).__name__  # type: ignore[union-attr]
            errors[name] = errors.get(name, 0) + 1
    assert taken > 10
    assert errors["UnreadableFile"] > 20
    assert len(errors) >= 3


# A row group's or file's numbers, and values of columns, none of which a table's metadata may hold.
def _with(column: str, values: Any, kind: pa.DataType) -> bytes:
    table = rows(0)
    place = table.schema.get_field_index(column)
    array = pa.array(values * (ROWS // len(values)), pa.int64()).cast(kind)
    buffer = io.BytesIO()
    pq.write_table(table.set_column(place, column, array), buffer)
    return buffer.getvalue()


def _edited(change: Callable[[Any], None]) -> bytes:
    whole = parquet(rows(0), 0)
    tree = whole_tree(whole)
    change(tree)
    return whole[: footer_start(whole)] + end_of_file(tree)


def _nulls(count: int) -> Callable[[Any], None]:
    def change(tree: Any) -> None:
        for chunk in tree[File.GROUPS][0][Group.COLUMNS]:
            if (stats := chunk[Chunk.META].get(Meta.STATISTICS)) is not None:
                chunk[Chunk.META][Meta.STATISTICS] = {**unpack(stats), Stats.NULLS: count}

    return change


def _rows(tree: Any) -> None:
    tree[File.GROUPS][0][Group.ROWS] = 2**62


def _zone() -> bytes:
    """A time zone that is no text, in the schema that Arrow's writers keep."""
    whole = parquet(rows(0), 0)
    tree = whole_tree(whole)
    [pair] = [p for p in map(unpack, tree[File.KEY_VALUES]) if p[KeyValue.KEY] == ARROW_SCHEMA]
    raw = base64.b64decode(pair[KeyValue.VALUE])
    assert b"UTC" in raw
    pair[KeyValue.VALUE] = base64.b64encode(raw.replace(b"UTC", b"U\\\x83"))
    tree[File.KEY_VALUES] = Items(STRUCT, [pair])
    return whole[: footer_start(whole)] + end_of_file(tree)


UNRECORDABLE: dict[str, Callable[[], bytes]] = {
    "milliseconds beyond microseconds": lambda: _with("at", [2**62, 0], pa.timestamp("ms", "UTC")),
    "negative milliseconds": lambda: _with("at", [-(2**62), 0], pa.timestamp("ms", "UTC")),
    "a negative number of nulls": lambda: _edited(_nulls(-6)),
    "more nulls than values": lambda: _edited(_nulls(2**40)),
    "a time zone that is no text": _zone,
    "more rows than a file can have": lambda: _edited(_rows),
}


@pytest.mark.parametrize("what", UNRECORDABLE)
@pytest.mark.parametrize("kind", LAKES)
def test_no_file_leaves_a_table_that_cannot_be_opened(kind: str, what: str) -> None:
    lake = LAKES[kind]()
    bodies = [parquet(rows(0), 1), UNRECORDABLE[what](), parquet(rows(100), 1)]
    sources = [lake.land(str(n), body) for n, body in enumerate(bodies)]
    check_batch(lake, sources, [0, 2])
    assert inlay.open(lake.table.uri).count() >= 2 * ROWS

"""Columns of every type, files of many writers and layouts, processes that die: nothing of the row is left.

Each case is made from its seed: what the table has, who wrote it and how, what happens before and during
the erasure, how the row is asked for. Searched are all object versions, raw, unpacked, and Bloom filters.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.faults import Fate, FaultyStore, Killed, Sent

import inlay
import inlay.plan.surgery as strategy
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.parquet.footer import thrift
from inlay.parquet.footer.fields import Chunk, File, Group, Physical
from inlay.parquet.footer.footer import decode_footer
from inlay.storage.base import Location

from . import oracle
from .bloom import filters, may_hold
from .people import People, in_memory
from .test_named_in_footers import with_footer

URI = "memory://b/tables/people"
EPOCH = datetime(1970, 1, 1)
DAYS = [date(2020, 1, n + 1) for n in range(28)]


@dataclass(frozen=True)
class Kind:
    """A column's type, her value, those of others, how Parquet stores hers, how SQL writes it."""

    type: pa.DataType
    hers: Callable[[random.Random], Any]
    other: Callable[[int], Any]
    stored: Callable[[Any], list[bytes]]
    sql: Callable[[Any], str] = repr


def _moment(rng: random.Random) -> datetime:
    return datetime(1900, 1, 1) + timedelta(seconds=rng.randrange(10**9), microseconds=12_345)


def _micros(value: datetime) -> bytes:
    return struct.pack("<q", (value - EPOCH) // timedelta(microseconds=1))


def _decimal(value: Decimal) -> list[bytes]:
    raw = int(value.scaleb(2)).to_bytes(8, "big", signed=True)
    return [raw, raw[::-1]]


KINDS: dict[str, Kind] = {
    "mail": Kind(
        pa.string(),
        lambda rng: f"{rng.choice(('aa', 'mm', 'zz'))}-{rng.randrange(16**10):010x}@example.org",
        lambda i: f"p{i % 17:03}@example.org",
        lambda v: [v.encode(), v.encode()[:13]],
        lambda v: f"'{v}'",
    ),
    "number": Kind(
        pa.int64(),
        lambda rng: rng.choice((-1, 1)) * rng.randrange(10**15, 10**18),
        lambda i: i % 11 * 1_000_003,
        lambda v: [struct.pack("<q", v), str(v).encode()],
        str,
    ),
    "born": Kind(
        pa.date32(),
        lambda rng: date(1700, 1, 1) + timedelta(rng.randrange(20_000)),
        lambda i: DAYS[i % 28],
        lambda v: [struct.pack("<i", (v - EPOCH.date()).days)],
        lambda v: f"DATE '{v}'",
    ),
    "seen": Kind(
        pa.timestamp("us"),
        _moment,
        lambda i: datetime(2020, 1, 1) + timedelta(hours=i % 13),
        lambda v: [_micros(v)],
        lambda v: f"TIMESTAMP '{v.isoformat(' ')}'",
    ),
    "owes": Kind(
        pa.decimal128(18, 2),
        lambda rng: Decimal(rng.randrange(10**15, 10**17)) / 100,
        lambda i: Decimal(i % 11) / 100,
        _decimal,
        str,
    ),
    "score": Kind(
        pa.float64(),
        lambda rng: rng.uniform(1e3, 1e12),
        lambda i: i % 11 / 2,
        lambda v: [struct.pack("<d", v)],
    ),
    "token": Kind(
        pa.binary(16),
        lambda rng: rng.randbytes(16),
        lambda i: b"%016d" % (i % 11),
        lambda v: [v],
        lambda v: f"X'{v.hex()}'",
    ),
}


@dataclass
class Case:
    rng: random.Random
    names: list[str]
    hers: dict[str, Any]
    next_id: int = 0
    ids: list[int] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    # Landed and not ingested yet: keys, with the ids of rows that stay.
    pending: list[tuple[str, list[int]]] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), *((n, KINDS[n].type) for n in self.names)])

    def rows(self, *, with_her: bool) -> pa.Table:
        ids = list(range(self.next_id, self.next_id + self.rng.randrange(1, 30)))
        self.next_id = ids[-1] + 1
        found = [{"id": i, **{n: KINDS[n].other(i) for n in self.names}} for i in ids]
        self.ids += ids
        if with_her:
            found[self.rng.randrange(len(found))] |= self.hers
            self.ids.remove(next(r["id"] for r in found if r[self.names[0]] in self.hers.values()))
        return pa.Table.from_pylist(found, schema=self.schema)


def by_pyarrow(case: Case, table: pa.Table) -> bytes:
    rng = case.rng
    sink = io.BytesIO()
    filtered = {n: {"ndv": 50, "fpp": 0.0001} for n in case.names} if rng.random() < 0.5 else None
    pq.write_table(
        table,
        sink,
        row_group_size=rng.choice((5, 1000)),
        version=rng.choice(("1.0", "2.6")),
        compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        use_dictionary=rng.random() < 0.6,
        data_page_version=rng.choice(("1.0", "2.0")),
        data_page_size=rng.choice((64, 1 << 20)),
        write_page_index=rng.random() < 0.5,
        write_statistics=rng.random() < 0.8,
        store_decimal_as_integer=rng.random() < 0.3,
        bloom_filter_options=filtered,
    )
    return sink.getvalue()


def by_pyarrow_with_categories(case: Case, table: pa.Table) -> bytes:
    """Also where she has no row, her mail is in the dictionary and in the key-values."""
    if "mail" in case.names:
        mails = table["mail"].to_pylist()
        known = [case.hers["mail"], *dict.fromkeys(m for m in mails if m != case.hers["mail"])]
        codes = pa.array([known.index(m) for m in mails], pa.int32())
        at = table.schema.get_field_index("mail")
        table = table.set_column(at, "mail", pa.DictionaryArray.from_arrays(codes, known))
        table = table.replace_schema_metadata({"owner": case.hers["mail"]})
    return by_pyarrow(case, table)


def by_polars(case: Case, table: pa.Table) -> bytes:
    frame = pl.DataFrame(pl.from_arrow(table.drop(["token"] if "token" in case.names else [])))
    if "token" in case.names:  # Polars has no binary of fixed width
        return by_pyarrow(case, table)
    if "mail" in case.names:
        known = sorted({*frame["mail"].to_list(), case.hers["mail"]})
        frame = frame.with_columns(pl.col("mail").cast(pl.Enum(known)))
    sink = io.BytesIO()
    frame.write_parquet(sink, row_group_size=5, statistics="full")
    return sink.getvalue()


def by_a_later_format(case: Case, table: pa.Table) -> bytes:
    """Fields that the format does not define name her values, as they are in pages: in the footer itself or
    in the entry of a column chunk."""
    body = by_pyarrow(case, table)
    footer = decode_footer(body, file_size=len(body))
    kinds = {leaf.path[0]: leaf.type for leaf in footer.leaves}
    values = [
        # A decimal in a 64-bit integer has its bytes in the other order.
        KINDS[n].stored(case.hers[n])[n == "owes" and kinds[n] is Physical.INT64]
        for n in case.names
    ]
    said = {thrift.binary(32767): b"\x00".join([b"", *values, b""])}
    groups = footer.tree[File.GROUPS]
    if case.rng.random() < 0.5 or not groups:
        return with_footer(body, said)
    first, *others = groups
    chunk, *columns = first[Group.COLUMNS]
    chunk = {**chunk, Chunk.META: {**chunk[Chunk.META], **said}}
    first = {**first, Group.COLUMNS: thrift.Items(thrift.STRUCT, [chunk, *columns])}
    return with_footer(body, {File.GROUPS: thrift.Items(thrift.STRUCT, [first, *others])})


WRITERS = [by_pyarrow, by_pyarrow_with_categories, by_polars, by_a_later_format]


def new_case(seed: int) -> tuple[Case, People]:
    rng = random.Random(seed)
    names = rng.sample(list(KINDS), rng.randrange(1, 4))
    case = Case(rng, names, {n: KINDS[n].hers(rng) for n in names})
    people = in_memory(seed, versioned=rng.random() < 0.5)
    properties = {"write.row_group_rows": rng.choice((5, 100))}
    inlay.create(URI, case.schema, properties=properties, context=people.ctx)
    return case, people


def change(case: Case, people: People, *, with_her: bool) -> None:
    rng = case.rng
    people.time.sleep(2)
    table = inlay.open(URI, context=people.ctx)
    match rng.randrange(8):
        case 0 | 1:
            table.append(case.rows(with_her=with_her))
        case 2 | 3 | 4 if with_her:
            adopt = rng.random() < 0.3
            key = f"{'else' if adopt else 'ingest/people'}/{case.next_id}.parquet"
            rows = case.rows(with_her=rng.random() < 0.6)
            people.store.put(key, rng.choice(WRITERS)(case, rows))
            if not adopt and rng.random() < 0.4:
                landed = [i for i in rows["id"].to_pylist() if i in case.ids]
                case.ids = [i for i in case.ids if i not in landed]
                case.pending.append((key, landed))
                return
            done = people.ingest(Location("memory", "b", key), adopt=adopt)
            assert done.write.committed, done.outcomes
            case.outside += [key] if adopt else []
        case 5 if case.ids:
            gone = case.ids.pop(rng.randrange(len(case.ids)))
            table.delete(f"id = {gone}", mode=rng.choice(("tombstone", "vector")))
        case 6:
            table.refs.branch(f"b{table.version}")
        case _:
            table.maintain.compact()


def ingest_next(case: Case, people: People) -> None:
    """Its event comes, at whatever step of the erasure."""
    people.time.sleep(2)
    key, landed = case.pending.pop()
    done = people.ingest(Location("memory", "b", key))
    assert done.write.committed, done.outcomes
    case.ids += landed


def finish(case: Case, people: People) -> None:
    """Calls what the schedules call, until the erasure has ended; some of the processes die."""
    rng = case.rng
    for _ in range(80):  # some wait for what has landed
        if rng.random() < 0.3:
            change(case, people, with_her=False)
        if case.pending and rng.random() < 0.2:
            ingest_next(case, people)
        at = rng.randrange(1, 120)

        def plan(sent: Sent, at: int = at) -> Fate:
            return Fate.KILLED_AFTER if sent.number == at else Fate.DONE

        process = people.on(FaultyStore(people.store, plan))
        ctx = replace(process.ctx, random=random.Random(rng.random()))
        process = replace(process, ctx=ctx)
        try:
            process.advance()
            process.collect()
        except Killed:
            pass
        people.time.sleep(rng.choice((1, 1000)))
        if not people.snapshot.erasures:
            return
    raise AssertionError("the erasure does not end")


def found(case: Case, people: People, names: list[str]) -> list[str]:
    stored = {n: KINDS[n].stored(case.hers[n]) for n in names}
    secrets = [raw for raws in stored.values() for raw in raws]
    places = []
    for name, body in oracle._bodies(people.store):
        if any(key in name for key in case.outside):
            continue
        if any(raw in view for _, view in oracle.views(body) for raw in secrets):
            places.append(name)
        if oracle._is_parquet(body):
            places += [
                f"{name}: {where}"
                for where, _, bits in filters(body)
                for n, raws in stored.items()
                if f" of {n} " in where and may_hold(bits, raws[0])
            ]
    return places


def erase_and_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case, people = new_case(seed)
    rng = case.rng
    if rng.random() < 0.7:  # otherwise small files are written as a whole
        monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
        monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    for _ in range(rng.randrange(3, 8)):
        change(case, people, with_her=True)
    asked = case.names if rng.random() < 0.7 else [case.names[0]]
    each = [f"{n} = {KINDS[n].sql(case.hers[n])}" for n in asked]
    if rng.random() < 0.3:
        each = [f"{n} IN ({KINDS[n].sql(case.hers[n])})" for n in asked]
    people.time.sleep(2)
    table = inlay.open(URI, context=people.ctx)
    table.delete(" OR ".join(each), mode="erase", request_id="case-1")
    finish(case, people)
    while case.pending:
        ingest_next(case, people)
    assert found(case, people, asked) == []
    left = inlay.open(URI, context=people.ctx).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(left) == sorted(case.ids)
    assert verify_receipt(people.ctx, "case-1").problems == ()


@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_left(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    erase_and_search(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_nothing_is_left_in_any_of_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    erase_and_search(seed, monkeypatch)

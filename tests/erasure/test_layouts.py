"""Whatever wrote a file, and whatever way rows leave it, no byte of a removed row stays."""

from __future__ import annotations

import io
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay.ops.maintain.rewrite_file as rewriting
import inlay.plan.surgery as strategy
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.ops.write.ingest import Ingested
from inlay.storage.base import Location

from .oracle import Secret
from .people import SECRETS, WHO, People, new_people, rows

IDS = [*range(100, 112), WHO, *range(200, 212), WHO, *range(300, 312)]


def _pyarrow(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(IDS), sink, row_group_size=8, **options)
    return sink.getvalue()


def _polars() -> bytes:
    sink = io.BytesIO()
    pl.from_arrow(rows(IDS)).write_parquet(sink, row_group_size=8, statistics="full")  # type: ignore[union-attr]
    return sink.getvalue()


def _duckdb(path: Any) -> bytes:
    target = path / "duckdb.parquet"
    duckdb.from_arrow(rows(IDS)).write_parquet(str(target), row_group_size=2048)
    return bytes(target.read_bytes())


BLOOM = {name: {"ndv": 40, "fpp": 0.01} for name in ("id", "name", "city")}

WRITERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "snappy-v2-pages": {"compression": "snappy", "data_page_version": "2.0"},
    "gzip-no-dictionary": {"compression": "gzip", "use_dictionary": False},
    "uncompressed": {"compression": "none"},
    "page-index": {"write_page_index": True, "write_page_checksum": True},
    "delta": {
        "use_dictionary": False,
        "column_encoding": {"name": "DELTA_BYTE_ARRAY", "city": "DELTA_LENGTH_BYTE_ARRAY"},
    },
    "bloom": {"bloom_filter_options": BLOOM},
    "small-pages": {"data_page_size": 64, "write_batch_size": 4, "write_page_index": True},
}


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("writer", [*WRITERS, "polars", "duckdb"])
def test_nothing_stays(
    writer: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    people = new_people()
    gone = _force(way, monkeypatch)
    body = (
        _polars()
        if writer == "polars"
        else _duckdb(tmp_path)
        if writer == "duckdb"
        else _pyarrow(**WRITERS[writer])
    )
    people.store.put(f"ingest/people/{writer}.parquet", body)
    people.time.sleep(1)
    ingested = people.ingest(Location("memory", "b", f"ingest/people/{writer}.parquet"))
    assert ingested.write.committed, ingested.outcomes
    assert people.found(SECRETS[1])

    people.erase()
    people.advance()
    assert gone == [way]
    people.finish()

    assert people.found() == []
    assert people.ids() == [i for i in sorted(IDS) if i != WHO]


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
def test_a_dictionary_keeps_no_value_that_no_row_has(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = new_people()
    gone = _force(way, monkeypatch)
    table = rows(IDS)
    coded = table.column("city").combine_chunks().dictionary_encode()
    table = table.set_column(2, "city", coded)
    people.time.sleep(1)
    append(people.ctx, table)
    people.erase()
    people.advance()
    assert gone == [way]
    people.finish()
    assert people.found() == []


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
def test_no_bloom_filter_holds_an_erased_value(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty people in two row groups: more than chance could explain, were one filter kept."""
    people = new_people()
    gone = _force(way, monkeypatch)
    erased, stay = range(20), range(1_000, 1_060)
    sink = io.BytesIO()
    table = rows([i for pair in zip(erased, stay, strict=False) for i in pair] + list(stay[20:]))
    pq.write_table(table, sink, row_group_size=20, bloom_filter_options=BLOOM)
    people.store.put("ingest/people/bloom.parquet", sink.getvalue())
    people.time.sleep(1)
    people.ingest(Location("memory", "b", "ingest/people/bloom.parquet"))
    tokens = [Secret(f"name {i}") for i in erased]
    assert len([t for t in people.found(*tokens) if "bloom filter of name" in t]) >= 2 * len(erased)

    people.erase(Comparison(1, "<", Literal(Primitive("int64"), 20)))
    people.advance()
    assert gone == [way]
    people.finish()

    assert [t for t in people.found(*tokens) if "bloom filter" in t] == []
    assert people.ids() == list(stay)
    kept = people.found(*(Secret(f"name {i}") for i in stay))
    hits = [t for t in kept if "bloom filter of name" in t]
    assert len(hits) >= len(stay) if way == "surgery" else hits == []


def test_values_that_only_a_dictionary_holds_are_not_stored(people: People) -> None:
    """Rows cut out of a larger categorical column bring its whole dictionary along."""
    table = rows(IDS)
    coded = table.column("city").combine_chunks().dictionary_encode()
    table = table.set_column(2, "city", coded)
    without = table.filter(pa.compute.not_equal(table.column("id"), WHO))
    people.time.sleep(1)
    append(people.ctx, without)
    assert people.found() == []


def _force(way: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small files are rewritten whole; these tests want both ways. Fills with the ways that were gone
    to their end."""
    gone: list[str] = []
    for name in ("_by_surgery", "_as_a_whole"):
        real = getattr(rewriting, name)

        def counted(*args: Any, real: Any = real, name: str = name) -> Any:
            output = real(*args)
            gone.append("surgery" if name == "_by_surgery" else "rewrite")
            return output

        monkeypatch.setattr(rewriting, name, counted)
    if way == "surgery":
        monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
        monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    return gone


@pytest.mark.parametrize("order", [(0,), (1, 0, 2), (0, 1), (2, 0), (0, 2, 0, 1, 0)])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_groups_without_rows_come_and_stay_whole(
    people: People, order: tuple[int, ...], use_dictionary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers that flush an empty batch leave one: pyarrow's has no place in the file, without a
    dictionary."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    parts = [rows([]), rows([20, 21]), rows([30, WHO])]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows([]).schema, use_dictionary=use_dictionary) as writer:
        for n in order:
            writer.write_table(parts[n])
    people.store.put("ingest/people/a.parquet", sink.getvalue())
    people.time.sleep(1)
    done = people.ingest(Location("memory", "b", "ingest/people/a.parquet"))
    assert [type(outcome) for outcome in done.outcomes] == [Ingested]
    people.erase()
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == sorted(i for n in order for i in ([], [20, 21], [30])[n])
    assert verify(people.ctx, depth="pages").findings == ()

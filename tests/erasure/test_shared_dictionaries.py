"""One category for several columns, at any depth: what the condition names in one column leaves the
dictionaries of all."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.predicate import Comparison, In, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.storage.base import Location

from .oracle import Secret, find
from .people import new_people
from .test_categories import force
from .test_receipt import receipt

HER = "aa-erase-me-7f3a@example.org"
OTHERS = [f"person-{n:02d}@example.org" for n in range(5)]
VALUES = [HER, *OTHERS]
TEXT = Primitive("string")
GROUP_ROWS = 40
VECTOR = 2048  # DuckDB's row groups are of so many, or a multiple
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("mail", pa.string()),
        ("cc", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("who", pa.struct([("name", pa.string()), ("of", pa.struct([("team", pa.string())]))])),
        ("said", pa.map_(pa.string(), pa.string())),
    ]
)


def plain(*, has_her: bool, rows: int = 3 * GROUP_ROWS) -> pa.Table:
    """Her mail is in one row, of the first group, or in none; in all other columns in no row."""
    names = [OTHERS[n % len(OTHERS)] for n in range(rows)]
    return pa.table(
        {
            "id": range(rows),
            "mail": [HER, *names[1:]] if has_her else names,
            "cc": names,
            "tags": [[name, None, name] if n % 7 else [] for n, name in enumerate(names)],
            "who": [{"name": n, "of": {"team": n}} if n != OTHERS[0] else None for n in names],
            "said": [[("to", name)] for name in names],
        },
        schema=SCHEMA,
    )  # fmt: skip


def coded(values: pa.Array) -> pa.Array:
    codes = [VALUES.index(v) if v in VALUES else None for v in values.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), VALUES)


def by_pyarrow(has_her: bool) -> bytes:
    made = plain(has_her=has_her).combine_chunks()
    column = {name: made[name].chunk(0) for name in SCHEMA.names}
    tags, who, said = column["tags"], column["who"], column["said"]
    of = who.field("of")
    teams = pa.StructArray.from_arrays([coded(of.field("team"))], ["team"], mask=of.is_null())
    both = [coded(who.field("name")), teams]
    column |= {
        "cc": coded(column["cc"]),
        "tags": pa.ListArray.from_arrays(tags.offsets, coded(tags.values)),
        "who": pa.StructArray.from_arrays(both, ["name", "of"], mask=who.is_null()),
        "said": pa.MapArray.from_arrays(said.offsets, said.keys, coded(said.items)),
    }
    sink = io.BytesIO()
    options: dict[str, Any] = {"store_schema": False, "write_page_index": True}
    pq.write_table(pa.table(column), sink, row_group_size=GROUP_ROWS, **options)
    return sink.getvalue()


def by_polars(has_her: bool) -> bytes:
    """Without maps, which Polars does not have."""
    kind = pl.Enum(VALUES)
    frame = pl.DataFrame(pl.from_arrow(plain(has_her=has_her).drop(["said"])))
    who = pl.Struct({"name": kind, "of": pl.Struct({"team": kind})})
    frame = frame.with_columns(
        pl.col("cc").cast(kind), pl.col("tags").cast(pl.List(kind)), pl.col("who").cast(who)
    )
    sink = io.BytesIO()
    frame.write_parquet(sink, row_group_size=GROUP_ROWS)
    return sink.getvalue()


def by_duckdb(has_her: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as base:
        path = Path(folder) / "x.parquet"
        base.execute("SET threads=1; SET preserve_insertion_order=true")
        base.execute(f"CREATE TYPE who_ AS ENUM ({', '.join(map(repr, VALUES))})")
        base.register("t", plain(has_her=has_her, rows=3 * VECTOR))
        base.execute(
            f"""COPY (
                SELECT id, mail, cc::who_ AS cc, tags::who_[] AS tags,
                    CASE WHEN who IS NULL THEN NULL ELSE
                        {{'name': who.name::who_, 'of': {{'team': who.of.team::who_}}}} END AS who,
                    said::MAP(VARCHAR, who_) AS said
                FROM t ORDER BY id
            ) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {VECTOR})"""
        )
        return path.read_bytes()


def others_after(body: bytes, has_her: bool) -> list[dict[str, Any]]:
    rows = pq.read_table(io.BytesIO(body)).to_pylist()
    return rows[1:] if has_her else rows


CONDITIONS: dict[str, Predicate] = {
    "equal": Comparison(2, "=", Literal(TEXT, HER)),
    "in": In(2, TEXT, (HER, "nobody@example.org")),
    "like": Like(2, "aa-erase-me-%"),
}


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("has_her", [True, False], ids=["a row", "no row"])
@pytest.mark.parametrize("writer", [by_pyarrow, by_polars, by_duckdb])
@pytest.mark.parametrize("asked", CONDITIONS)
def test_nothing_is_left_in_the_dictionaries_of_other_columns(
    asked: str,
    writer: Callable[[bool], bytes],
    has_her: bool,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    force(way, monkeypatch)
    body = writer(has_her)
    people = new_people(SCHEMA, primary_key=(), row_group_rows=None)
    people.time.sleep(1)
    people.store.put("ingest/people/x.parquet", body)
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    people.erase(CONDITIONS[asked])
    assert people.finish().receipts
    assert find(people.store, Secret(HER)) == []
    [entry] = load_entries(people.ctx, load_pointer(people.ctx).state).files()
    left = people.store.get(people.ctx.key(entry.key)).body
    expected = others_after(body, has_her)
    found = pq.read_table(io.BytesIO(left)).select(list(expected[0])).to_pylist()
    assert str(found) == str(expected)
    # All of the file was searched, or it was written again.
    is_searched = entry.origin is not None or not entry.is_foreign
    assert receipt(people)["look"]["searched_in_part"] == int(not is_searched)


def test_a_value_that_other_columns_rows_have_stays_with_them() -> None:
    """The rows of others that name her in another column are not erased, and no reason to write a file
    again."""
    rows = 4 * GROUP_ROWS
    made = plain(has_her=False, rows=rows)
    cc = pa.array([HER if n % 10 == 0 else name for n, name in enumerate(made["cc"].to_pylist())])
    sink = io.BytesIO()
    pq.write_table(made.set_column(2, "cc", cc), sink, row_group_size=GROUP_ROWS)
    people = new_people(SCHEMA, primary_key=(), row_group_rows=None)
    people.time.sleep(1)
    people.store.put("ingest/people/x.parquet", sink.getvalue())
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    people.erase(CONDITIONS["equal"])
    assert people.finish().receipts
    [entry] = load_entries(people.ctx, load_pointer(people.ctx).state).files()
    assert entry.origin is None and entry.rows == rows

"""The page index of a file is fetched along with its footer, whole: a tail too short misses the first
column's, most often the key's, which is then read whole, a round trip later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import inlay
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read.data_file import index_bytes

RNG = np.random.default_rng(7)


def _wide(rows: int) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(rows),
            **{f"n{c}": RNG.integers(0, 10**9, rows) for c in range(8)},
            **{f"f{c}": RNG.random(rows) for c in range(4)},
            "s": pa.array([f"{x:032x}" for x in RNG.integers(0, 2**62, rows)]),
            "g": pa.array([f"g{x % 40}" for x in range(rows)]),
        }
    )


COLUMNS: dict[str, Any] = {
    "int64": lambda n: pa.array(RNG.integers(-(2**62), 2**62, n)),
    "with NULL": lambda n: pa.array(RNG.integers(0, 10**15, n), mask=RNG.random(n) < 0.1),
    "bool": lambda n: pa.array(RNG.random(n) < 0.5),
    "decimal": lambda n: pa.array(RNG.integers(0, 10**9, n)).cast(pa.decimal128(38, 2)),
    "wide decimal": lambda n: pa.array(RNG.integers(0, 10**9, n)).cast(pa.decimal256(60, 2)),
    "text": lambda n: pa.array([f"{x:032x}" for x in RNG.integers(0, 2**62, n)]),
    "short text": lambda n: pa.array([f"g{x % 40}" for x in range(n)]),
    "bytes": lambda n: pa.array([b"%020d" % x for x in range(n)]),
    "fixed": lambda n: pa.array([b"%020d" % x for x in range(n)], pa.binary(20)),
    "time": lambda n: pa.array(RNG.integers(0, 2**45, n), pa.timestamp("us", "UTC")),
    "list": lambda n: pa.array([[1, 2, None]] * n),
    "struct": lambda n: pa.array([{"a": x, "b": str(x)} for x in range(n)]),
    "list of struct": lambda n: pa.array([[{"a": x, "b": "xx"}, None] for x in range(n)]),
    "map": lambda n: pa.array([[("k", x)] for x in range(n)], pa.map_(pa.string(), pa.int64())),
}


def _index(store: Any, table: inlay.Table, entry: Any) -> int:
    body = store.get(f"{table._ctx.root}/{entry.key}").body
    footer = decode_footer(body, file_size=len(body))
    chunks = [chunk for group in footer.row_groups for chunk in group.columns]
    starts = [chunk.column_index[0] for chunk in chunks if chunk.column_index is not None]
    return int(entry.size - entry.footer_size - min(starts))


@pytest.mark.parametrize("name", [*COLUMNS, "wide"])
@pytest.mark.parametrize("rows", [1, 4_999, 5_000, 5_001, 20_000, 61_234])
@pytest.mark.parametrize("group_rows", [7_000, 1_000_000])
def test_what_is_fetched_holds_the_whole_page_index(name: str, rows: int, group_rows: int) -> None:
    data = (
        _wide(rows) if name == "wide" else pa.table({"id": range(rows), "c": COLUMNS[name](rows)})
    )
    table = inlay.create(
        f"memory://index/{name}-{rows}-{group_rows}",
        data.schema,
        primary_key="id",
        properties={"write.row_group_rows": group_rows},
    )
    table.append(data)
    [entry] = table.refresh().inspect.entries()[0]
    real = _index(table._ctx.store, table, entry)
    bound = index_bytes(entry, table.snapshot.schema)
    assert real <= bound <= 3 * real + 100


def test_a_key_is_looked_up_in_three_round_trips_whatever_the_size() -> None:
    """Pointer, footer with the page index, pages: none in between for an index that was missed."""
    for rows in (10_000, 60_000):
        uri = f"memory://trips-{rows}/t"
        table = inlay.create(uri, _wide(1).schema, primary_key="id", sort_by=["id"])
        table.append(_wide(rows))
        opened = inlay.open(uri)
        before = opened.usage
        assert opened.scan(where=f"id = {rows // 2}").to_arrow().num_rows == 1
        used = opened.usage - before
        assert sum(used.requests.values()) <= 1 + len(_wide(1).column_names)

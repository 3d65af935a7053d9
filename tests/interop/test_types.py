"""Every type that is published, at its extremes, as each engine reads it: equal, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import Unpublishable

from .conftest import ENGINES, OTHERS, Refused, as_multiset, need

EARLY, LATE = datetime(1900, 1, 1), datetime(2200, 12, 31, 23, 59, 59)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "float": (pa.float32(), [float("nan"), -0.5]),
    "double": (pa.float64(), [float("inf"), -1e300]),
    "decimal9": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01")]),
    "decimal18": (pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-1)]),
    "decimal38": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal(10**28 - 1)]),
    "string": (pa.string(), ["", "é\U0001f600"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x01\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "time_us": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    "timestamp_us": (pa.timestamp("us"), [EARLY, LATE.replace(microsecond=999999)]),
    "timestamptz_us": (
        pa.timestamp("us", tz="UTC"),
        [EARLY.replace(tzinfo=UTC), LATE.replace(tzinfo=UTC)],
    ),
}
REFUSED = {
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "decimal76": pa.decimal256(76, 0),
    "time_ms": pa.time32("ms"),
    "time_ns": pa.time64("ns"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamptz_ms": pa.timestamp("ms", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
}


Place = tuple[str, str, pa.Table, str]
PAGE = Path(__file__).parents[2] / "docs" / "INTEROP.md"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    """A table for each type and version of Iceberg, so that what an engine refuses hides nothing of the
    others."""
    root = tmp_path_factory.mktemp("types")
    found: list[Place] = []
    for format in ("v3", "v2"):
        for name, (kind, values) in VALUES.items():
            nested = pa.struct([("v", kind), ("l", pa.list_(kind))])
            schema = pa.schema([("id", pa.int64()), ("v", kind), ("n", nested)])
            rows = pa.table(
                {
                    "id": [1, 2, 3],
                    "v": [*values, None],
                    "n": [{"v": values[0], "l": values}, {"v": None, "l": [None]}, None],
                },
                schema=schema,
            )
            by = [] if kind in (pa.float32(), pa.float64()) else ["v"]
            t = inlay.create(f"file://{root}/{name}-{format}", schema, partition_by=by)
            t.append(rows)
            t.publish(format=format)
            pointer = json.loads((root / f"{name}-{format}" / "metadata/latest.json").read_text())
            expected = t.scan().to_arrow().sort_by("id")
            found.append((name, format, expected, pointer["metadata-location"]))
    return found


def _as_read(got: pa.Table | Refused, expected: pa.Table) -> str:
    """What an engine makes of a type: in a column, and within a struct and a list."""
    if isinstance(got, Refused):
        return "refuses"
    got = got.sort_by("id")

    def is_equal(column: str) -> bool:
        try:
            return as_multiset(got.select([column])) == as_multiset(expected.select([column]))
        except UnicodeDecodeError:
            return False

    return ("equal" if is_equal("n") else "not nested") if is_equal("v") else "differs"


@pytest.mark.parametrize("engine", [*ENGINES, *OTHERS])
def test_every_published_type_reads_as_the_page_says(
    engine: str,
    tables: list[Place],
    engines_python: Path,
    read_all: Callable[[str, Sequence[str]], list[pa.Table | Refused]],
) -> None:
    """The table of types by engines in docs/INTEROP.md."""
    if engine in OTHERS:
        need(engines_python, engine)
    read: dict[str, dict[str, str]] = {}
    found = read_all(engine, [location for *_, location in tables])
    for (name, format, expected, _), got in zip(tables, found, strict=True):
        read.setdefault(name, {})[format] = _as_read(got, expected)
    cells = {
        name: by["v3"] if by["v3"] == by["v2"] else f"v3 {by['v3']}, v2 {by['v2']}"
        for name, by in read.items()
    }
    if engine in ENGINES:
        assert set(cells.values()) == {"equal"}
    assert cells == _of_the_page(engine, cells)


def _of_the_page(engine: str, types: Iterable[str]) -> dict[str, str]:
    """What the page says of an engine: of types that it names, and of the others."""
    block = PAGE.read_text().split("<!-- types -->")[1].split("<!-- /types -->")[0]
    for line in block.strip().splitlines()[2:]:
        engines, others, named = (cell.strip() for cell in line.strip("|").split("|"))
        if engine in engines.lower().split(", "):
            verdict, _, names = named.partition(": ")
            return {name: verdict if name in names.split(", ") else others for name in types}
    raise AssertionError(f"the page says nothing of {engine}")


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_engine_would_misread_is_refused_by_column(name: str, tmp_path: Path) -> None:
    inside = pa.struct([(name, pa.list_(REFUSED[name]))])
    schema = pa.schema([("id", pa.int64()), ("outer", inside)])
    t = inlay.create(f"file://{tmp_path}/t", schema)
    with pytest.raises(Unpublishable, match=rf"'outer\.{name}\.element'"):
        t.publish()


def test_a_column_named_like_a_metadata_column_is_refused(tmp_path: Path) -> None:
    """DataFusion gives the path of the file instead; Iceberg Java refuses the table."""
    t = inlay.create(
        f"file://{tmp_path}/t", pa.schema([("id", pa.int64()), ("_File", pa.string())])
    )
    with pytest.raises(Unpublishable, match=r"'_File' has the name of a metadata column"):
        t.publish()
    t.alter(rename={"_File": "file"})
    assert t.publish().published


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_engines_change_is_refused(name: str, tmp_path: Path) -> None:
    """DuckDB numbers columns without a name; Polars cuts a name at NUL, DuckDB refuses it in structs."""
    inner = pa.struct([(name, pa.int32())])
    t = inlay.create(f"file://{tmp_path}/t", pa.schema([("id", pa.int64()), ("z", inner)]))
    with pytest.raises(Unpublishable, match="has a name that engines change"):
        t.publish()


@pytest.mark.parametrize("default", [float("nan"), float("inf")])
def test_a_default_that_json_lacks_is_refused(default: float, tmp_path: Path) -> None:
    """DuckDB and iceberg-rust could not read the metadata at all."""
    t = inlay.create(f"file://{tmp_path}/t", pa.schema([("id", pa.int64())]))
    t.alter(add={"x": pa.float64()}, defaults={"x": default})
    with pytest.raises(Unpublishable, match=r"'x' has the default .*, which JSON lacks"):
        t.publish()


def test_files_in_other_units_or_of_types_before_are_written_again(
    tmp_path: Path, read_all: Callable[[str, Sequence[str]], list[pa.Table | Refused]]
) -> None:
    """Iceberg Java takes milliseconds for microseconds; fixed bytes, scales and dates that were widened are
    no evolution that Iceberg has."""
    was = pa.schema(
        [
            *(("id", pa.int64()), ("at", pa.timestamp("ms")), ("price", pa.decimal128(9, 2))),
            *(("day", pa.date32()), ("code", pa.binary(3)), ("n", pa.int32())),
        ]
    )
    now = {
        *(("price", pa.decimal128(12, 4)), ("day", pa.timestamp("us"))),
        *(("code", pa.binary()), ("n", pa.int64())),
    }
    values = [*([1], [EARLY], [Decimal("1.25")], [date(2024, 2, 29)], [b"abc"], [7])]
    rows = pa.table(dict(zip(was.names, values, strict=True)), schema=was)
    t = inlay.create(f"file://{tmp_path}/t", was)
    t.append(rows)
    with pytest.raises(Unpublishable, match=r"'at' .* widen it to timestamp\(us\)"):
        t.publish()
    t.alter(widen={"at": pa.timestamp("us")})
    assert t.publish().settled == 1
    pq.write_table(rows, tmp_path / "landed.parquet")
    t.ingest([f"file://{tmp_path}/landed.parquet"])
    assert t.publish().settled == 1
    t.alter(widen=dict(now))
    assert t.publish().settled == 2, "published before, as the types that they had"
    assert t.publish(rebuild=True).settled == 0
    t.alter(add={"x": pa.int32()})
    assert t.publish().settled == 0
    expected = str(t.refresh().scan().to_arrow().to_pylist())
    pointer = json.loads((tmp_path / "t" / "metadata" / "latest.json").read_text())
    for engine in ENGINES:
        [got] = read_all(engine, [pointer["metadata-location"]])
        assert not isinstance(got, Refused), (engine, got)
        assert str(got.to_pylist()) == expected, engine

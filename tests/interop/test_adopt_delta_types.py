"""Delta tables whose files store a column in another type than the table's, adopted: what Delta's readers
cast is written again with the same values, and what they differ in is refused."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.delta.log import Replay, cast_by_readers
from inlay.errors import CorruptTable, SchemaMismatch, UnsupportedTable
from inlay.format.schema import Primitive
from inlay.format.values import integer_range

from .conftest import Refused, as_multiset
from .test_adopt_delta import PLAIN, Delta, Read, adopt, fields, with_id

OTHERS = Path(__file__).parents[3] / "shared" / "data" / "delta"


def column(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


@pytest.mark.parametrize(
    "name",
    [
        "issue_1374",
        "http_requests",
        "type-widening",
        "cdf-column-mapping-id-mode",
        "cdf-table-with-dv",
    ],
)
def test_tables_that_other_projects_keep_are_equal_to_their_readers(
    tmp_path: Path, read_all: Read, name: str
) -> None:
    if not (OTHERS / name).exists():
        pytest.skip(f"{OTHERS} is not here")
    source = Path(shutil.copytree(OTHERS / name, tmp_path / name))
    made = adopt(source, tmp_path / "in", copy=True)
    ours = as_multiset(made.scan().to_arrow())
    agree = 0
    for engine in ("deltalake", "duckdb_delta"):
        [their] = read_all(engine, [str(source)])
        if isinstance(their, Refused):
            continue
        assert ours == as_multiset(their), engine
        agree += 1
    assert agree and not made.maintain.verify().findings


def test_instants_without_a_zone_are_utc(tmp_path: Path, read_all: Read) -> None:
    """In columns, structs, lists and maps; a file of today beside them."""
    of = {"elementType": "timestamp", "containsNull": True}
    schema = struct(
        column("id", "long"),
        column("t", "timestamp"),
        column("x", {"type": "array", **of}),
        column("z", struct(column("u", "timestamp"))),
    )
    delta = Delta(tmp_path / "t", schema)
    times = [datetime(2024, 3, 31, 2, 30, 0, 7), datetime(1950, 1, 1), None]

    def rows(first: int, at: pa.DataType) -> pa.Table:
        return pa.table(
            {
                "id": range(first, first + 3),
                "t": pa.array(times, at),
                "x": pa.array([[t, None] for t in times], pa.list_(at)),
                "z": pa.array([{"u": t} for t in times[1:]] + [None], pa.struct([("u", at)])),
            }
        )

    delta.commit({"add": delta.add("old.parquet", rows(0, pa.timestamp("us")))})
    milli = rows(6, pa.timestamp("us")).cast(rows(6, pa.timestamp("ms")).schema, safe=False)
    delta.commit({"add": delta.add("milli.parquet", milli)})
    delta.commit({"add": delta.add("new.parquet", rows(3, pa.timestamp("us", "UTC")))})
    with pytest.raises(UnsupportedTable, match=r"'t' as timestamp\(us\), 'x.element' as") as no:
        adopt(tmp_path / "t", tmp_path / "in")
    assert "copy" in no.value.next_step and not inlay.exists(tmp_path / "in")
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    [their] = read_all("deltalake", [str(tmp_path / "t")])
    assert not isinstance(their, Refused), their
    assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
    instant = made.scan(where="id = 0").to_arrow()["t"].to_pylist()[0]
    assert instant.astimezone(UTC) == datetime(2024, 3, 31, 2, 30, 0, 7, UTC)


@pytest.mark.parametrize("stored", ["int8", "int16", "int32", "int64"])
def test_a_cast_by_readers_keeps_each_value(tmp_path: Path, stored: str) -> None:
    """Every type that a column of whole numbers may be widened to, with its least and greatest value."""
    source = Primitive(stored)
    kinds = [
        Primitive("double"),
        *(Primitive("decimal", p, s) for p in range(1, 39) for s in (0, 2)),
    ]
    targets = [k for k in kinds if k.scale <= k.precision and cast_by_readers(source, k)]
    assert len(targets) > 10
    names = {f"c{n}": kind for n, kind in enumerate(targets)}
    spelled = [
        column(name, "double" if k.name == "double" else f"decimal({k.precision},{k.scale})")
        for name, k in names.items()
    ]
    delta = Delta(tmp_path / "t", struct(*spelled))
    limits = integer_range(source)
    assert limits is not None
    values = [*limits, 0, None]
    arrow = pa.array(values, getattr(pa, stored)())
    rows = pa.table(dict.fromkeys(names, arrow))
    delta.commit({"add": {**delta.add("f.parquet", rows), "stats": None}})
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    found = made.scan().to_arrow()
    for name, kind in names.items():
        as_kind = float if kind.name == "double" else Decimal
        assert found[name].to_pylist() == [None if v is None else as_kind(v) for v in values], kind
        assert made.count(where=f"{name} = {limits[1]}") == 1


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("double", pa.int64()),  # beyond 2^53 a double rounds
        ("float", pa.int32()),
        ("decimal(9,0)", pa.int32()),
        ("decimal(3,1)", pa.int8()),
        ("long", pa.float64()),
        ("timestamp", pa.timestamp("ns")),
        ("timestamp_ntz", pa.timestamp("us", "UTC")),
    ],
)
@pytest.mark.parametrize("copy", [False, True])
def test_a_cast_that_may_lose_something_is_refused(
    tmp_path: Path, kind: str, arrow: pa.DataType, copy: bool
) -> None:
    delta = Delta(tmp_path / "t", fields(("x", kind, None, None)))
    rows = pa.table({"x": pa.array([1], pa.int64()).cast(arrow)})
    delta.commit({"add": delta.add("f.parquet", rows)})
    if arrow == pa.timestamp("ns"):
        path = tmp_path / "t" / "f.parquet"
        pq.write_table(rows, path, version="2.6")
    with pytest.raises(SchemaMismatch, match="'x' is") as no:
        adopt(tmp_path / "t", tmp_path / "in", copy=copy)
    assert no.value.next_step.startswith("Nothing was changed. Have an engine")
    assert not inlay.exists(tmp_path / "in")


def test_instants_of_an_old_writer_without_a_zone_are_refused(tmp_path: Path) -> None:
    """Its newer versions shift them, when they read the file as instants."""
    delta = Delta(tmp_path / "t", fields(("x", "timestamp", None, None)))
    rows = pa.table({"x": pa.array([datetime(1850, 1, 1)], pa.timestamp("us"))})
    old = rows.replace_schema_metadata(
        {"org.apache.spark.version": "3.1.0", "org.apache.spark.legacyDateTime": ""}
    )
    delta.commit({"add": delta.add("f.parquet", old)})
    with pytest.raises(SchemaMismatch, match="'x' is"):
        adopt(tmp_path / "t", tmp_path / "in", copy=True)


def test_a_cast_with_deleted_rows_and_a_partition(tmp_path: Path) -> None:
    schema = fields(("x", "double", None, None), ("p", "string", None, None))
    delta = Delta(tmp_path / "t", schema, partitionColumns=["p"])
    add = delta.add("p=a/f.parquet", pa.table({"x": pa.array([1, 2, 3], pa.int32())}))
    vector = delta.vector("u", [1])
    delta.commit({"add": {**add, "partitionValues": {"p": "a"}, "deletionVector": vector}})
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    assert made.scan().to_arrow().to_pylist() == [{"x": 1.0, "p": "a"}, {"x": 3.0, "p": "a"}]


@pytest.mark.parametrize("name", ["_change_type", "other"])
def test_only_the_column_of_change_data_has_no_id(tmp_path: Path, name: str) -> None:
    options = {"delta.columnMapping.mode": "id"}
    delta = Delta(tmp_path / "t", fields(("id", "long", 1, "c1")), configuration=options)
    kinds = pa.schema([with_id("c1", pa.int64(), 1), pa.field(name, pa.string())])
    delta.commit({"add": delta.add("f.parquet", pa.table([[1], [None]], schema=kinds))})
    if name == "_change_type":
        made = adopt(tmp_path / "t", tmp_path / "in")
        assert made.scan().to_arrow().to_pylist() == [{"id": 1}]
    else:
        with pytest.raises(UnsupportedTable, match="some have none"):
            adopt(tmp_path / "t", tmp_path / "in")


BROKEN = {"storageType": "u", "pathOrInlineDv": "?", "sizeInBytes": 1, "cardinality": 1}


def test_what_a_removed_files_action_says_does_not_matter(tmp_path: Path) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    add = delta.add("f.parquet", pa.table({"id": [1], "s": ["a"]}))
    delta.commit({"add": {**add, "deletionVector": BROKEN}})
    delta.commit({"remove": {"path": "f.parquet", "deletionVector": BROKEN}}, {"add": add})
    made = adopt(tmp_path / "t", tmp_path / "in")
    assert made.scan().to_arrow().to_pylist() == [{"id": 1, "s": "a"}]


@pytest.mark.parametrize("wrong", [{"deletionVector": BROKEN}, {"size": "x"}, {"size": -1}])
def test_an_action_that_cannot_be_read_is_named_by_its_commit(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    delta.commit({"add": delta.add("a.parquet", pa.table({"id": [1], "s": ["a"]}))})
    add = delta.add("f.parquet", pa.table({"id": [1], "s": ["a"]}))
    delta.commit({"add": {**add, **wrong}})
    delta.commit({"add": delta.add("b.parquet", pa.table({"id": [1], "s": ["a"]}))})
    with pytest.raises(CorruptTable, match=r"0{19}2\.json"):
        adopt(tmp_path / "t", tmp_path / "in")


def test_an_action_without_a_name_is_named_by_its_commit() -> None:
    replay = Replay()
    with pytest.raises(CorruptTable, match=r"0{19}7\.json"):
        replay.commit([{"add": {"size": 1}}], "00000000000000000007.json")


# -- required, and stored as optional -------------------------------------------------------------

_INNER = pa.struct([("a", pa.int64())])
REQUIRED = {
    "struct": (struct(column("a", "long")), _INNER, {"a": None}),
    "struct in a struct": (
        struct(column("b", struct(column("a", "long")), nullable=False)),
        pa.struct([("b", _INNER)]),
        {"b": {"a": None}},
    ),
    "list": (
        {"type": "array", "elementType": "long", "containsNull": True},
        pa.list_(pa.int64()),
        [None],
    ),
    "element": (
        {"type": "array", "elementType": "long", "containsNull": False},
        pa.list_(pa.int64()),
        [1],
    ),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
        pa.map_(pa.string(), pa.int64()),
        [("k", 1)],
    ),
}


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("what", REQUIRED)
def test_a_required_nested_column_may_be_stored_as_optional_without_nulls(
    tmp_path: Path, what: str, copy: bool
) -> None:
    kind, arrow, value = REQUIRED[what]
    schema = struct(column("id", "long", nullable=False), column("n", kind, nullable=False))
    delta = Delta(tmp_path / "t", json.loads(json.dumps(schema)))
    rows = pa.table({"id": [1, 2], "n": pa.array([value, value], arrow)})
    delta.commit({"add": delta.add("f.parquet", rows)})
    made = adopt(tmp_path / "t", tmp_path / "in", copy=copy)
    found = made.scan()
    assert found.to_arrow().to_pylist() == rows.to_pylist()
    assert not found.schema.field("n").nullable and not made.maintain.verify().findings


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("struct", None),
        ("struct in a struct", {"b": None}),
        ("list", None),
        ("element", [None]),
        ("element", None),
        ("map", [("k", None)]),
    ],
)
def test_a_required_nested_column_with_a_null_is_refused(
    tmp_path: Path, what: str, value: Any, copy: bool
) -> None:
    kind, arrow, good = REQUIRED[what]
    schema = struct(column("n", kind, nullable=False))
    delta = Delta(tmp_path / "t", json.loads(json.dumps(schema)))
    rows = pa.table({"n": pa.array([good] * 5 + [value], arrow)})
    delta.commit({"add": delta.add("f.parquet", rows)})
    with pytest.raises(SchemaMismatch, match=r"'n.*null") as refused:
        adopt(tmp_path / "t", tmp_path / "in", copy=copy)
    assert "f.parquet" in str(refused.value) and not inlay.exists(tmp_path / "in")

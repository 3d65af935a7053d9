"""Delta tables of other writers, adopted in place: a scan equals what their own readers return."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import uuid
import warnings
from base64 import b85encode
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import inlay
from inlay.delta.log import Replay, choose_files
from inlay.errors import (
    CorruptTable,
    InlayError,
    InvalidRequest,
    NotGranted,
    UnsupportedFile,
    UnsupportedTable,
)
from inlay.format.puffin import encode_vector
from inlay.table import Table

from .conftest import Refused, as_multiset

WRITER = Path(__file__).with_name("write_by_deltalake.py")
Read = Callable[[str, Sequence[str]], list[pa.Table | Refused]]
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def adopt(source: Path | str, into: Path | str, **options: Any) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return inlay.adopt(source, into, **options)


def z85(data: bytes) -> str:
    return b85encode(data + bytes(-len(data) % 4)).translate(bytes.maketrans(_B85, _Z85)).decode()


class Delta:
    """A Delta log written by hand in `root`."""

    def __init__(self, root: Path, schema: Any = None, **metadata: Any) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.version = -1
        if self.log.exists():
            self.version = max(int(p.stem) for p in self.log.glob("*.json") if p.stem.isdecimal())
            return
        self.log.mkdir(parents=True)
        self.commit(
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors", "columnMapping"],
                    "writerFeatures": ["deletionVectors", "columnMapping"],
                }
            },
            {
                "metaData": {
                    "id": "00000000-0000-4000-8000-000000000001",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": [],
                    "configuration": {},
                    "createdTime": 0,
                    **metadata,
                }
            },
        )

    def commit(self, *actions: Any) -> None:
        self.version += 1
        text = "\n".join(json.dumps(a) for a in actions)
        (self.log / f"{self.version:020}.json").write_text(text + "\n")

    def add(self, name: str, rows: pa.Table, **more: Any) -> dict[str, Any]:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path)
        return {
            "path": name.replace("%", "%25").replace(" ", "%20"),
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            **more,
        }

    def live(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for path in sorted(self.log.glob("*.json")):
            if not path.stem.isdecimal():
                continue
            for line in path.read_text().splitlines():
                action = json.loads(line)
                for kind in ("remove", "add"):
                    if kind in action:
                        name = action[kind]["path"], json.dumps(action[kind].get("deletionVector"))
                        found.pop(name, None)
                        if kind == "add":
                            found[name] = action[kind]
        return list(found.values())

    def vector(self, kind: str, positions: Sequence[int], offset: int = 1) -> dict[str, Any]:
        """A deletion vector stored in one of the three ways."""
        blob = encode_vector(BitMap64(positions))
        body = blob[4:-4]
        found: dict[str, Any] = {
            "storageType": kind,
            "sizeInBytes": len(body),
            "cardinality": len(positions),
        }
        if kind == "i":
            return {**found, "pathOrInlineDv": z85(body)}
        name = uuid.uuid4()
        prefix = "ab" if kind == "u" else ""
        path = self.root / prefix / f"deletion_vector_{name}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\x01" + bytes(offset - 1) + blob)
        where = prefix + z85(name.bytes) if kind == "u" else path.as_uri()
        return {**found, "pathOrInlineDv": where, "offset": offset}


def fields(*listed: tuple[str, str, int | None, str | None]) -> Any:
    """A schema of (name, type, id, name in files)."""
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": kind,
                "nullable": True,
                "metadata": {}
                if number is None
                else {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": physical,
                },
            }
            for name, kind, number, physical in listed
        ],
    }


PLAIN = fields(("id", "long", None, None), ("s", "string", None, None))


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": list(range(first, last)), "s": [str(i) for i in range(first, last)]})


@pytest.fixture(scope="module")
def tables(engines_python: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Histories by deltalake: where the tables are, and what happened."""
    folder = tmp_path_factory.mktemp("source")
    done = subprocess.run(
        [engines_python, WRITER, folder, *map(str, range(16))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_histories_by_deltalake_are_equal_to_their_own_readers(
    tables: list[dict[str, Any]], tmp_path: Path, read_all: Read
) -> None:
    theirs = {e: read_all(e, [t["root"] for t in tables]) for e in ("deltalake", "duckdb_delta")}
    compared = dict.fromkeys(theirs, 0)
    empty_texts = 0  # as partition values: deltalake reads them as such, the protocol as NULL
    for n, table in enumerate(tables):
        partitioned = n % 4 == 3
        try:
            adopted = adopt(table["root"], tmp_path / f"in{n}", copy=n % 4 == 0)
        except UnsupportedTable as error:
            assert partitioned and "type string" in str(error), table["log"]
            empty_texts += 1
            continue
        assert bool(adopted.partitioning) == partitioned
        ours = as_multiset(adopted.scan().to_arrow())
        assert not adopted.maintain.verify().findings, table["log"]
        for engine, found in theirs.items():
            their = found[n]
            assert not isinstance(their, Refused), (engine, table["log"], their)
            assert ours == as_multiset(their), (engine, table["log"])
            compared[engine] += 1
    assert compared == dict.fromkeys(theirs, 16 - empty_texts) and empty_texts < 3


def test_vectors_of_every_kind_are_equal_to_duckdbs(
    tables: list[dict[str, Any]], tmp_path: Path, read_all: Read
) -> None:
    roots = []
    for n in range(3):
        root = tmp_path / f"t{n}"
        pick = random.Random(n)
        if n == 0:
            delta = Delta(root, PLAIN)
            delta.commit(
                *({"add": delta.add(f"f{k}.parquet", rows(k * 50, k * 50 + 50))} for k in range(5))
            )
        else:
            shutil.copytree(tables[n]["root"], root)
            delta = Delta(root)
            delta.commit(
                {
                    "protocol": {
                        "minReaderVersion": 3,
                        "minWriterVersion": 7,
                        "readerFeatures": ["deletionVectors", "timestampNtz"],
                        "writerFeatures": ["deletionVectors", "timestampNtz"],
                    }
                }
            )
        for _ in range(2):  # a second vector takes the place of the first
            actions: list[Any] = []
            for add in delta.live():
                count = pq.read_metadata(root / add["path"]).num_rows
                before = {k: add[k] for k in ("path", "deletionVector") if k in add}
                vector = delta.vector(
                    pick.choice("iup"),
                    sorted(pick.sample(range(count), pick.randint(1, count))),
                    pick.choice([1, 9]),
                )
                actions += [
                    {"remove": {**before, "deletionTimestamp": 1, "dataChange": True}},
                    {
                        "add": {
                            **add,
                            "deletionVector": vector,
                            "stats": json.dumps({"numRecords": count}),
                        }
                    },
                ]
            delta.commit(*actions)
        roots.append(str(root))
    for root, their in zip(roots, read_all("duckdb_delta", roots), strict=True):
        assert not isinstance(their, Refused), their
        made = adopt(root, f"{root}-adopted")
        assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
        assert made.inspect.entries()[1]


def test_partition_values_and_vectors_are_written_into_copies(
    tmp_path: Path, read_all: Read
) -> None:
    schema = fields(
        ("p", "date", None, None),
        ("id", "long", None, None),
        ("s", "string", None, None),
        ("q", "timestamp", None, None),
    )
    delta = Delta(tmp_path / "t", schema, partitionColumns=["p", "q"])
    for n, (day, at) in enumerate(
        [
            ("2024-02-03", "2024-01-01T10:00:00.000001Z"),
            (None, "1969-12-31T23:59:59.5Z"),
            ("", None),
        ]
    ):
        add = delta.add(f"p={n}/f.parquet", rows(n * 10, n * 10 + 10))
        vector = {"deletionVector": delta.vector("u", [0, 9])} if n else {}
        delta.commit({"add": {**add, "partitionValues": {"p": day, "q": at}, **vector}})
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    [their] = read_all("duckdb_delta", [str(tmp_path / "t")])
    assert not isinstance(their, Refused), their
    assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
    assert made.partitioning == ("p", "q") and len(made.inspect.entries()[0]) == 3
    assert made.scan(where="p = DATE '2024-02-03'").explain().files_read == 1
    assert not made.maintain.verify().findings
    delta.commit(
        {
            "add": {
                **delta.add("g.parquet", rows(90, 91)),
                "partitionValues": {"p": "2024-02-03", "q": "2024-01-01 10:00:00"},
            }
        }
    )
    with pytest.raises(UnsupportedTable, match="engines read differently"):
        adopt(tmp_path / "t", tmp_path / "again", copy=True)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_equal_to_duckdbs(tmp_path: Path, read_all: Read, mode: str) -> None:
    """Renamed, dropped and added again: `b` is now the old column `c`, and another than it was."""
    root = tmp_path / "t"
    first = fields(("a", "long", 1, "col-1"), ("b", "string", 2, "b"), ("c", "string", 3, "col-3"))
    options = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
    delta = Delta(root, first, configuration=options)
    names = ["col-1", "b", "col-3"]
    schema = pa.schema(
        [
            pa.field(name, pa.int64() if n == 0 else pa.string()).with_metadata(
                {"PARQUET:field_id": str(n + 1)}
            )
            for n, name in enumerate(names)
        ]
    )
    values = [[1, 2, 3], ["x", "y", None], ["p", "q", "r"]]
    delta.commit({"add": delta.add("one file%.parquet", pa.table(values, schema=schema))})
    now = fields(("b", "string", 3, "col-3"), ("a2", "long", 1, "col-1"), ("d", "long", 4, "col-4"))
    delta.commit(
        {
            "metaData": {
                "id": "00000000-0000-4000-8000-000000000001",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(now),
                "partitionColumns": [],
                "configuration": options,
                "createdTime": 0,
            }
        }
    )
    made = adopt(root, tmp_path / "in")
    assert [(f.id, f.name) for f in made.snapshot.schema.fields] == [(3, "b"), (1, "a2"), (4, "d")]
    [their] = read_all("duckdb_delta", [str(root)])
    assert not isinstance(their, Refused), their
    assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
    assert made.scan(where="b = 'q'").to_arrow()["a2"].to_pylist() == [2]


@pytest.mark.parametrize(
    "kind", ["parts", "uuid json", "uuid parquet", "sidecars in a classic one"]
)
def test_a_checkpoint_is_the_log_before_it(tmp_path: Path, read_all: Read, kind: str) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    if kind != "parts":
        known = ["deletionVectors", "columnMapping", "v2Checkpoint"]
        delta.commit(_protocol(readerFeatures=known, writerFeatures=known))
    for n in range(4):
        vector = {"deletionVector": delta.vector("iup"[n % 3], [n, 5])} if n else {}
        delta.commit({"add": delta.add(f"f{n}.parquet", rows(n * 10, n * 10 + 10), **vector)})
    before = adopt(tmp_path / "t", tmp_path / "a")
    names = sorted(delta.log.glob("*.json"))
    actions = [json.loads(line) for name in names for line in name.read_text().splitlines()]
    strings = pa.map_(pa.string(), pa.string())
    kinds = pa.schema(
        [
            (
                "protocol",
                pa.struct(
                    [
                        ("minReaderVersion", pa.int32()),
                        ("minWriterVersion", pa.int32()),
                        ("readerFeatures", pa.list_(pa.string())),
                        ("writerFeatures", pa.list_(pa.string())),
                    ]
                ),
            ),
            (
                "metaData",
                pa.struct(
                    [
                        ("id", pa.string()),
                        ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
                        ("schemaString", pa.string()),
                        ("partitionColumns", pa.list_(pa.string())),
                        ("configuration", strings),
                        ("createdTime", pa.int64()),
                    ]
                ),
            ),
            (
                "add",
                pa.struct(
                    [
                        ("path", pa.string()),
                        ("partitionValues", strings),
                        ("size", pa.int64()),
                        ("modificationTime", pa.int64()),
                        ("dataChange", pa.bool_()),
                        (
                            "deletionVector",
                            pa.struct(
                                [
                                    ("storageType", pa.string()),
                                    ("pathOrInlineDv", pa.string()),
                                    ("offset", pa.int32()),
                                    ("sizeInBytes", pa.int32()),
                                    ("cardinality", pa.int64()),
                                ]
                            ),
                        ),
                    ]
                ),
            ),
        ]
    )
    kinds = kinds.append(
        pa.field(
            "sidecar",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("sizeInBytes", pa.int64()),
                    ("modificationTime", pa.int64()),
                ]
            ),
        )
    ).append(pa.field("checkpointMetadata", pa.struct([("version", pa.int64())])))
    at = f"{delta.version:020}.checkpoint"
    if kind == "parts":
        for part in (1, 2):
            found = pa.Table.from_pylist(actions[part - 1 :: 2], schema=kinds)
            pq.write_table(found, delta.log / f"{at}.{part:010}.{2:010}.parquet")
    else:
        (delta.log / "_sidecars").mkdir()
        top: list[Any] = [{"checkpointMetadata": {"version": delta.version}}]
        top += [a for a in actions if "metaData" in a]
        top += [a for a in actions if "protocol" in a][-1:]
        adds = [a for a in actions if "add" in a]
        for some in (adds[:3], adds[3:]):
            path = delta.log / "_sidecars" / f"{uuid.uuid4()}.parquet"
            pq.write_table(pa.Table.from_pylist(some, schema=kinds), path)
            size = path.stat().st_size
            top.append({"sidecar": {"path": path.name, "sizeInBytes": size, "modificationTime": 0}})
        if kind == "uuid json":
            (delta.log / f"{at}.{uuid.uuid4()}.json").write_text("\n".join(map(json.dumps, top)))
        else:
            infix = f".{uuid.uuid4()}" if kind == "uuid parquet" else ""
            pq.write_table(
                pa.Table.from_pylist(top, schema=kinds), delta.log / f"{at}{infix}.parquet"
            )
    if kind == "parts":
        last = {"version": delta.version, "size": len(actions), "parts": 2}
        (delta.log / "_last_checkpoint").write_text(json.dumps(last))
    for path in names:
        path.unlink()
    delta.commit({"add": delta.add("g.parquet", rows(100, 103))})
    after = adopt(tmp_path / "t", tmp_path / "b")
    assert after.count() == before.count() + 3 == 37
    [their] = read_all("duckdb_delta", [str(tmp_path / "t")])
    assert not isinstance(their, Refused), their
    assert as_multiset(after.scan().to_arrow()) == as_multiset(their)
    next(delta.log.glob(f"{at}*")).unlink()
    with pytest.raises(CorruptTable, match="lacks version 0"):
        adopt(tmp_path / "t", tmp_path / "c")


# -- refused --------------------------------------------------------------------------------------


def _protocol(**members: Any) -> Any:
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **members}}


@pytest.mark.parametrize(
    ("action", "error", "says"),
    [
        (_protocol(readerFeatures=["catalogManaged"]), UnsupportedTable, "catalogManaged"),
        (_protocol(readerFeatures=["variantType"]), UnsupportedTable, "variantType"),
        (_protocol(minReaderVersion=4), UnsupportedTable, "version 4"),
        ({"add": {"path": "../x.parquet", "size": 9}}, UnsupportedTable, "'..'"),
        ({"add": {"path": "%2e%2e/x.parquet", "size": 9}}, UnsupportedTable, "'..'"),
        ({"add": {"path": "file:///etc/passwd", "size": 9}}, NotGranted, "outside its own folder"),
        ({"add": {"path": "s3://b/x.parquet", "size": 9}}, UnsupportedTable, "s3://b"),
        ({"add": {"path": "f.parquet", "size": "x"}}, CorruptTable, "cannot be read"),
        ({"add": {"path": "none.parquet", "size": 9}}, InlayError, "no longer exists"),
        ({"metaData": {"schemaString": "{}"}}, CorruptTable, "cannot be read"),
        ({"metaData": {"schemaString": "[" * 100_000}}, CorruptTable, "cannot be read"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name_and_nothing_is_made(
    tmp_path: Path, action: Any, error: type[InlayError], says: str
) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    delta.commit({"add": delta.add("f.parquet", rows(0, 10))})
    delta.commit(action)
    with pytest.raises(error) as refused:
        adopt(tmp_path / "t", tmp_path / "in")
    assert says in str(refused.value) and refused.value.next_step
    assert "inlay verify" not in refused.value.next_step  # which knows no table of others
    assert not inlay.exists(tmp_path / "in")


@pytest.mark.parametrize(
    "change",
    [
        {"cardinality": 3},
        {"sizeInBytes": 20},
        {"storageType": "x"},
        {"offset": 3},
        {"pathOrInlineDv": "ab"},
    ],
)
def test_a_damaged_vector_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    vector = {**delta.vector("u", [1, 2]), **change}
    delta.commit({"add": delta.add("f.parquet", rows(0, 10), deletionVector=vector)})
    with pytest.raises(InlayError):
        adopt(tmp_path / "t", tmp_path / "in")
    assert not inlay.exists(tmp_path / "in")


def test_a_vector_beyond_its_file_is_refused(tmp_path: Path) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    vector = delta.vector("i", [10])
    delta.commit({"add": delta.add("f.parquet", rows(0, 10), deletionVector=vector)})
    with pytest.raises(CorruptTable, match="beyond the end"):
        adopt(tmp_path / "t", tmp_path / "in")


INSTANTS = (
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 2, 29, 1, 2, 3, 456_789),
    datetime(1960, 1, 1, 13, 0, 0, 1),
    datetime(1900, 1, 2),
    None,
)


def int96_table(root: Path, *, vector: bool = False) -> Delta:
    """Instants in a column and nested, as Spark stores them by default; beside them a file of today."""
    schema = json.loads(
        json.dumps(fields(("id", "long", None, None), ("t", "timestamp", None, None)))
    )
    nested = [("x", {"type": "array", "elementType": "timestamp", "containsNull": True})]
    inner = {"name": "u", "type": "timestamp", "nullable": True, "metadata": {}}
    nested.append(("z", {"type": "struct", "fields": [inner]}))
    for name, kind in nested:
        field = {"name": name, "type": kind, "nullable": True, "metadata": {}}
        schema["fields"].append(field)
    delta = Delta(root, schema)

    def rows(first: int) -> pa.Table:
        at = pa.timestamp("us", "UTC")
        count = len(INSTANTS)
        return pa.table(
            {
                "id": range(first, first + count),
                "t": pa.array(INSTANTS, at),
                "x": pa.array([None, [], *([v, None] for v in INSTANTS[2:])], pa.list_(at)),
                "z": pa.array([{"u": v} for v in INSTANTS[1:]] + [None], pa.struct([("u", at)])),
            }
        )

    add = delta.add("today.parquet", rows(0))
    old = [delta.add(f"{n}.parquet", rows(10 * n)) for n in (1, 2)]
    for n, each in enumerate(old, 1):
        path = root / f"{n}.parquet"
        pq.write_table(rows(10 * n), path, use_deprecated_int96_timestamps=True, row_group_size=2)
        each["size"] = path.stat().st_size
    if vector:
        old[1]["deletionVector"] = delta.vector("u", [0, 3])
    delta.commit({"add": add}, *({"add": each} for each in old))
    return delta


def test_int96_is_written_again_as_what_deltas_readers_return(
    tmp_path: Path, read_all: Read
) -> None:
    root = tmp_path / "t"
    int96_table(root)
    with pytest.raises(
        UnsupportedTable, match=r"column 't', 'x.element', 'z.u' is stored as INT96"
    ) as no:
        adopt(root, tmp_path / "in")
    assert "copy" in no.value.next_step and not inlay.exists(tmp_path / "in")
    made = adopt(root, tmp_path / "in", copy=True)
    ours = as_multiset(made.scan().to_arrow())
    for engine in ("deltalake", "duckdb_delta"):
        [their] = read_all(engine, [str(root)])
        assert not isinstance(their, Refused), their
        assert ours == as_multiset(their), engine
    assert made.scan(where="t > TIMESTAMP '9000-01-01T00:00:00Z'").to_arrow().num_rows == 3
    assert not made.maintain.verify().findings
    for entry in made.inspect.entries()[0]:
        columns = pq.read_metadata(tmp_path / "in" / entry.key).schema
        assert "INT96" not in {columns.column(n).physical_type for n in range(len(columns))}


def test_int96_with_deleted_rows_is_written_again_without_them(
    tmp_path: Path, read_all: Read
) -> None:
    int96_table(tmp_path / "t", vector=True)
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    [their] = read_all("duckdb_delta", [str(tmp_path / "t")])
    assert not isinstance(their, Refused), their
    assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
    assert made.count() == 3 * len(INSTANTS) - 2


@pytest.mark.parametrize(
    ("nanos", "metadata", "says"),
    [
        (1, {}, "column 't' has an INT96 time with nanoseconds"),
        (
            -(10**18) * 3,
            {"org.apache.spark.version": "3.0.1"},
            "time which the old writer",
        ),
        (
            -(10**18) * 3,
            {"org.apache.spark.legacyINT96": ""},
            "time which the old writer",
        ),
        (-(10**18) * 3, {"org.apache.spark.version": "3.1.0"}, ""),
        (0, {"org.apache.spark.version": "2.4.5"}, ""),
    ],
)
def test_int96_that_does_not_fit_exactly_is_refused(
    tmp_path: Path, nanos: int, metadata: dict[str, str], says: str
) -> None:
    delta = Delta(tmp_path / "t", fields(("t", "timestamp", None, None)))
    rows = pa.table({"t": pa.array([None, nanos], pa.timestamp("ns"))})
    add = delta.add("f.parquet", rows)
    path = tmp_path / "t" / "f.parquet"
    rows = rows.replace_schema_metadata(metadata or None)
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
    delta.commit({"add": {**add, "size": path.stat().st_size}})
    if not says:
        made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
        assert made.scan().to_arrow()["t"].cast(pa.int64()).to_pylist() == [None, nanos // 1_000]
        return
    with pytest.raises(UnsupportedFile, match=says) as refused:
        adopt(tmp_path / "t", tmp_path / "in", copy=True)
    assert "f.parquet" in str(refused.value) and refused.value.next_step
    assert not inlay.exists(tmp_path / "in")


@pytest.mark.parametrize("copy", [False, True])
def test_dates_of_an_old_calendar_are_refused(tmp_path: Path, copy: bool) -> None:
    delta = Delta(tmp_path / "t", fields(("d", "date", None, None)))
    rows = pa.table({"d": pa.array([None, date(1582, 10, 14)])})
    rows = rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    delta.commit({"add": delta.add("f.parquet", rows)})
    with pytest.raises(UnsupportedFile, match="column 'd' has an old date") as refused:
        adopt(tmp_path / "t", tmp_path / "in", copy=copy)
    assert "f.parquet" in str(refused.value) and refused.value.next_step
    assert not inlay.exists(tmp_path / "in")


def test_letters_and_checkpoints_with_a_gap(tmp_path: Path) -> None:
    delta = Delta(tmp_path / "b", PLAIN)
    delta.commit({"add": delta.add("f.parquet", rows(0, 3).rename_columns(["id", "S"]))})
    with pytest.raises(UnsupportedTable, match="other letters"):
        adopt(tmp_path / "b", tmp_path / "in")
    both = Delta(tmp_path / "c", PLAIN)
    found = pa.table({"id": [1], "S": ["a"], "s": ["b"]})
    both.commit({"add": both.add("f.parquet", found)})
    with pytest.raises(UnsupportedTable, match="other letters"):  # DuckDB reads "a", deltalake "b"
        adopt(tmp_path / "c", tmp_path / "in")
    names = [f"{v:020}.json" for v in (0, 1, 3)]
    with pytest.raises(CorruptTable, match="version 2"):
        choose_files(names)
    half = f"{3:020}.checkpoint.{1:010}.{2:010}.parquet"
    whole = f"{2:020}.checkpoint.parquet"
    found = choose_files([*names, half, whole, "_last_checkpoint", "x.crc"])
    assert (found.version, found.checkpoint, found.commits) == (3, (whole,), (names[2],))


# Values of partition columns as the log may spell them: for each type what some writer writes, and what
# only a lenient parser takes.
SPELLED: dict[str, tuple[str, ...]] = {
    "string": ("", 'a%20b/\u00fc \n\t"', "null", "__HIVE_DEFAULT_PARTITION__"),
    "binary": ("", "ab"),
    "integer": ("", "+5", "-0", "1_000", " 5", "\u0661\u0662", "5.0", "99999999999"),
    "byte": ("-128", "200"),
    "long": ("-9223372036854775808", "9223372036854775808"),
    "boolean": ("true", "True", "1", ""),
    "date": ("0001-01-01", "1582-10-10", "20240131", "2024-W05-3", "2024-1-5", "10000-01-01"),
    "float": ("1.1", "-0.0", "NaN", "Infinity", "1_0.5", "1e39", "1.17549435E-38"),
    "double": ("1e-320", "-Infinity", "0x10", "nan", ""),
    "decimal(9,2)": ("-9999999.99", "0.05", "1_0.05", "99999999.99", "NaN", "\u0661.05"),
    "timestamp": ("2024-01-01T00:00:00.123456Z", "1969-12-31 23:59:59.5Z", "2024-01-01 10:61:72Z"),
}


def test_partition_values_are_what_engines_read_or_refused(tmp_path: Path, read_all: Read) -> None:
    """Each in a table of its own; what no engine reads is not read here either."""
    asked = [(kind, text) for kind, texts in SPELLED.items() for text in texts]
    roots = []
    for n, (kind, text) in enumerate(asked):
        schema = fields(("id", "long", None, None), ("p", kind, None, None))
        delta = Delta(tmp_path / f"t{n}", schema, partitionColumns=["p"])
        delta.commit(
            {"add": delta.add("f.parquet", pa.table({"id": [1]}), partitionValues={"p": text})}
        )
        roots.append(str(delta.root))
    theirs = [read_all(engine, roots) for engine in ("deltalake", "duckdb_delta")]
    adopted = 0
    for n, what in enumerate(asked):
        read = [as_multiset(t[n]) for t in theirs if not isinstance(t[n], Refused)]
        try:
            ours = as_multiset(adopt(roots[n], tmp_path / f"in{n}", copy=True).scan().to_arrow())
        except UnsupportedTable as error:
            assert "engines read differently" in str(error), what
            continue
        adopted += 1
        assert read and all(their == ours for their in read), (what, ours, read)
    assert adopted >= 20


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 2},
        _protocol(readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"])[
            "protocol"
        ],
    ],
)
def test_columns_mapped_without_the_protocol_are_refused(tmp_path: Path, protocol: Any) -> None:
    """deltalake reads them by name and DuckDB not at all: here their names are exchanged in the files."""
    schema = fields(("id", "string", 1, "s"), ("s", "string", 2, "id"))
    delta = Delta(tmp_path / "t", schema, configuration={"delta.columnMapping.mode": "name"})
    delta.commit({"protocol": protocol})
    delta.commit({"add": delta.add("f.parquet", pa.table({"id": ["a"], "s": ["b"]}))})
    with pytest.raises(UnsupportedTable, match="its protocol does not") as refused:
        adopt(tmp_path / "t", tmp_path / "in")
    assert refused.value.next_step
    delta.commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
    made = adopt(tmp_path / "t", tmp_path / "in")
    assert made.scan().to_arrow().to_pylist() == [{"id": "b", "s": "a"}]


def test_features_count_in_a_protocol_of_any_version(tmp_path: Path) -> None:
    delta = Delta(tmp_path / "t", PLAIN)
    delta.commit({"add": delta.add("f.parquet", rows(0, 3))})
    delta.commit(
        {
            "protocol": {
                "minReaderVersion": 2,
                "minWriterVersion": 5,
                "readerFeatures": ["variantType"],
            }
        }
    )
    with pytest.raises(UnsupportedTable, match="variantType"):
        adopt(tmp_path / "t", tmp_path / "in")


@pytest.mark.parametrize("order", [("remove", "add"), ("add", "remove")])
def test_a_commit_that_changes_a_file_twice_is_refused(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """Actions of a commit have no order: engines take the one or the other."""
    delta = Delta(tmp_path / "t", PLAIN)
    add = delta.add("a b.parquet", rows(0, 3))
    delta.commit({"add": add})
    delta.commit(*({kind: {**add, "path": "a b.parquet"}} for kind in order))
    with pytest.raises(CorruptTable, match="changes one file twice"):
        adopt(tmp_path / "t", tmp_path / "in")


def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def test_ids_of_dropped_columns_are_given_to_no_other(tmp_path: Path) -> None:
    options = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "7"}
    schema = fields(("id", "long", 1, "c1"), ("l", "string", 2, "l"))
    schema["fields"][1]["type"] = {
        "type": "array",
        "elementType": "integer",
        "containsNull": True,
    }
    delta = Delta(tmp_path / "t", schema, configuration=options)
    kinds = [with_id("c1", pa.int64(), 1), with_id("dropped", pa.string(), 7)]
    delta.commit({"add": delta.add("f.parquet", pa.table([[1], ["a"]], schema=pa.schema(kinds)))})
    made = adopt(tmp_path / "t", tmp_path / "in")
    made.alter(add={"new": pa.string()})
    made = made.refresh()
    ids = {".".join(path): field.id for path, field in made.snapshot.schema.walk()}
    assert ids == {"id": 1, "l": 2, "l.element": 8, "new": 9}
    assert made.scan().to_arrow().to_pylist() == [{"id": 1, "l": None, "new": None}]


def test_mapped_tables_with_dropped_columns_are_published_in_place(
    tmp_path: Path, read_all: Read
) -> None:
    options = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "4"}
    schema = fields(("id", "long", 1, "c1"))
    delta = Delta(tmp_path / "t", schema, configuration=options)
    kinds = [with_id("c1", pa.int64(), 1), with_id("c2", pa.string(), 2), with_id("z", ZED, 3)]
    found = pa.table([[1, 2], ["a", "b"], [{"x": 1}, None]], schema=pa.schema(kinds))
    delta.commit({"add": delta.add("f.parquet", found, deletionVector=delta.vector("u", [1]))})
    made = adopt(tmp_path / "t", tmp_path / "in")
    made.alter(add={"c2": pa.string(), "z": pa.int32()})
    assert made.refresh().publish(format="v3").published
    pointer = json.loads((tmp_path / "in" / "metadata" / "latest.json").read_text())
    for engine in ("duckdb", "pyiceberg", "polars"):
        [their] = read_all(engine, [pointer["metadata-location"]])
        assert not isinstance(their, Refused), (engine, their)
        assert their.to_pylist() == [{"id": 1, "c2": None, "z": None}], engine


ZED = pa.struct([with_id("x", pa.int32(), 4)])


@pytest.mark.parametrize("last", [1_999_999_999, 2_000_000_000, 2**31 - 1])
def test_field_ids_have_an_end(tmp_path: Path, last: int) -> None:
    """Parquet's are 32-bit numbers, and the last ones are not the table's."""
    schema = fields(("id", "long", 1, "c1"), ("s", "string", last, "c2"))
    options = {"delta.columnMapping.mode": "id"}
    delta = Delta(tmp_path / "t", schema, configuration=options)
    kinds = pa.schema([with_id("c1", pa.int64(), 1), with_id("c2", pa.string(), last)])
    delta.commit({"add": delta.add("f.parquet", pa.table([[1], ["a"]], schema=kinds))})
    if last >= 2_000_000_000:
        with pytest.raises(UnsupportedTable, match="last field id") as refused:
            adopt(tmp_path / "t", tmp_path / "in")
        assert refused.value.next_step
        return
    made = adopt(tmp_path / "t", tmp_path / "in", copy=True)
    assert made.publish(format="v3").published  # in memory that its ids do not grow with
    with pytest.raises(InvalidRequest, match="every field id") as spent:
        made.refresh().alter(add={"new": pa.string()})
    assert spent.value.next_step
    assert made.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "s": "a"}]


@pytest.mark.parametrize("copy", [False, True])
def test_structs_without_the_ids_that_other_columns_have_are_refused(
    tmp_path: Path, copy: bool
) -> None:
    """Some engines find them by name, others not at all."""
    schema = fields(("id", "long", 1, "c1"), ("z", "string", 2, "z"))
    schema["fields"][1]["type"] = fields(("x", "integer", 3, "x"))
    options = {"delta.columnMapping.mode": "id"}
    delta = Delta(tmp_path / "t", schema, configuration=options)
    inner = pa.struct([("x", pa.int32())])
    kinds = pa.schema([with_id("c1", pa.int64(), 1), with_id("z", inner, 2)])
    delta.commit({"add": delta.add("f.parquet", pa.table([[1], [{"x": 5}]], schema=kinds))})
    with pytest.raises(UnsupportedTable, match="some have none"):
        adopt(tmp_path / "t", tmp_path / "in", copy=copy)


def test_a_removed_vector_brings_the_rows_back() -> None:
    """A file is named by its path and its vector together."""
    replay = Replay()
    vector = {
        "storageType": "i",
        "pathOrInlineDv": z85(b"1234"),
        "sizeInBytes": 4,
        "cardinality": 1,
    }
    replay.apply({"add": {"path": "a%20b", "size": 1, "deletionVector": vector}})
    replay.apply({"remove": {"path": "a%20b", "deletionVector": vector}})
    replay.apply({"add": {"path": "a b", "size": 1}})
    assert [f.path for f in replay.live()] == ["a b"]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize(
    ("values", "stated", "fits"),
    [
        (["x", "x"], "x", True),
        ([None, None], None, True),
        (["x", "y"], "x", False),
        (["x", None], "x", False),
        (["x", "x"], "y", False),
        (["x", None], None, False),
    ],
)
def test_a_partition_column_that_files_have_too_says_the_same_there_or_is_refused(
    tmp_path: Path,
    read_all: Read,
    values: list[str | None],
    stated: str | None,
    fits: bool,
    statistics: bool,
    copy: bool,
) -> None:
    """Delta's readers return what the log says, without a look at the column."""
    delta = Delta(tmp_path / "t", PLAIN, partitionColumns=["s"])
    found = pa.table({"id": [1, 2], "s": pa.array(values, pa.string())})
    add = delta.add("f.parquet", found, partitionValues={"s": stated})
    path = tmp_path / "t" / "f.parquet"
    pq.write_table(found, path, write_statistics=statistics, row_group_size=1)
    delta.commit({"add": {**add, "size": path.stat().st_size}})
    if not fits:
        with pytest.raises(CorruptTable, match=r"partition .*its table says") as refused:
            adopt(tmp_path / "t", tmp_path / "in", copy=copy)
        assert "f.parquet" in str(refused.value) and refused.value.next_step
        assert not inlay.exists(tmp_path / "in")
        return
    made = adopt(tmp_path / "t", tmp_path / "in", copy=copy)
    [their] = read_all("deltalake", [str(tmp_path / "t")])
    assert not isinstance(their, Refused), their
    assert as_multiset(made.scan().to_arrow()) == as_multiset(their)
    for where in ("s = 'x'", "s IS NULL"):
        kept = [row for row in found.to_pylist() if (row["s"] is None) == ("NULL" in where)]
        assert made.scan(where=where).to_arrow().to_pylist() == kept

"""Folders of Parquet files adopted in place: columns that only folders or metadata have are columns like
any other (docs/FORMAT.md, section 15), whatever happens to the table afterwards."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import (
    CorruptTable,
    InlayError,
    NewerFormat,
    NotAllowed,
    Unpublishable,
    UnsupportedTable,
)
from inlay.format import codec
from inlay.format.entry import DataFile
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import FORMAT_VERSION, PartitionField, PartitionSpec
from inlay.ops.adopt.adopt import adopt as run
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.plan.pruning.partitions import with_partition_values
from inlay.plan.verify import check_partition
from inlay.table import Table

from .conftest import ENGINES
from .test_adopt import _without, adopt
from .test_erasure import SECRET, finish
from .test_erasure_adopted import left, receipt_of

Row = dict[str, Any]
NULL = "__HIVE_DEFAULT_PARTITION__"
REGIONS = ("eu", "us/east", "50%", "a b", "=", "café", None)
YEARS = (2023, 2024, None)


def made_rows(pick: random.Random, count: int, first: int = 0) -> list[Row]:
    return [
        {
            "id": n,
            "name": pick.choice(["ada", "bob", "eve", None]),
            "x": pick.choice([None, pick.randint(-5, 5)]),
            "year": pick.choice(YEARS),
            "region": pick.choice(REGIONS),
        }
        for n in range(first, first + count)
    ]


def as_arrow(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in rows], schema)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("x", pa.int32()),
        ("year", pa.int32()),
        ("region", pa.string()),
    ]
)


def written(folder: Path, rows: list[Row], pick: random.Random) -> Path:
    """A folder as pyarrow writes it, several files for each partition, of several row groups."""
    parts = (rows[n::2] for n in range(2))
    for n, part in enumerate(parts):
        pq.write_to_dataset(
            as_arrow(part, SCHEMA),
            folder,
            partition_cols=["year", "region"],
            basename_template=f"part-{n}-{{i}}.parquet",
            row_group_size=pick.choice([3, 1000]),
        )
    return folder


def files_of(folder: Path, files: Mapping[str, pa.Table]) -> Path:
    for name, table in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name)
    return folder


def rows_of(table: Table) -> list[str]:
    return sorted(str(row) for row in table.scan().to_arrow().to_pylist())


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def supplied(table: Table) -> set[str]:
    """The columns that some live file lacks, as its partition has their values."""
    files, _ = table.inspect.entries()
    recorded = (table.snapshot.schema_by_id(f.schema_id) for f in files)
    return {field.name for schema in recorded for field in schema.in_partition.values()}


STEPS = (
    *("append", "delete", "delete", "update", "upsert", "keyed", "overwrite", "compact", "rewrite"),
    *("rename", "widen", "spec", "ends", "branch", "merge", "restore", "expire"),
)

# -- against a model ------------------------------------------------------------------------------


class Twins:
    """One folder adopted in place and with copy, the same steps on both, and rows in Python beside them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pick = random.Random(seed)
        self.folder = folder
        self.rows = made_rows(self.pick, self.pick.randint(20, 60))
        written(folder / "source", self.rows, self.pick)
        self.before = bytes_of(folder / "source")
        self.tables = [adopt(folder / "source", folder / f"t{n}", copy=bool(n)) for n in range(2)]
        self.names = {n: n for n in SCHEMA.names}  # as they were, and are now
        self.log: list[str] = []
        self.next = 1_000

    def both(self, step: Callable[[Table], Any], what: str) -> None:
        self.log.append(what)
        for table in self.tables:
            table.refresh()
            step(table)

    def name(self, column: str) -> str:
        return self.names[column]

    def condition(self) -> tuple[str, Callable[[Row], bool]]:
        """As text, and of a row. Nothing compares with NULL."""
        year, region, x = (self.name(c) for c in ("year", "region", "x"))
        y, r = self.pick.choice([2022, 2023, 2024]), self.pick.choice(REGIONS[:-1])
        n = self.pick.randint(-5, 5)
        quoted = r.replace("'", "''")
        return self.pick.choice(
            [
                (f"{year} = {y}", lambda row: row["year"] == y),
                (f"{year} IS NULL", lambda row: row["year"] is None),
                (f"{year} >= {y}", lambda row: row["year"] is not None and row["year"] >= y),
                (f"{region} = '{quoted}'", lambda row: row["region"] == r),
                (
                    f"{region} IS NOT NULL AND {x} < {n}",
                    lambda row: row["region"] is not None and row["x"] is not None and row["x"] < n,
                ),
                (
                    f"{year} IN ({y}, 1) OR {x} = {n}",
                    lambda row: row["year"] in (y, 1) or row["x"] == n,
                ),
                (
                    f"upper({region}) = upper('{quoted}')",
                    lambda row: row["region"] is not None and row["region"].upper() == r.upper(),
                ),
                (
                    f"{year} = {y} AND id % 3 = 0",
                    lambda row: row["year"] == y and row["id"] % 3 == 0,
                ),
                (
                    f"NOT ({region} LIKE 'e%')",
                    lambda row: row["region"] is not None and not row["region"].startswith("e"),
                ),
            ]
        )

    def now(self, row: Row) -> Row:
        return {self.names[n]: value for n, value in row.items() if n in self.names}

    def arrow(self, rows: list[Row]) -> pa.Table:
        schema = self.tables[0].refresh().schema
        return as_arrow([self.now(row) for row in rows], schema)

    def step(self) -> None:
        pick = self.pick
        getattr(self, f"do_{pick.choice(STEPS)}")()

    def fresh(self, count: int) -> list[Row]:
        self.next += count
        return made_rows(self.pick, count, self.next - count)

    def do_append(self) -> None:
        rows = self.fresh(self.pick.randint(1, 5))
        self.both(lambda t: t.append(self.arrow(rows)), f"append {rows}")
        self.rows += rows

    def do_delete(self) -> None:
        text, hits = self.condition()
        mode = self.pick.choice(["tombstone", "vector", "surgery", "rewrite"])
        if mode == "tombstone" and ("upper" in text or ("%" in text and "LIKE" not in text)):
            mode = "vector"
        self.both(lambda t: t.delete(text, mode=mode), f"delete {mode} {text}")
        self.rows = [row for row in self.rows if not hits(row)]

    def do_update(self) -> None:
        text, hits = self.condition()
        column, value = self.pick.choice(
            [("year", 2030), ("region", "new"), ("x", 7), ("region", None)]
        )
        made = {self.name(column): inlay.lit(value)}
        self.both(lambda t: t.update(made, where=text), f"update {made} where {text}")
        self.rows = [{**row, column: value} if hits(row) else row for row in self.rows]

    def do_upsert(self) -> None:
        known = self.pick.sample(self.rows, min(3, len(self.rows)))
        rows = [{**self.fresh(1)[0], "id": row["id"]} for row in known] + self.fresh(1)
        self.both(lambda t: t.upsert(self.arrow(rows), on="id"), f"upsert {rows}")
        by_id = {row["id"]: row for row in self.rows} | {row["id"]: row for row in rows}
        self.rows = list(by_id.values())

    def do_keyed(self) -> None:
        """By a key of a column that files have and one that folders have."""
        known = self.pick.sample(self.rows, min(4, len(self.rows)))
        rows = [{**row, "x": 9} for row in known]
        on = ["id", self.name("year")]
        self.both(lambda t: t.upsert(self.arrow(rows), on=on, nulls="equal"), f"upsert {on} {rows}")
        ids = {row["id"] for row in known}
        self.rows = [row for row in self.rows if row["id"] not in ids] + rows

    def do_overwrite(self) -> None:
        year = self.pick.choice(YEARS[:-1])
        rows = [{**row, "year": year} for row in self.fresh(2)]
        where = f"{self.name('year')} = {year}"
        self.both(lambda t: t.overwrite(self.arrow(rows), where=where), f"overwrite {where} {rows}")
        self.rows = [row for row in self.rows if row["year"] != year] + rows

    def do_compact(self) -> None:
        self.both(lambda t: t.maintain.compact(), "compact")

    def do_rewrite(self) -> None:
        strategy = self.pick.choice(["auto", "surgery", "rewrite"])
        self.both(lambda t: t.maintain.rewrite(strategy=strategy), f"rewrite {strategy}")

    def do_rename(self) -> None:
        column = self.pick.choice(["year", "region", "x"])
        old, new = self.names[column], f"{column}{len(self.log)}"
        self.both(lambda t: t.alter(rename={old: new}), f"rename {old} {new}")
        self.names[column] = new

    def do_widen(self) -> None:
        column = self.name(self.pick.choice(["year", "x"]))
        if pa.types.is_int32(self.tables[0].refresh().schema.field(column).type):
            self.both(lambda t: t.alter(widen={column: pa.int64()}), f"widen {column}")

    def do_spec(self) -> None:
        spec = self.pick.choice(
            [[], ["bucket(4, id)"], [self.name("region")], [f"truncate(10, {self.name('year')})"]]
        )
        self.both(lambda t: t.set_partitioning(*spec), f"partition by {spec}")

    def do_ends(self) -> None:
        """A column is dropped, and one of its name is added: it is another one."""
        old = self.name("region")
        if self.pick.random() < 0.5 or "side" in self.tables[0].refresh().snapshot.refs:
            return  # rows of a branch would keep their values in the other one
        try:
            self.both(lambda t: t.alter(drop=[old]), f"drop {old}")
        except InlayError as error:  # of the key, the spec or a marker
            self.log.append(error.message)
            assert self.tables[1].refresh().schema.names.count(old) == 1
            return
        self.both(lambda t: t.alter(add={old: pa.string()}), f"add {old}")
        self.rows = [{**row, "region": None} for row in self.rows]

    def do_branch(self) -> None:
        if "side" not in self.tables[0].refresh().snapshot.refs:
            self.both(lambda t: t.refs.branch("side"), "branch")

    def do_merge(self) -> None:
        if "side" not in self.tables[0].refresh().snapshot.refs:
            return
        rows = self.fresh(1)
        self.both(lambda t: inlay.open(t.uri, ref="side").append(self.arrow(rows)), "on the branch")
        try:
            self.both(lambda t: t.refs.merge("side"), "merge")
        except InlayError as error:
            self.log.append(f"no merge: {error.message}")
            self.both(lambda t: t.refs.drop("side"), "drop the branch")
            return
        self.rows += rows
        self.both(lambda t: t.refs.drop("side"), "drop the branch")

    def do_restore(self) -> None:
        """There and back: what was deleted in between is there again."""
        versions = [t.refresh().version for t in self.tables]
        self.both(lambda t: t.delete("id >= 0"), "delete all")
        for table, version in zip(self.tables, versions, strict=True):
            table.refs.restore(version=version)

    def do_expire(self) -> None:
        self.both(lambda t: t.maintain.expire(days=0), "expire")

    def check(self) -> None:
        expected = sorted(str(self.now(row)) for row in self.rows)
        for n, table in enumerate(self.tables):
            names = list(self.names.values())
            found = table.refresh().scan(columns=names).to_arrow().to_pylist()
            assert sorted(map(str, found)) == expected, (n, self.log)
            assert table.count() == len(self.rows), (n, self.log)
        for _ in range(3):
            text, hits = self.condition()
            wanted = sorted(row["id"] for row in self.rows if hits(row))
            for table in self.tables:
                ids = table.scan(columns=["id"], where=text).to_arrow()["id"].to_pylist()
                assert sorted(ids) == wanted, (text, self.log)
                assert table.count(where=text) == len(wanted), (text, self.log)
        year = self.name("year")
        top = sorted((row["year"] for row in self.rows if row["year"] is not None), reverse=True)[
            :3
        ]
        for table in self.tables:
            found = table.scan(
                columns=[year], order_by=f"{year} DESC", limit=len(top) or 1
            ).to_arrow()
            assert found[year].to_pylist()[: len(top)] == top, self.log


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(n, marks=pytest.mark.wide) for n in range(4, 40))],
)
def test_adopted_in_place_equals_adopted_with_copy(tmp_path: Path, seed: int) -> None:
    twins = Twins(tmp_path, seed)
    assert supplied(twins.tables[0]) == {"year", "region"} and not supplied(twins.tables[1])
    twins.check()
    for _ in range(10):
        twins.step()
        twins.check()
    for table in twins.tables:
        assert not table.maintain.verify(depth="pages").errors, twins.log
        changes = table.changes(table.snapshot.oldest_version).to_arrow()
        assert changes is not None
    # Not a byte of the source changed, and a table elsewhere has the same rows.
    assert bytes_of(tmp_path / "source") == twins.before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, table in enumerate(twins.tables):
            for made in (
                table.copy_to(tmp_path / f"copy{n}"),
                table.clone_to(tmp_path / f"clone{n}"),
            ):
                assert rows_of(made) == rows_of(table), twins.log
                assert not made.maintain.verify(depth="pages").errors, twins.log


def test_the_change_feed_has_the_rows_with_their_values(tmp_path: Path) -> None:
    pick = random.Random(5)
    source = written(tmp_path / "source", made_rows(pick, 30), pick)
    feeds = []
    for copy in (False, True):
        t = adopt(source, tmp_path / f"t{copy}", copy=copy)
        t.delete("year = 2024")
        t.update({"region": "'moved'"}, where="region = 'eu'")
        t.alter(rename={"year": "y"}, widen={"year": pa.int64()})
        t.delete("y IS NULL AND x > 0", mode="vector")
        found = [
            t.changes(0).to_arrow(),
            t.changes(1, columns=["id", "y", "region"]).to_arrow(),
            t.changes(1, where="y IS NULL", net=True).to_arrow(),
        ]
        feeds.append([sorted(map(str, _without_times(each))) for each in found])
    assert feeds[0] == feeds[1] and all(feeds[0])


def _without_times(found: pa.Table) -> list[Row]:
    return found.drop_columns(["_commit_timestamp"]).to_pylist()


def test_statistics_of_such_columns_are_their_values(tmp_path: Path) -> None:
    """Conditions on them read no byte of a file, and counts need none."""
    pick = random.Random(1)
    rows = [row for row in made_rows(pick, 60) if row["year"] is not None]
    t = adopt(written(tmp_path / "source", rows, pick), tmp_path / "t")
    files, _ = t.inspect.entries()
    t = inlay.open(t.uri)
    before = t.usage
    assert t.count(where="year = 2024") == sum(row["year"] == 2024 for row in rows)
    assert t.count(where="year > 2024 OR year < 0") == 0
    assert dict((t.usage - before).requests) == {}
    t.delete("year = 2023")
    assert t.scan().explain().files_read < len(files)
    assert t.count() == sum(row["year"] == 2024 for row in rows)
    assert {f.partition[0] for f in files} == {2023, 2024}


def test_change_streams_and_transactions_reach_such_rows(tmp_path: Path) -> None:
    source = files_of(
        tmp_path / "source",
        {f"year={y}/a.parquet": pa.table({"id": [1, 2], "lsn": [5, 5]}) for y in (2023, 2024)},
    )
    t = adopt(source, tmp_path / "t")
    t.alter(primary_key=["id", "year"])
    other = inlay.create(f"file://{tmp_path}/other", pa.schema([("id", pa.int64())]))
    with inlay.transaction() as tx:
        tx.append(t, pa.table({"id": [9], "lsn": [1], "year": [2030]}, t.schema))
        tx.append(other, pa.table({"id": [1]}))
    # Prepared, and decided: of version 2 for both reasons.
    assert inlay.open(t.uri).count() == 5
    schema = pa.schema([*t.schema, ("op", pa.string())])
    records = [
        {"id": 1, "lsn": 6, "year": 2023, "op": "D"},
        {"id": 1, "lsn": 4, "year": 2024, "op": "D"},  # older than what is there
        {"id": 2, "lsn": 7, "year": 2024, "op": "U"},
        {"id": 3, "lsn": 1, "year": 2024, "op": "I"},
    ]
    t.refresh().apply_changes(
        pa.Table.from_pylist(records, schema), order="lsn", delete_when="op = 'D'"
    )
    found = t.refresh().scan().to_arrow().to_pylist()
    assert sorted((row["year"], row["id"], row["lsn"]) for row in found) == [
        *((2023, 2, 5), (2024, 1, 5), (2024, 2, 7), (2024, 3, 1), (2030, 9, 1))
    ]


def test_metadata_that_lacks_the_value_is_no_table() -> None:
    """Nothing is read as NULL that should have been there."""
    kind = Primitive("int32")
    recorded = Schema(0, (Field(1, "id", kind), Field(2, "p", kind, in_partition=0)))
    with pytest.raises(CorruptTable, match="no value for it"):
        with_partition_values(recorded, recorded, ())
    spec = PartitionSpec(1, (PartitionField(2, "bucket[4]", "p"),))
    entry = DataFile(
        key="k", size=1, footer_size=1, rows=1, row_groups=1, schema_id=0, spec_id=1, partition=(1,)
    )
    assert "column p, which the file lacks" in (check_partition(entry, [spec], [recorded]) or "")
    within = {"id": 3, "name": "s", "type": {"struct": [{"id": 4, "name": "p", "type": "int32"}]}}
    within["type"]["struct"][0]["partition"] = 0  # type: ignore[index]
    with pytest.raises(CorruptTable, match="nested column in a partition"):
        codec.schema_from_json({"id": 0, "fields": [within]})


# -- types, and what engines differ in ------------------------------------------------------------

TYPED = {
    "ints": (["1", "2", NULL], pa.int32()),
    "longs": (["1", "30000000000"], pa.int64()),
    "many digits": (["1", "1" * 30], pa.decimal128(38, 0)),
    "doubles": (["1", "2.5"], pa.float64()),
    "a long beside a double": (["30000000000", "2.5"], pa.string()),
    "dates": (["2024-01-01", NULL], pa.date32()),
    "instants": (["2024-01-01 10%3A00%3A00", "2024-01-02"], pa.timestamp("us", "UTC")),
    "texts": (["eu", "50%25", "a%2Fb"], pa.string()),
    "a text beside numbers": (["1", "x"], pa.string()),
    "only NULL": ([NULL], pa.string()),
}


@pytest.mark.parametrize("name", TYPED)
def test_values_are_typed_over_all_files_as_spark_does(tmp_path: Path, name: str) -> None:
    values, kind = TYPED[name]
    rows = {f"p={v}/{n}.parquet": pa.table({"id": [n]}) for n, v in enumerate(values)}
    source = files_of(tmp_path / "source", rows)
    tables = [adopt(source, tmp_path / f"t{copy}", copy=copy) for copy in (False, True)]
    for t in tables:
        assert t.schema.field("p").type == kind, t.schema
        assert t.count(where="p IS NULL") == values.count(NULL)
        for n, value in enumerate(values):
            found = t.scan(where=f"id = {n}").to_arrow()["p"][0]
            assert found.is_valid == (value != NULL)
            if found.is_valid:
                assert t.scan(where=pc.field("p") == found).to_arrow()["id"].to_pylist() == [n]
    assert rows_of(tables[0]) == rows_of(tables[1])
    assert not tables[0].maintain.verify(depth="pages").findings


@pytest.mark.parametrize(
    ("typed_as", "kind"), [("text", "string"), ("pyarrow", "string"), ("spark", "date32[day]")]
)
def test_the_property_says_how_they_are_typed(tmp_path: Path, typed_as: str, kind: str) -> None:
    source = files_of(tmp_path / "source", {"d=2024-01-01/a.parquet": pa.table({"id": [1]})})
    t = adopt(source, tmp_path / "t", properties={"ingest.folders": typed_as})
    assert str(t.schema.field("d").type) == kind
    assert rows_of(t) and t.properties["ingest.folders"] == typed_as


def test_pyarrow_reads_the_same_of_its_own_folders(tmp_path: Path) -> None:
    pick = random.Random(3)
    source = written(tmp_path / "source", made_rows(pick, 50), pick)
    theirs = ds.dataset(source, partitioning="hive").to_table()
    t = adopt(source, tmp_path / "t", properties={"ingest.folders": "pyarrow"})
    assert t.schema.names == theirs.schema.names and t.schema.types == theirs.schema.types
    assert rows_of(t) == sorted(map(str, theirs.to_pylist()))


def test_columns_of_all_files_come_along_and_the_widest_type_of_each(tmp_path: Path) -> None:
    source = files_of(
        tmp_path / "source",
        {
            "p=1/a.parquet": pa.table({"id": pa.array([1], pa.int32())}),
            "p=2/b.parquet": pa.table({"id": pa.array([2], pa.int64()), "new": ["x"]}),
            "p=2/c.parquet": pa.table({"new": ["y"], "id": pa.array([3], pa.int16())}),
        },
    )
    for copy in (False, True):
        t = adopt(source, tmp_path / f"t{copy}", copy=copy)
        assert rows_of(t) == [
            "{'id': 1, 'new': None, 'p': 1}",
            "{'id': 2, 'new': 'x', 'p': 2}",
            "{'id': 3, 'new': 'y', 'p': 2}",
        ]


def test_a_folder_without_names_is_a_table_of_version_1(tmp_path: Path) -> None:
    source = files_of(
        tmp_path / "source",
        {"a.parquet": pa.table({"id": [1]}), "2024/b.parquet": pa.table({"id": [2]})},
    )
    t = adopt(source, tmp_path / "t")
    assert rows_of(t) == ["{'id': 1}", "{'id': 2}"] and t.partitioning == ()
    assert codec.version_of(t.snapshot.schemas) == FORMAT_VERSION


ID = pa.table({"id": [1]})
REFUSED: dict[str, tuple[dict[str, pa.Table | bytes], str]] = {
    "a file has the column, equal": ({"p=1/a.parquet": pa.table({"p": [1]})}, "column 'p'.* as well"),
    "a file has the column, another value": ({"p=1/a.parquet": pa.table({"p": [2]})}, "as well"),
    "a file has it in other letters": ({"p=1/a.parquet": pa.table({"P": [2]})}, "column 'P'"),
    "folders differ": ({"p=1/a.parquet": ID, "b.parquet": ID}, "name the columns"),
    "other names": ({"p=1/a.parquet": ID, "q=1/b.parquet": ID}, "name the columns"),
    "a name twice": ({"p=1/p=2/a.parquet": ID}, "two folders"),
    "no value": ({"p=/a.parquet": ID}, "without a value"),
    "hidden by some": ({"_p=1/a.parquet": ID}, "begins with _"),
    "another format": ({"p=1/a.parquet": ID, "p=1/b.csv": b"id\n1\n"}, "b.csv"),
    "no Parquet": ({"p=1/a": b"id\n1\n"}, "Parquet"),
    "an upload under way": ({"p=1/a.parquet": ID, "p=1/b.parquet.tmp": b"PAR1"}, "b.parquet.tmp"),
    "a Delta table below": ({"t/_delta_log/0.json": b"{}", "t/a.parquet": ID}, "metadata of"),
    "Iceberg without a hint": ({"metadata/0-a.metadata.json": b"{}", "data/a.parquet": ID}, "metadata of"),
    "a table of Inlay": ({"t/_latest_manifest": b"{}", "t/data/a.parquet": ID}, "metadata of a table"),
    "types that do not meet": ({"a.parquet": ID, "b.parquet": pa.table({"id": ["x"]})}, "column 'id' is"),
    "letters alone": ({"a.parquet": ID, "b.parquet": pa.table({"ID": [1]})}, "case of letters"),
    "nine columns": ({"/".join(f"p{n}=1" for n in range(9)) + "/a.parquet": ID}, "more than 8"),
    "nothing": ({"_SUCCESS": b"x"}, "nothing is at"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
def test_what_engines_read_differently_is_refused_by_name(
    tmp_path: Path, name: str, copy: bool
) -> None:
    files, message = REFUSED[name]
    for path, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "source" / path).write_bytes(content)
        else:
            files_of(tmp_path / "source", {path: content})
    with pytest.raises(InlayError, match=message) as refused:
        adopt(tmp_path / "source", tmp_path / "t", copy=copy)
    assert refused.value.next_step
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("below", ["data", "data/2026", "data/day=1", "day=1", "a=1/b=2"])
@pytest.mark.parametrize(
    "beside",
    ["_latest_manifest", "_delta_log/00000000000000000000.json", "metadata/v1.metadata.json"],
)
def test_the_folder_of_a_tables_data_is_no_table(tmp_path: Path, below: str, beside: str) -> None:
    """Its files have deleted rows and those of older versions; the table's maintenance removes them."""
    rows = pa.table({"id": [1, 2, 3]})
    folder = tmp_path / "t" / below
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "part-0.parquet")
    into = iter(tmp_path / f"into{n}" for n in range(4))
    assert inlay.adopt(str(folder), into=str(next(into))).count() == 3
    (tmp_path / "t" / beside).parent.mkdir(exist_ok=True)
    (tmp_path / "t" / beside).write_text("{}")
    for copy in (False, True):
        with pytest.raises(UnsupportedTable, match="has metadata of a table"):
            inlay.adopt(str(folder), into=str(next(into)), copy=copy)
    assert not next(into).exists()


def test_hidden_and_empty_objects_are_no_files(tmp_path: Path) -> None:
    source = files_of(
        tmp_path / "source",
        {"p=1/a.parquet": ID, "_temporary/p=1/b.parquet": ID, "p=1/.c.parquet": ID},
    )
    (source / "_SUCCESS").write_bytes(b"")
    (source / "p=1" / ".a.parquet.crc").write_bytes(b"crc")
    (source / "p=2_$folder$").write_bytes(b"")
    assert adopt(source, tmp_path / "t").count() == 1


@pytest.mark.parametrize("files", [3, 9])
def test_requests_are_two_for_each_file_and_few_beside(tmp_path: Path, files: int) -> None:
    rows = {f"p={n}/a.parquet": pa.table({"id": [n]}) for n in range(files)}
    files_of(tmp_path / "a", rows)
    ctx = inlay.connect(f"file://{tmp_path}/b")
    before = ctx.store.usage()
    run(ctx, f"file://{tmp_path}/a")
    used = ctx.store.usage() - before
    assert dict(used.requests) == {
        "head": 1,  # is there a table?
        "list": 3,  # archives? A Delta log? The files
        "get": 2 * files + 1,  # footers, for the columns and to look at each; a version hint?
        "put": 2,  # the pointer; once under a condition that cannot hold, to learn that it is kept
    }


# -- the version of the format --------------------------------------------------------------------


def test_libraries_that_know_version_1_only_stop_at_the_pointer(tmp_path: Path) -> None:
    source = files_of(tmp_path / "source", {"p=1/a.parquet": ID})
    t = adopt(source, tmp_path / "t")
    pointer = (tmp_path / "t" / "_latest_manifest").read_bytes()
    with pytest.raises(NewerFormat, match="format version 2; this library reads up to 1"):
        codec.decode_frame("snapshot", pointer, key="_latest_manifest")
    decoded = codec.decode_snapshot(pointer, key="_latest_manifest")
    assert codec.encode_snapshot(decoded) == pointer and decoded == t.snapshot
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        inlay.adopt(source, tmp_path / "u")
    assert any("format version 2" in str(note.message) for note in notes)


def test_a_table_denied_version_2_is_not_made_and_does_not_become_one(tmp_path: Path) -> None:
    source = files_of(tmp_path / "source", {"p=1/a.parquet": ID})
    properties = {"format.max_version": 1}
    with pytest.raises(NotAllowed, match=r"format\.max_version") as refused:
        adopt(source, tmp_path / "t", properties=properties)
    assert "copy" in refused.value.next_step
    assert not (tmp_path / "t").exists()
    assert adopt(source, tmp_path / "t", properties=properties, copy=True).count() == 1
    made = adopt(source, tmp_path / "u")
    with pytest.raises(InlayError, match=r"format\.max_version"):
        made.set_properties(format__max_version=1)
    assert made.refresh().version == 1


def test_when_no_file_needs_it_any_more_a_copy_is_of_version_1(tmp_path: Path) -> None:
    source = files_of(tmp_path / "source", {"p=1/a.parquet": ID, "p=1/b.parquet": ID})
    t = adopt(source, tmp_path / "t")
    assert codec.version_of(t.snapshot.schemas) == 2
    t.maintain.compact()
    assert not supplied(t.refresh())
    made = t.copy_to(tmp_path / "u")
    assert codec.version_of(made.snapshot.schemas) == 1 and rows_of(made) == rows_of(t)


# -- erasure and publishing -----------------------------------------------------------------------


@pytest.mark.parametrize("part", [False, True], ids=["all of a folder", "part of it"])
def test_erased_values_leave_the_table_and_its_receipt_names_the_originals(
    tmp_path: Path, part: bool
) -> None:
    """The value is in paths and in metadata, not in a file."""
    hers = pa.table(
        {"id": list(range(8)), "s": [SECRET if part and n == 3 else "x" for n in range(8)]}
    )
    person = "hers" if part else SECRET
    source = files_of(
        tmp_path / "source", {f"person={person}/a.parquet": hers, "person=bob/a.parquet": ID}
    )
    before = bytes_of(source)
    root = tmp_path / "t"
    t = adopt(source, root)
    first = {f.key for f in t.inspect.entries()[0]}
    t.refs.branch("work").delete("id = 1", mode="vector")
    where = f"s = '{SECRET}' AND person = 'hers'" if part else f"person = '{SECRET}'"
    expected = [row for row in t.scan().to_arrow().to_pylist() if SECRET not in row.values()]
    t.delete(where, mode="erase", request_id="case-1")
    done: Any = None
    for _ in range(4):
        done = finish(t.refresh())
        if done.receipts:
            break
    assert done.receipts, done.waiting
    assert left(root) == []
    found = t.refresh().scan().to_arrow().to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert verify_receipt(t._ctx, "case-1").problems == ()
    look = receipt_of(t, root)["look"]
    live = {f.key for f in t.inspect.entries()[0]}
    assert look["originals_count"] == 1 and len(first - live) == 1
    assert bytes_of(source) == before


def test_files_without_field_ids_are_not_published(tmp_path: Path) -> None:
    source = files_of(tmp_path / "source", {"p=1/a.parquet": ID, "p=1/b.parquet": ID})
    t = adopt(source, tmp_path / "t")
    with pytest.raises(Unpublishable, match="lacks the table's field ids"):
        t.publish()
    t.maintain.compact()
    t.publish()


@pytest.mark.parametrize("format", ["v2", "v3"])
def test_engines_read_such_columns_from_what_is_published(
    tmp_path: Path, read_all: Callable[[str, Sequence[str]], list[Any]], format: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("y", pa.int32())])
    t = inlay.create(f"file://{tmp_path}/a", schema, partition_by=["s", "y"])
    rows = {"id": [1, 2, 3, 4], "s": ["x", "x", "y", None], "y": [1, 1, None, 7]}
    t.append(pa.table(rows, schema))
    t.publish(format=format)
    made = adopt(_without(tmp_path / "a", "s").metadata, tmp_path / "b")
    assert supplied(made) == {"s"}
    made.delete("id = 2", mode="vector")
    made.alter(rename={"s": "t"})
    made.publish(format=format)
    pointer = json.loads((tmp_path / "b" / "metadata" / "latest.json").read_text())
    expected = rows_of(made.refresh())
    for engine in ENGINES:
        [found] = read_all(engine, [pointer["metadata-location"]])
        assert sorted(map(str, found.to_pylist())) == expected, engine
    # The column stays where it is; what a partition means in Iceberg ends with its type.
    made.alter(widen={"y": pa.int64()})
    with pytest.raises(Unpublishable, match="column 't' is only in its partition"):
        made.publish()
    assert made.refresh().count(where="t = 'x'") == 1

"""Settings of a session never change which rows are read, or what is written."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, UnsupportedType
from inlay.spark import InlayTable, append, explain, read, view
from inlay.spark.merge import merge

from .conftest import load

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int32()),
        ("name", pa.string()),
        ("wall", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("real", pa.float64()),
    ]
)
# Each would change what Spark makes of a file, a batch or a plan.
SETTINGS = {
    "the second Parquet reader": {"spark.sql.sources.useV1SourceList": ""},
    "large texts": {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
    "quoted names are patterns": {"spark.sql.parser.quotedRegexColumnNames": "true"},
    "names with case": {"spark.sql.caseSensitive": "true"},
    "fields by id": {"spark.sql.parquet.fieldId.read.enabled": "true"},
    "no vectors": {
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parquet.recordLevelFilter.enabled": "true",
    },
    "no plans that adapt, no ANSI, no compiled code": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
    },
    "another time": {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    },
}


@contextmanager
def having(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def rows(start: int, number: int) -> pa.Table:
    ids = range(start, start + number)
    corners = [float("nan"), -0.0, 0.0, 1.5, None]
    return pa.table(
        {
            "id": ids,
            "small": pa.array([n % 5 for n in ids], pa.int32()),
            "name": [None if n % 7 == 0 else f"name {n % 3}" for n in ids],
            "wall": [dt.datetime(1500 + n, 1, 1, 3) for n in ids],
            "at": [dt.datetime(1500 + n, 1, 1, 3, tzinfo=dt.UTC) for n in ids],
            "real": [corners[n % 5] for n in ids],
        },
        schema=SCHEMA,
    )


def shown(found: pa.Table) -> list[str]:
    """Rows in any order; an instant is the same in each time zone."""
    return sorted(map(str, found.select(SCHEMA.names).cast(SCHEMA).to_pylist()))


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_changes_what_is_read_or_written(
    spark: Any, new_table: NewTable, name: str
) -> None:
    table = new_table(rows(0, 20), primary_key="id")
    table.append(rows(20, 20))
    table.delete("id = 3", mode="vector")
    table.delete(keys=pa.table({"id": [21, 22]}))
    other = new_table(SCHEMA, primary_key="id")
    with having(spark, SETTINGS[name]):
        expected = shown(table.refresh().scan().to_arrow())
        frame = read(spark, table.uri)
        assert shown(frame.toArrow()) == expected
        assert shown(load(spark, table).toArrow()) == expected
        assert read(spark, table.uri, where="real > 1 OR name = 'name 1'").count() == table.count(
            where="real > 1 OR name = 'name 1'"
        )
        view(spark, "as_set", table.uri)
        assert spark.sql("SELECT count(*) FROM as_set").first() == (table.count(),)
        append(frame, other.uri)
        assert shown(other.refresh().scan().to_arrow()) == expected
        changed = InlayTable(spark, other.uri).update({"name": "upper(name)"}, "id < 10")
        assert changed.updated == 9
        upper = other.refresh().scan(where="id < 10").to_arrow().column("name").drop_null()
        assert all(str(text).isupper() for text in upper)


def test_native_files_are_for_the_reader_whose_plan_is_known(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(rows(0, 20))
    with having(spark, SETTINGS["the second Parquet reader"]):
        assert explain(spark, table.uri).why == {"Spark's second Parquet reader": 1}
    assert explain(spark, table.uri).native_files == 1


@pytest.mark.parametrize("rows_of_a_batch", ["0", "-1"])
def test_batches_without_a_limit_are_refused_where_pyspark_has_none(
    spark: Any, new_table: NewTable, rows_of_a_batch: str
) -> None:
    """Spark takes it for no limit, PySpark's reader of Python sources for a mistake."""
    table = new_table(rows(0, 20), primary_key="id")
    with having(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": rows_of_a_batch}):
        other = new_table(SCHEMA)
        assert append(read(spark, table.uri), other.uri).added_rows == 20
        assert append(read(spark, table.uri), other.uri, native="never").added_rows == 20
        assert read(spark, table.uri, where="id > 99").count() == 0
        keyed = new_table(rows(0, 20), primary_key="id")
        keyed.delete(keys=pa.table({"id": range(-200, 4)}))
        with pytest.raises(InvalidRequest, match=r"Python: 1, .*maxRecordsPerBatch=0"):
            read(spark, keyed.uri)
        assert InlayTable(spark, table.uri).delete("id = 3").deleted == 1
        with pytest.raises(InvalidRequest, match=r"Python: 1, .*maxRecordsPerBatch=0") as error:
            read(spark, table.uri)
        assert "to 10000" in str(error.value)
    assert read(spark, table.uri).count() == 19


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("value", ["id * 10000000000", "'seven'"])
def test_a_value_that_does_not_fit_its_column_changes_nothing(
    spark: Any, new_table: NewTable, ansi: str, value: str
) -> None:
    table = new_table(rows(0, 20), primary_key="id")
    before = shown(table.scan().to_arrow())
    with having(spark, {"spark.sql.ansi.enabled": ansi}):
        target = InlayTable(spark, table.uri)
        with pytest.raises(Exception, match="CAST"):
            target.update({"small": value}, "id = 7")
        assert shown(table.refresh().scan().to_arrow()) == before
        assert target.update({"small": "'12'", "name": "id"}, "id = 7").updated == 1
    [row] = table.refresh().scan(where="id = 7").to_arrow().to_pylist()
    assert (row["small"], row["name"]) == (12, "7")


@pytest.mark.parametrize("spelled", ["true", "TRUE"])
def test_a_view_that_would_stand_still_is_refused(
    spark: Any, new_table: NewTable, spelled: str
) -> None:
    table = new_table(rows(0, 3))
    with (
        having(spark, {"spark.sql.legacy.storeAnalyzedPlanForView": spelled}),
        pytest.raises(InvalidRequest, match="would stay at the version"),
    ):
        view(spark, "still", table.uri)


def test_queries_that_are_analysed_at_the_same_time_read_one_version_each(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of a notebook: Spark calls back for one query between two mentions of another."""
    from inlay.spark import table_function
    from inlay.spark.table_function import MAX_QUERIES, TableFunction

    table = new_table(pa.table({"id": [1]}))
    queries = [object() for _ in range(MAX_QUERIES + 1)]
    now = queries[0]
    context = SimpleNamespace(relationCache=lambda: now)
    classes = {
        "java.util.IdentityHashMap": _ByIdentity,
        "org.apache.spark.sql.catalyst.analysis.AnalysisContext": SimpleNamespace(
            get=lambda: context
        ),
    }
    monkeypatch.setattr(table_function, "java_class", lambda _, name: classes[name])
    function = TableFunction(MagicMock())
    assert function._version(table.uri, {}) == 2
    table.append(pa.table({"id": [2]}))
    now = queries[1]
    assert function._version(table.uri, {}) == 3
    now = queries[0]
    assert function._version(table.uri, {}) == 2, "its second mention"
    for query in queries[2:]:
        now = query
        assert function._version(table.uri, {}) == 3
    assert len(function._pinned) == len(function._numbers) == MAX_QUERIES


class _ByIdentity(dict[int, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(id(key), default)

    def put(self, key: Any, value: Any) -> None:
        self[id(key)] = value

    def remove(self, key: Any) -> None:
        del self[id(key)]


def test_a_frame_of_a_table_that_was_replaced_is_not_the_new_ones(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(pa.table({"id": [1, 2]}))
    frame = load(spark, table)
    shutil.rmtree(table.uri.removeprefix("file://"))
    new = pa.table({"id": [3]})
    inlay.create(table.uri, new.schema).append(new)
    with pytest.raises(Exception, match="another table than when the DataFrame was made"):
        frame.collect()


def test_text_of_a_declared_length_is_written_as_text_or_refused(
    spark: Any, new_table: NewTable
) -> None:
    """Its type is kept if the session says so, and Arrow has none for it."""
    table = new_table(pa.table({"id": [1], "name": ["a"]}), primary_key="id")
    kept = {"spark.sql.preserveCharVarcharTypeInfo": "true"}
    for kind in ("CHAR(2)", "VARCHAR(2)"):
        asked = f"SELECT 2L AS id, CAST('b' AS {kind}) AS name"
        with having(spark, kept):
            frame = spark.sql(asked)
            assert frame.schema["name"].dataType.simpleString() == kind.lower()
            for native in ("auto", "never"):
                with pytest.raises(UnsupportedType, match=r"'name' is .*CAST\(column AS STRING\)"):
                    append(frame, table.uri, native=native)
            assert merge(frame, table.uri, order="name", on=["id"], op=None).committed == (
                kind == "CHAR(2)"
            )
    names = table.refresh().scan().to_arrow().sort_by("id").column("name").to_pylist()
    assert [name.strip() for name in names] == ["a", "b"]

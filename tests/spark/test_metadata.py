"""What the library says of a table is what Spark says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import inlay
from inlay.spark.options import METADATA

pytestmark = pytest.mark.spark


def of(spark: Any, found: inlay.Table, **options: Any) -> Any:
    return spark.read.format("inlay").options(**options).load(found.uri)


def test_every_table_of_metadata_is_read(spark: Any, with_every_delete: inlay.Table) -> None:
    table = with_every_delete
    table.refs.tag("here")
    table.refresh()
    for name in METADATA:
        seen = of(spark, table, table=name)
        expected = getattr(table.inspect, name)()
        assert seen.columns == expected.column_names
        assert seen.count() == expected.num_rows, name
    seen = of(spark, table, table="Files", version=4).select("rows", "key").collect()
    past = inlay.open(table.uri, version=4).inspect.files()
    assert [row.asDict() for row in seen] == past.select(["rows", "key"]).to_pylist()
    history = of(spark, table, table="history").where("operation = 'delete'")
    assert history.count() == table.inspect.history().column("operation").to_pylist().count(
        "delete"
    )


def test_a_table_of_metadata_that_is_none_is_refused(
    spark: Any, new_table: Callable[..., inlay.Table], with_every_delete: inlay.Table
) -> None:
    with pytest.raises(Exception, match="Give one of history, snapshots"):
        of(spark, with_every_delete, table="files_and_more")
    with pytest.raises(Exception, match="takes no columns"):
        of(spark, with_every_delete, table="files", where="rows > 1")

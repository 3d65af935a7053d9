"""Bounds shorter than a value, over which pyarrow aborts the process: cut by their writer, or damaged."""

from __future__ import annotations

import io
from dataclasses import replace

import corpus
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import UnreadableFile
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.schema.create import create
from inlay.ops.verify.table import verify
from inlay.ops.write.append import IngestSource
from inlay.ops.write.delete import delete
from inlay.ops.write.ingest import ingest
from inlay.parquet.footer.fields import Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.read.describe import parse_object_footer
from inlay.storage.base import Location

from ..maintenance.bench import Bench, id_is, new_bench

ROWS = 300


@pytest.fixture
def bench() -> Bench:
    bench = new_bench()
    return replace(bench, ctx=replace(bench.ctx, root="tables/fixed"))


def test_a_file_whose_writer_cuts_fixed_width_bounds_is_a_file_like_any_other(
    bench: Bench,
) -> None:
    table = pa.table(
        {"id": pa.array(range(ROWS)), "fixed": pa.array([b"%070d" % at for at in range(ROWS)])}
    )
    table = table.set_column(1, "fixed", table["fixed"].cast(pa.binary(70)))
    data = corpus.by_datafusion(table)  # with the writer's defaults
    create(bench.ctx, table.schema)
    bench.store.put("ingest/fixed/a.parquet", data)
    bench.time.sleep(1)
    assert ingest(
        bench.ctx, [IngestSource(Location("memory", "b", "ingest/fixed/a.parquet"))]
    ).write
    bench.time.sleep(1)
    delete(bench.ctx, id_is(7, 150))
    assert bench.ids() == [at for at in range(ROWS) if at not in (7, 150)]
    assert rewrite(bench.ctx, strategy="surgery").surgery == 1
    assert bench.ids() == [at for at in range(ROWS) if at not in (7, 150)]
    assert verify(bench.ctx, depth="pages").errors == ()


@pytest.mark.parametrize("width", [3, 16, 17, 32, 64, 65, 300])
def test_bounds_of_fixed_width_are_values_of_their_type_wherever_they_are_written(
    width: int,
) -> None:
    def rows(first: int) -> pa.Table:
        values = [b"%0*d" % (width, at) for at in range(first, first + 3)]
        return pa.table(
            {"id": range(first, first + 3), "fixed": pa.array(values, pa.binary(width))}
        )

    uri = f"memory://fixed{width}/t"
    table = inlay.create(uri, rows(0).schema, primary_key="fixed", sort_by=["fixed"])
    for first in range(0, 120, 3):  # enough for entries to roll into segments
        table.append(rows(first))
    table.delete(keys={"fixed": rows(60)["fixed"]}, mode="tombstone")
    table.maintain.compact()
    table = inlay.open(uri)
    assert set(table.scan().to_arrow()["id"].to_pylist()) == set(range(120)) - {60, 61, 62}
    assert table.maintain.verify(depth="footers").errors == ()


def test_short_bounds_of_other_types_are_damage() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(9)}), sink)
    data = sink.getvalue()
    footer = decode_footer(data, file_size=len(data))
    chunk = footer.row_groups[0].columns[0]
    assert chunk.statistics is not None
    chunk.meta[Meta.STATISTICS] = {**chunk.statistics, Stats.MIN: b"\x00"}
    data = data[: len(data) - footer.length] + end_of_file(footer.tree)
    with pytest.raises(UnreadableFile, match="shorter than a value"):
        parse_object_footer(data, size=len(data))

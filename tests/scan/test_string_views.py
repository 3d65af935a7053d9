"""Files of parquet-rs (DataFusion, tpchgen) come as string views, for which Arrow has few kernels."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()], ids=str)
def test_views_are_read_filtered_deleted_from_and_rewritten(
    tmp_path: Path, view: pa.DataType
) -> None:
    words = [f"word {n}, longer than fits into a view itself" for n in range(100)]
    values = words if view == pa.string_view() else [w.encode() for w in words]
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "word": pa.array(values, view)})
    file = tmp_path / "views.parquet"
    pq.write_table(rows, file, row_group_size=30)
    assert pq.read_table(file).schema.field("word").type == view
    t = inlay.create((tmp_path / "t").as_uri(), rows.schema)
    t.ingest([file.as_uri()])
    t.delete("id IN (3, 50, 99)")
    left = [v for n, v in enumerate(values) if n not in (3, 50, 99)]
    assert t.scan(columns=["word"]).to_arrow()["word"].to_pylist() == left
    assert t.scan(columns=["word"], where="id < 5").to_arrow()["word"].to_pylist() == left[:4]
    t.maintain.rewrite()
    assert t.inspect.tombstones().num_rows == 0
    assert t.scan(columns=["word"]).to_arrow()["word"].to_pylist() == left

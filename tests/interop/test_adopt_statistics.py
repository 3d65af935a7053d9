"""An adopted table's files are compared with their footers like files that are ingested."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import SchemaMismatch, UnsupportedFile
from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.fields import Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

from ..erasure.test_foreign_statistics import with_bounds
from ..scan.test_foreign_statistics import claiming
from .test_adopt import edited, published
from .test_adopt_delta import Delta, adopt

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}
ALL = {"ingest.check_statistics": "all"}


def delta(root: Path, *, wrong: bool) -> Path:
    """A Delta table of two files; of one the footer says that 1 is not in it."""
    made = Delta(root, SCHEMA)
    made.commit({"add": made.add("a.parquet", pa.table({"id": [50, 51]}))})
    add = made.add("b.parquet", pa.table({"id": [1, 20, 21]}))
    path = root / "b.parquet"
    if wrong:
        path.write_bytes(with_bounds(path.read_bytes(), 20, 21))
    made.commit({"add": {**add, "size": path.stat().st_size}})
    return root


def ids(t: inlay.Table, where: str | None = None) -> list[int]:
    return sorted(t.scan(where=where).to_arrow()["id"].to_pylist())


def test_a_file_that_denies_a_row_is_refused_by_name_or_written_again_with_copy(
    tmp_path: Path,
) -> None:
    source = delta(tmp_path / "s", wrong=True)
    with pytest.raises(UnsupportedFile, match="leave out rows that it has") as failed:
        adopt(source, tmp_path / "t", properties=ALL)
    assert "b.parquet" in str(failed.value) and "with copy" in str(failed.value)
    assert not inlay.exists(tmp_path / "t")
    t = adopt(source, tmp_path / "t", copy=True, properties=ALL)
    assert ids(t, "id = 1") == [1] and ids(t) == [1, 20, 21, 50, 51]
    assert sorted(f.is_foreign for f in t.inspect.entries()[0]) == [False, True]
    t.upsert(pa.table({"id": [1, 2]}), on="id")
    t.delete("id IN (1, 21)")
    assert ids(t) == [2, 20, 50, 51]


def test_positions_that_the_source_deleted_stay_deleted_in_what_is_written_again(
    tmp_path: Path,
) -> None:
    source = delta(tmp_path / "s", wrong=True)
    made = Delta(source)
    old = {each["path"]: each for each in made.live()}["b.parquet"]
    vector = made.vector("i", [0])
    made.commit(
        {"remove": {**old, "deletionTimestamp": 0}}, {"add": {**old, "deletionVector": vector}}
    )
    t = adopt(source, tmp_path / "t", copy=True, properties=ALL)
    assert ids(t) == [20, 21, 50, 51]


def test_honest_files_and_unasked_columns_stay_where_they_are(tmp_path: Path) -> None:
    t = adopt(delta(tmp_path / "s", wrong=False), tmp_path / "t", properties=ALL)
    assert all(f.adopted for f in t.inspect.entries()[0])
    # Delta has no key: by default nothing is compared.
    t = adopt(delta(tmp_path / "w", wrong=True), tmp_path / "u")
    assert all(f.adopted for f in t.inspect.entries()[0]) and ids(t) == [1, 20, 21, 50, 51]


@pytest.mark.parametrize("copy", [False, True])
def test_a_required_column_takes_no_nulls_on_the_word_of_a_footer(
    tmp_path: Path, copy: bool
) -> None:
    required = {**SCHEMA, "fields": [{**SCHEMA["fields"][0], "nullable": False}]}
    made = Delta(tmp_path / "s", required)
    add = made.add("a.parquet", pa.table({"id": [1, None, 3]}))
    path = tmp_path / "s" / "a.parquet"
    path.write_bytes(claiming(path.read_bytes(), 1, 3, 0))
    made.commit({"add": {**add, "size": path.stat().st_size}})
    with pytest.raises(SchemaMismatch, match="'id' holds nulls") as failed:
        adopt(tmp_path / "s", tmp_path / "t", copy=copy)
    assert "a.parquet" in str(failed.value)
    assert not inlay.exists(tmp_path / "t")


def test_the_key_of_an_iceberg_table_is_compared(tmp_path: Path) -> None:
    published(tmp_path / "s")

    def name_the_key(metadata: dict[str, Any]) -> None:
        for schema in metadata["schemas"]:
            schema["identifier-field-ids"] = [1]

    metadata = edited(tmp_path / "s", name_the_key)
    [first, *_] = sorted((tmp_path / "s" / "data").rglob("*.parquet"))
    rows = pq.read_table(first)
    low, high = rows["id"].to_pylist()[0], rows["id"].to_pylist()[-1]
    assert low < high
    body = first.read_bytes()
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        stats = dict(group.column(0).statistics or {})
        group.column(0).meta[Meta.STATISTICS] = {
            key: (low + 1).to_bytes(8, "little") if key in (Stats.MIN, Stats.OLD_MIN) else value
            for key, value in stats.items()
        }
    wrong = body[: footer.start] + end_of_file(footer.tree)
    # In place, of the same size: nothing else contradicts its table.
    assert len(wrong) == len(body)
    first.write_bytes(wrong)
    with pytest.raises(UnsupportedFile, match="columns checked: id"):
        adopt(metadata, tmp_path / "t")
    t = adopt(metadata, tmp_path / "t", copy=True)
    assert t.count(where=f"id = {low}") == 1


def test_what_comparing_costs(tmp_path: Path) -> None:
    """Of files that do not come whole with their footer, a GET for the column of each row group."""
    made = Delta(tmp_path / "s", SCHEMA)
    made.commit({"add": made.add("a.parquet", pa.table({"id": [1]}))})
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(60_000)}), sink, row_group_size=20_000)
    store = MemoryStore("b")
    for path in (tmp_path / "s").rglob("*.json"):
        store.put(f"s/{path.relative_to(tmp_path / 's')}", path.read_bytes())
    store.put("s/a.parquet", sink.getvalue())
    log = [json.loads(line) for line in (made.log / f"{1:020}.json").read_text().splitlines()]
    log[0]["add"]["size"] = len(sink.getvalue())
    store.put(f"s/_delta_log/{1:020}.json", json.dumps(log[0]).encode())
    used = {}
    for check in ("none", "all"):
        metered = MeteredStore(store)
        ctx = inlay.connect("memory://b/t")
        ctx = type(ctx)(
            store=metered, root=check, uri=f"memory://b/{check}", executor=InlineExecutor()
        )
        with pytest.warns(UserWarning, match="adopting"):
            inlay.adopt(
                "memory://b/s",
                ctx.uri,
                context=ctx,
                properties={"ingest.check_statistics": check},
            )
        used[check] = dict(metered.usage().requests)
    assert used["all"] == {**used["none"], "get": used["none"]["get"] + 3}

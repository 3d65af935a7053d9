"""Inspection tables: complete, documented, of the version they are asked of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.table import Table

from .histories import new_table, rows

DOC = Path(__file__).parents[2] / "docs" / "INSPECTION.md"
TABLES = (
    "files",
    "partitions",
    "tombstones",
    "segments",
    "ledger",
    "snapshots",
    "columns",
    "schemas",
)


@pytest.fixture
def lived() -> Table:
    """Four files and a delete of each kind."""
    t = new_table()
    t.append(rows([(i, i) for i in range(20)]), request_id="first")
    t.append(rows([(i, i) for i in range(100, 120)]))
    t.delete("id = 3")
    t.delete("v = 4 OR v = 105")
    t.delete("id = 104", mode="vector")
    t.maintain.delete_row_groups(t.inspect.files()["key"][0].as_py(), [1])
    t.delete(keys={"id": list(range(110, 300))})
    t.update({"v": "7"}, where="id = 2")
    return t


def type_of(field: pa.Field) -> str:
    if not pa.types.is_list(field.type):
        return str(field.type)
    inner = field.type.value_type
    return (
        f"list of {', '.join(f.name for f in inner)}"
        if pa.types.is_struct(inner)
        else f"list of {inner}"
    )


def columns_of(t: Table) -> str:
    """The part of the page between its marks: every column of every table, as its field's metadata says."""
    parts = []
    for name in TABLES:
        schema = getattr(t.inspect, name)().schema
        rows = [f"| `{f.name}` | {type_of(f)} | {f.metadata[b'doc'].decode()} |" for f in schema]
        head = [
            f"### `t.inspect.{name}()`",
            "",
            "| column | type | what it holds |",
            "|---|---|---|",
        ]
        parts.append("\n".join([*head, *rows]))
    return "\n\n".join(parts)


def test_every_column_is_documented_with_its_type(lived: Table) -> None:
    head, _, rest = DOC.read_text().partition("<!-- columns -->\n\n")
    said, _, tail = rest.partition("\n\n<!-- /columns -->")
    if said != (made := columns_of(lived)):
        DOC.write_text(f"{head}<!-- columns -->\n\n{made}\n\n<!-- /columns -->{tail}")
        raise AssertionError(
            "docs/INSPECTION.md was out of date and has been written again: look at it"
        )


def test_files_show_how_much_of_them_is_deleted(lived: Table) -> None:
    first, second, third = lived.inspect.files().to_pylist()
    assert (first["rows"], first["row_groups"], first["deleted_rows"]) == (20, 5, 0)
    assert second["deleted_rows"] == 1
    # A range, a predicate, a row group and the update hit the first; the second misses the range.
    assert (first["deletes"], third["deletes"]) == (4, 0)
    assert {b["column"]: (b["lower"], b["upper"]) for b in second["bounds"]}["id"] == ("100", "119")


def test_tombstones_show_what_they_still_hit(lived: Table) -> None:
    by_kind = {m["kind"]: m for m in lived.inspect.tombstones().to_pylist()}
    assert set(by_kind) == {"range", "predicate", "rows", "row_group", "keys"}
    assert by_kind["keys"]["where"] == "id in 190 keys"
    assert by_kind["keys"]["files_hit"] == 1
    assert by_kind["keys"]["object_bytes"] > 0
    assert by_kind["row_group"]["where"] == "row groups 1"
    files = {f["key"]: f["bytes"] for f in lived.inspect.files().to_pylist()}
    assert by_kind["rows"]["bytes_hit"] == files[by_kind["rows"]["file"]]


def test_segments_count_what_the_snapshot_holds() -> None:
    t = new_table()
    for n in range(120):
        t.append(rows([(n, n)]), request_id=f"r{n}")
    found = t.inspect.segments().to_pylist()
    for tier, live in (("files", 120), ("markers", 0), ("ledger", 120)):
        runs = [r for r in found if r["tier"] == tier]
        assert sum(r["entries"] - r["dead"] for r in runs) == live
        assert [r["place"] for r in runs] == list(range(len(runs)))
        assert [r["id"] is None for r in runs] == [False] * (len(runs) - 1) + [True]
    assert sum(r["rows"] or 0 for r in found if r["tier"] == "files") <= 120
    assert any(r["id"] for r in found if r["tier"] == "files")


def test_the_ledger_lists_requests_and_streams() -> None:
    t = new_table()
    for n in range(40):
        t.append(rows([(n, n)]), request_id=f"r{n}")
    found = t.inspect.ledger().to_pylist()
    assert [r["version"] for r in found] == list(range(2, 42))
    assert {r["kind"] for r in found} == {"request"}
    times = {v["version"]: v["time"] for v in t.inspect.snapshots().to_pylist()}
    assert all(r["time"] == times[r["version"]] for r in found)


def test_snapshots_show_who_did_what(lived: Table) -> None:
    found = lived.inspect.snapshots().to_pylist()
    assert [v["version"] for v in found] == list(range(lived.version, 0, -1))
    assert [v["operation"] for v in found][::-1][:3] == ["create", "append", "append"]
    assert found[-2]["request"] == "first"
    assert (found[0]["added_rows"], found[0]["deleted_rows"]) == (1, 1)


@pytest.mark.parametrize("name", ["files", "partitions", "tombstones", "segments", "ledger"])
def test_tables_are_of_the_version_asked_for(name: str, lived: Table) -> None:
    old = inlay.open(lived.uri, version=2)
    if name == "files":
        assert old.inspect.files()["rows"].to_pylist() == [20]
    table = getattr(old.inspect, name)()
    assert table.schema.equals(getattr(lived.inspect, name)().schema)
    assert not table.equals(getattr(lived.inspect, name)()) or name == "ledger"

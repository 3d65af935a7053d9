"""A local file given as rows: what `inlay create --like` and `inlay append` make of it, in one commit."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile

ROWS = pa.table({"id": [1, 2], "name": ["Ada", None], "born": pa.array(["1815-12-10", None])})
TEXT = "id,name,born\n1,Ada,1815-12-10\n2,,\n"
JSON = '{"id": 1, "name": "Ada", "born": "1815-12-10"}\n{"id": 2, "name": null, "born": null}\n'
SHOWN = [(1, "Ada", "1815-12-10"), (2, None, None)]


def written(place: Path, name: str) -> Path:
    path = place / name
    match name.split(".", 1)[1]:
        case "csv":
            path.write_text(TEXT)
        case "tsv":
            path.write_text(TEXT.replace(",", "\t"))
        case "json" | "jsonl":
            path.write_text(JSON)
        case "csv.gz":
            path.write_bytes(gzip.compress(TEXT.encode()))
        case "json.zst":
            path.write_bytes(pa.compress(JSON.encode(), codec="zstd", asbytes=True))
        case "parquet":
            pq.write_table(ROWS, path)
        case _:
            feather.write_feather(ROWS, path)
    return path


def shown(t: inlay.Table) -> list[tuple]:
    rows = t.scan().to_arrow().to_pylist()
    return sorted((r["id"], r["name"], r["born"] and str(r["born"])) for r in rows)


NAMES = ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.csv.gz", "a.json.zst", "a.parquet", "a.arrow"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_becomes_a_table_and_is_appended_upserted_and_put_in_place(
    tmp_path: Path, name: str
) -> None:
    path = written(tmp_path, name)
    t = inlay.create(tmp_path / "t", path, primary_key="id")
    assert (t.version, shown(t)) == (1, SHOWN)
    assert t.schema.field("id").type == pa.int64()
    t.append(path)
    assert shown(t) == sorted([*SHOWN, *SHOWN], key=str)
    t.upsert(path)
    assert shown(t) == SHOWN
    t.overwrite(path)
    assert shown(t) == SHOWN


def test_what_is_no_such_file_is_refused_by_name(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", "id bigint, name string")
    (tmp_path / "other.csv").write_text("key\n1\n")
    (tmp_path / "late.csv").write_text("id,name\n1,x\ntwo,y\n")
    for name, error in (  # all of them name the file
        ("absent.csv", InvalidRequest),
        ("a.xlsx", InvalidRequest),
        ("t", InvalidRequest),
        ("other.csv", SchemaMismatch),
        ("late.csv", UnreadableFile),
    ):
        with pytest.raises(error):
            t.append(tmp_path / name)
        with pytest.raises((InvalidRequest, UnreadableFile)):
            inlay.create(t.uri + "2", tmp_path / name, primary_key="no")
    assert t.count() == 0 and not inlay.exists(t.uri + "2")
    with pytest.raises(InvalidRequest, match=r"pathlib\.Path"):
        t.append("people.csv")
    with pytest.raises(InvalidRequest, match=r"pathlib\.Path"):
        inlay.create(t.uri + "2", "people.csv")


def test_dates_that_are_texts_are_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,born\n1,2010/01/01\n")
    with pytest.warns(UserWarning, match="born of .* are texts"):
        t = inlay.create(tmp_path / "t", path)
    assert t.schema.field("born").type == pa.string()

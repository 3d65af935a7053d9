"""Rows in text files: what stands for what, both ways, compressed or not."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cli.conftest import Run

from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile
from inlay.ops.local_files import read_file, read_schema, write_file
from inlay.text import bytes as text_bytes
from inlay.text import delimited
from inlay.text.format import TextFormat

TEXT = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def rows(path: str, schema: pa.Schema, **options: object) -> list[dict[str, object]]:
    return read_file(path, schema, TextFormat(**options)).read_all().to_pylist()  # type: ignore[arg-type]


# -- NULL and the empty text ----------------------------------------------------------------------


def test_an_empty_field_is_null_and_a_quoted_one_an_empty_text() -> None:
    path = written("a.csv", 'id,name,note\n1,,x\n2,"",y\n3,"a ""b""","c\nd"\n')
    assert [row["name"] for row in rows(path, TEXT)] == [None, "", 'a "b"']


def test_null_and_empty_stay_apart_through_the_command_line(inlay: Run) -> None:
    inlay("create", "t", "--schema", "id bigint, name string, n int")
    written("a.csv", 'id,name,n\n1,,1\n2,"",\n3,NA,3\n4,"NA",4\n')
    inlay("append", "t", "a.csv", "--null", "NA")
    inlay("scan", "t", "-o", "b.csv")
    assert Path("b.csv").read_text() == 'id,name,n\n1,,1\n2,"",\n3,,3\n4,NA,4\n'
    inlay("scan", "t", "-o", "c.csv.gz", "--null", "NA", "--delimiter", ";", "--encoding", "utf-16")
    inlay("create", "u", "--schema", "id bigint, name string, n int")
    inlay("append", "u", "b.csv")
    inlay("append", "u", "c.csv.gz", "--null", "NA", "--delimiter", ";", "--encoding", "utf-16")
    once = inlay("scan", "t", "--json").lines
    assert inlay("scan", "u", "--json").lines == once + once
    assert [row["name"] for row in once] == [None, "", None, "NA"]


def test_in_a_file_of_one_column_an_empty_line_is_a_row() -> None:
    schema = pa.schema([("name", pa.string())])
    path = written("a.csv", 'name\na\n\n""\n')
    assert rows(path, schema) == [{"name": "a"}, {"name": None}, {"name": ""}]


# -- text that is no CSV, or hardly ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('id,name\n1,"Ada\n2,Bob\n', "line 2: a quote is not closed"),
        ('id,name\n1,"Ada"x\n', "line 2: more text follows"),
        ('id,name\n1,a\n2,"a\\"b"\n', "line 3: more text follows"),
        ("id,name\n1,a,b\n", "line 2 has 3 fields, and the first line 2"),
        ('id,name\n1,"a\n\n"\n2\n', "line 5 has 1 field,"),
        ("id;x\n1;1,5\n", "line 2 has 2 fields"),
        ("", "is empty"),
        ("\n", "is empty"),
        ("PAR1....PAR1", "is a Parquet file"),
    ],
)
def test_text_that_is_no_csv_is_refused_at_its_line(content: str, line: str) -> None:
    with pytest.raises(UnreadableFile, match=line) as refused:
        rows(written("a.csv", content), TEXT)
    assert "Check that" not in refused.value.next_step
    assert ";" not in content or "--delimiter" in refused.value.next_step


CSV_TEXT = st.text(alphabet='ab," \n\r\t', max_size=40)
# As every Python does it, and as this one may.
POSSESSIVE = st.sampled_from([b"", delimited.POSSESSIVE])


@contextmanager
def in_pieces(chunk: int, possessive: bytes) -> Iterator[None]:
    """Texts are read in pieces of `chunk` bytes, and split with or without possessive quantifiers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "CHUNK", chunk)
        patch.setattr(text_bytes, "CHUNK", chunk)
        patch.setattr(delimited, "POSSESSIVE", possessive)
        yield


@settings(max_examples=400, deadline=None)
@given(body=CSV_TEXT, mark=st.booleans(), chunk=st.integers(1, 9), possessive=POSSESSIVE)
@example(body="\raaaaaaa,,\r\na", mark=False, chunk=3, possessive=b"")
def test_any_text_is_read_as_csv_or_refused(
    body: str, mark: bool, chunk: int, possessive: bytes
) -> None:
    """Against Python's reader in strict mode, in pieces of every size."""
    content = "x,y,z\n" + body
    path = written("a.csv", ("\ufeff" if mark else "") + content)
    expected: list[list[str]] | None
    try:
        read = csv.reader(io.StringIO(content, newline=""), strict=True)
        expected = [row for row in read if row]
        if any(len(row) != 3 for row in expected):
            expected = None
    except csv.Error:
        expected = None
    with in_pieces(chunk, possessive):
        try:
            schema = pa.schema([(name, pa.string()) for name in "xyz"])
            found = rows(path, schema)
        except UnreadableFile:
            assert expected is None
            return
    assert expected is not None
    assert [[value or "" for value in row.values()] for row in found] == expected[1:]


@settings(max_examples=400, deadline=None)
@given(
    body=st.text(alphabet='ab" \n\r', max_size=40),
    chunk=st.integers(1, 9),
    possessive=POSSESSIVE,
)
@example(body="a\r\nb\r\n", chunk=4, possessive=b"")
def test_any_text_of_one_column_is_read_with_its_empty_lines(
    body: str, chunk: int, possessive: bytes
) -> None:
    """An empty line is NULL, however lines end and wherever a piece does."""
    content = "x\n" + body
    path = written("a.csv", content)
    try:
        read = csv.reader(io.StringIO(content, newline=""), strict=True)
        expected = [row[0] if row else "" for row in read]
    except csv.Error:
        expected = None
    with in_pieces(chunk, possessive):
        try:
            found = rows(path, pa.schema([("x", pa.string())]))
        except UnreadableFile:
            assert expected is None
            return
    assert expected is not None
    assert [row["x"] or "" for row in found] == expected[1:]


def test_a_long_field_and_a_missing_last_line_end() -> None:
    long = "x" * 5_000_000
    assert rows(written("a.csv", f"id,name\n1,{long}"), TEXT)[0]["name"] == long
    assert read_schema(written("b.csv", "id,name")).schema.names == ["id", "name"]


def test_names_of_columns_lose_blanks_and_are_made_where_they_lack() -> None:
    path = written("a.csv", ", name ,\n7,Ada,\n")
    assert read_schema(path).schema.names == ["column0", "name", "column2"]
    kept = pa.schema([(" name ", pa.string())])
    assert read_file(path, kept).schema.names == ["column0", " name ", "column2"]


def test_utf_16_is_recognised_by_its_mark() -> None:
    path = written("a.csv", "id,name,note\n1,Zoë,x\n".encode("utf-16"))
    assert rows(path, TEXT)[0]["name"] == "Zoë"
    path = written("a.jsonl", '{"id": 1, "name": "Zoë"}\n'.encode("utf-16"))
    assert rows(path, TEXT)[0]["name"] == "Zoë"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_the_name_of_a_file_need_not_be_utf_8(kind: str) -> None:
    table = pa.table({"id": [1], "name": ["a"], "note": ["b"]})
    path = os.fsdecode(b"caf\xe9." + kind.encode())
    try:
        Path(path).touch()
    except OSError:
        pytest.skip("this file system takes names of UTF-8 only")
    if kind == "arrow":
        with Path(path).open("wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    else:
        write_file(table.to_reader(), path)
    assert rows(path, TEXT) == table.to_pylist()


def test_a_pipe_is_read_once() -> None:
    """What a shell makes of `<(zcat a.csv.gz)`."""
    read, write = os.pipe()
    os.write(write, b"id,name\n1,a\n2,b\n")
    os.close(write)
    found = rows(f"/dev/fd/{read}", TEXT, format="csv")
    os.close(read)
    assert [row["name"] for row in found] == ["a", "b"]


def test_a_folder_is_no_file() -> None:
    Path("d.csv").mkdir()
    with pytest.raises(InvalidRequest, match="is a folder"):
        rows("d.csv", TEXT)
    with pytest.raises(InvalidRequest, match="is a folder"):
        write_file(TEXT.empty_table().to_reader(), "d.csv")


def test_the_system_says_why_a_file_cannot_be_written() -> None:
    with pytest.raises(InvalidRequest, match=r"cannot write no/x\.csv: No such file or directory"):
        write_file(TEXT.empty_table().to_reader(), "no/x.csv")


# -- numbers that do not fit ----------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e39"])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_no_number_becomes_infinite(number: str, kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind), ("y", pa.float64())])
    fits = number == "1e39" and kind == pa.float64()
    for path in (
        written("a.csv", f"x,y\n1,\n-inf,2\n{number},3\n"),
        written("a.jsonl", f'{{"x": 1}}\n{{"x": "-Infinity"}}\n{{"x": {number}}}\n'),
    ):
        if fits:
            assert rows(path, schema)[2]["x"] == float(number)
            continue
        with pytest.raises(UnreadableFile, match=r"(row|object) 3"):
            rows(path, schema)


@pytest.mark.parametrize(
    "values",
    [
        *(("9007199254740993", "1.5"), ("12345678901234567.5",), ("1e400",)),
        *(("9" * 39,), ("9" * 5000,), ("[" * 5000,)),
    ],
)
def test_no_type_is_inferred_that_would_change_a_number(values: tuple[str, ...]) -> None:
    path = written("a.jsonl", "\n".join(f'{{"x": {value}}}' for value in values))
    with pytest.raises((InvalidRequest, UnreadableFile)):
        read_schema(path)
    if "[" not in values[0]:
        path = written("a.csv", "x\n" + "\n".join(values) + "\n")
        assert read_schema(path).schema.field("x").type == pa.string()


FLOATING = [pa.float16(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", FLOATING)
@given(
    number=st.integers(-(2**70), 2**70)
    | st.integers(0, 70).flatmap(lambda n: st.integers(-(2**n) - 5, 2**n + 5)),
    tail=st.sampled_from(["", ".0", ".5"]),
)
@example(number=9_007_199_254_740_993, tail="")
@example(number=16_777_217, tail="")
@example(number=18_446_744_073_709_552_000, tail="")  # JavaScript's 2 ** 64
@settings(deadline=None)
def test_no_whole_number_is_rounded(kind: pa.DataType, number: int, tail: str) -> None:
    """As in the library, which refuses an int64 that a double column does not hold."""
    held = pa.scalar(float(number), pa.float64()).cast(kind, safe=False)
    shortest = Decimal(held.cast(pa.string()).as_py())
    whole = math.isfinite(held.as_py()) and number in (int(held.as_py()), shortest)
    schema = pa.schema([("x", kind)])
    text = f"{number}{tail}"
    for path in (written("a.csv", f"x\n1\n{text}\n"), written("a.jsonl", f'{{"x": {text}}}')):
        if whole and tail != ".5":
            assert rows(path, schema)[-1]["x"] == held.as_py()
        elif not whole:
            with pytest.raises(UnreadableFile, match=r"(row 2|object 1).*(rounded|no |fit)"):
                rows(path, schema)


def test_half_of_a_surrogate_pair_is_refused() -> None:
    path = written("a.jsonl", '{"id": 1, "name": "\\ud800"}')
    for read in (lambda: rows(path, TEXT), lambda: read_schema(path)):
        with pytest.raises(UnreadableFile, match="surrogate"):
            read()


def test_dates_that_python_has_not_are_shown(inlay: Run) -> None:
    days = pa.array([2932897, -719529, 2**31 - 1, 0, None], pa.date32())
    far = pc.multiply(days.cast(pa.int32()).cast(pa.int64()), 86_400)
    moments = (
        pc.if_else(pc.less(far, 10**12), far, 0).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
    )
    nested = pa.array(
        [[{"d": 2932897}], [], None, [], []], pa.list_(pa.struct([("d", pa.date32())]))
    )
    table = pa.table({"d": days, "at": moments, "n": nested})
    pq.write_table(table, "a.parquet")
    inlay("create", "t", "--like", "a.parquet", "--sort-by", "d")
    inlay("append", "t", "a.parquet")
    shown = inlay("scan", "t", "--json").lines
    assert {row["d"] for row in shown} >= {"10000-01-01", "1970-01-01", None}
    assert [{"d": "10000-01-01"}] in [row["n"] for row in shown]
    for verb in ("scan", "files", "show", "inspect", "history", "verify"):
        inlay(verb, "t")
    inlay("inspect", "t", "--html", "t.html")
    for name, code in (("far.csv", 2), ("far.jsonl", 2), ("far.parquet", 0)):
        inlay("scan", "t", "--output", name)
        inlay("append", "t", name, code=code)  # as text they are refused, not read as others
    inlay("scan", "t", "-o", "b.csv")
    inlay("count", "t", "--where", "d > DATE '2026-01-01' AND at IS NOT NULL")


# -- what arrives how -----------------------------------------------------------------------------


def test_compressed_files_are_recognised_by_their_content() -> None:
    content = b"id,name,note\n1,a,b\n"
    written("a.csv.gz", gzip.compress(content))
    written("b.csv", gzip.compress(content))
    written("c.csv.zst", pa.compress(content, "zstd", asbytes=True))
    written("d.jsonl.gz", gzip.compress(b'{"id": 1, "name": "a", "note": "b"}'))
    for path in ("a.csv.gz", "b.csv", "c.csv.zst", "d.jsonl.gz"):
        assert rows(path, TEXT) == [{"id": 1, "name": "a", "note": "b"}], path


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_standard_input_is_a_dash(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"id,name,note\n1,a,\n" if kind == "csv" else b'{"id":1,"name":"a","note":null}'
    for given_bytes in (content, gzip.compress(content)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given_bytes)))
        found = rows("-", TEXT, format=kind if kind != "csv" else None)
        assert found == [{"id": 1, "name": "a", "note": None}]


def test_text_in_another_encoding() -> None:
    path = written("a.csv", "id;name;note\n1;Zoë;x\n".encode("latin-1"))
    assert rows(path, TEXT, delimiter=";", encoding="latin-1")[0]["name"] == "Zoë"
    with pytest.raises(UnreadableFile, match="encoding"):
        rows(path, TEXT, delimiter=";")
    path = written("b.csv", "id;name;note\n1;5 €, netto;x\n".encode("cp1252"))
    with pytest.raises(UnreadableFile, match="--delimiter ';'"):
        rows(path, TEXT)
    with pytest.raises(UnreadableFile, match="--encoding cp1252"):
        rows(path, TEXT, delimiter=";")
    assert rows(path, TEXT, delimiter=";", encoding="cp1252")[0]["name"] == "5 €, netto"


@given(
    st.lists(
        st.from_regex(r"[+-]?[0-9]{1,12}", fullmatch=True) | st.just(""), min_size=1, max_size=4
    )
)
@example(["+41791234567", "0791234567"])
@example(["-0", "1"])
@settings(deadline=None)
def test_whole_numbers_are_inferred_only_where_they_are_written_the_same(texts: list[str]) -> None:
    path = written("a.csv", "id,x\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
    schema = read_schema(path).schema
    found = [row["x"] for row in rows(path, schema)]
    if pa.types.is_floating(schema.field("x").type):  # only to keep the sign of a zero
        assert "-0" in texts
        assert found == [float(text) if text else None for text in texts]
    else:
        assert [None if x is None else str(x) for x in found] == [text or None for text in texts]


def test_another_delimiter_is_recognised() -> None:
    path = written("a.csv", "id;name\n1;a\n")
    with pytest.raises(UnreadableFile, match="--delimiter"):
        rows(path, TEXT)


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": "ab"},
        {"delimiter": "\udcff"},
        {"encoding": "klingon"},
        {"encoding": "rot13"},
        {"format": "xlsx"},
        {"delimiter": '"'},
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        rows(written("a.csv", "id\n1\n"), TEXT, **options)


def test_a_value_of_another_type_is_refused_at_its_row() -> None:
    path = written("a.csv", "id,name\n" + "".join(f"{n},x\n" for n in range(500)) + "0x10,y\n")
    with pytest.raises(UnreadableFile, match=r"row 501: column 'id'"):
        rows(path, TEXT)
    path = written("a.jsonl", '{"id": 1}\n{"id": "2"}\n')
    with pytest.raises(UnreadableFile, match=r"object 2: 'id'"):
        rows(path, TEXT)


def test_whole_numbers_written_by_pandas_and_others() -> None:
    path = written("a.csv", "id,name\n 5 ,x\n7.0,y\n+8,z\n,w\n")
    assert [row["id"] for row in rows(path, TEXT)] == [5, 7, 8, None]


def test_a_time_without_a_zone_is_utc_in_a_column_of_instants() -> None:
    schema = pa.schema([("at", pa.timestamp("ms", "UTC"))])
    texts = [
        "2013-01-01T10:00:00.120000",
        "2013-01-01 11:00:00.12+01:00",
        "2013-01-01T10:00:00.12Z",
    ]
    found = rows(written("a.csv", "at\n" + "\n".join(texts) + "\n2013-01-01\n"), schema)
    assert {str(row["at"]) for row in found[:3]} == {"2013-01-01 10:00:00.120000+00:00"}
    assert str(found[3]["at"]) == "2013-01-01 00:00:00+00:00"


# -- JSON -----------------------------------------------------------------------------------------


def test_objects_in_an_array_over_several_lines_or_one_by_one() -> None:
    expected = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    for content in (
        '[{"id": 1, "name": "a"}, {"id": 2, "name": null}]',
        '{"id": 1, "name": "a"}{"id": 2, "name": null}',
        '\n {\n "id": 1,\n "name": "a"}\n\n{"id": 2,\n"name": null\n}\n',
        "[\n]",
        "",
    ):
        found = rows(written("a.json", content), TEXT)
        assert found == (expected if "id" in content else [])


def test_many_objects_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from inlay.text import json_objects

    monkeypatch.setattr(json_objects, "CHUNK", 7)
    monkeypatch.setattr(json_objects, "BATCH_ROWS", 3)
    content = "\n".join(f'{{"id": {n}, "name": "é{n}"}}' for n in range(20))
    for text in (content, "[" + content.replace("\n", ",\n") + "]"):
        assert [r["id"] for r in rows(written("a.json", text), TEXT)] == list(range(20))
    with pytest.raises(UnreadableFile, match="line 20"):
        rows(written("a.json", content[:-3]), TEXT)


@pytest.mark.parametrize(
    "content", ["5", '[{"id": 1}', '{"id": 1}, {"id": 2}', '{"id": 1, "id": 2}']
)
def test_what_is_no_row_is_refused(content: str) -> None:
    with pytest.raises(UnreadableFile):
        rows(written("a.json", content), TEXT)


def test_columns_that_a_json_file_lacks_are_no_columns_of_null(inlay: Run) -> None:
    inlay(
        "create",
        "t",
        "--schema",
        "id bigint not null, name string, mail string",
        "--primary-key",
        "id",
    )
    written("a.jsonl", '{"id": 1, "name": "Ada", "mail": "a@x"}\n{"id": 2, "name": "Bob"}\n')
    inlay("append", "t", "a.jsonl")
    written("b.jsonl", '{"id": 1, "name": "Eve"}\n')
    inlay("upsert", "t", "b.jsonl")
    assert inlay("scan", "t", "--where", "id = 1", "--json").lines == [
        {"id": 1, "name": "Eve", "mail": "a@x"}
    ]
    assert "lacks 'mail'" in inlay("upsert", "t", "a.jsonl", code=2).err
    written("c.csv", "id,name\n1,Fay\n")
    inlay("upsert", "t", "c.csv")
    assert inlay("scan", "t", "--where", "id = 1", "--json").lines[0]["mail"] == "a@x"


def test_a_nested_field_that_the_table_lacks_is_not_dropped() -> None:
    schema = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    with pytest.raises(UnreadableFile, match="'y'"):
        rows(written("a.jsonl", '{"s": {"x": 1, "y": 2}}'), schema)


# -- inferred types -------------------------------------------------------------------------------


def test_types_are_inferred_from_text(inlay: Run) -> None:
    content = (
        "i,f,b,d,t,ts,tz,zip,big,none,s,mixed\n"
        "1,1.5,true,2013-01-01,10:00:00,2013-01-01T10:00:00,2013-01-01T10:00:00Z,01234,99999999999999999999,,a,1\n"
        ",2,FALSE,2013-01-02,11:00,2013-01-01 10:00:00.5,2013-01-01T10:00:00+01:00,00501,1,,2,x\n"
    )
    inlay("create", "t", "--like", written("a.csv", content))
    told = inlay("create", "u", "--like", "a.csv", "--json").json["inferred"]
    assert {each["column"]: each["type"] for each in told} == {
        "i": "int64",
        "f": "double",
        "b": "bool",
        "d": "date",
        "t": "time(us)",
        "ts": "timestamp(us)",
        "tz": "timestamptz(us)",
        "zip": "string",
        "big": "string",
        "none": "string",
        "s": "string",
        "mixed": "string",
    }
    inlay("append", "u", "a.csv")
    assert inlay("scan", "u", "--json").lines[0]["zip"] == "01234"


def test_types_are_inferred_from_json() -> None:
    written(
        "a.jsonl",
        '{"i": 1, "f": 1, "b": true, "d": "2013-01-01", "l": [1, null], "s": {"x": 1}, "n": null}\n'
        '{"i": null, "f": 1.5, "b": false, "d": "2013-01-02", "l": [], "s": {"y": "z"}, "n": null}\n',
    )
    found = read_schema("a.jsonl")
    assert found.rows == 2
    assert found.schema == pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("l", pa.list_(pa.int64())),
            ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("n", pa.string()),
        ]
    )
    with pytest.raises(InvalidRequest, match="several kinds"):
        read_schema(written("b.jsonl", '{"a": 1}{"a": "x"}'))


# -- every value, there and back ------------------------------------------------------------------

LEAVES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(12, 10): st.decimals(-99, 99, places=10),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters="\0"))
    | st.sampled_from(["", "NA", " x ", "a,b", 'q"q', "x\ny", "x\r\ny", "null", "\ufeff"]),
    pa.binary(): st.binary(max_size=4),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.date32(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),
    pa.timestamp("s"): st.datetimes().map(lambda d: d.replace(microsecond=0)),
    pa.timestamp("us"): st.datetimes(datetime(1000, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC)),
    pa.timestamp("ns", "UTC"): st.integers(0, 2**62),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(LEAVES)), min_size=1, max_size=4))
    columns, fields = [], []
    count = draw(st.integers(0, 4))
    for n, leaf in enumerate(kinds):
        value = st.none() | LEAVES[leaf]
        shape = draw(st.sampled_from(["leaf", "list", "struct", "map"]))
        kind = leaf
        if shape == "list":
            kind, value = pa.list_(leaf), st.none() | st.lists(value, max_size=2)
        elif shape == "struct":
            kind = pa.struct([("x", leaf), ("y", pa.string())])
            value = st.none() | st.fixed_dictionaries({"x": value, "y": st.none() | st.just("")})
        elif shape == "map":
            kind = pa.map_(pa.string(), leaf)
            value = st.none() | st.lists(st.tuples(st.text("ab", max_size=1), value), max_size=2)
        columns.append(pa.array([draw(value) for _ in range(count)], kind))
        fields.append(pa.field(f"c{n}", kind))
    return pa.table(columns, schema=pa.schema(fields))


@settings(deadline=None, max_examples=150)
@given(
    tables(),
    st.sampled_from(["csv", "tsv", "jsonl", "csv.gz", "json.zst"]),
    st.sampled_from([(), ("NA",)]),
)
def test_rows_come_back_as_they_were(table: pa.Table, suffix: str, null: tuple[str, ...]) -> None:
    path = f"{uuid.uuid4().hex}.{suffix}"
    text = TextFormat(null=null)
    assert write_file(table.to_reader(), path, text) == table.num_rows
    found = read_file(path, table.schema, text).read_all()
    Path(path).unlink()
    if "json" in suffix and not table.num_rows:
        return  # a file without an object has no names
    assert found.schema.types == table.schema.types
    assert found.equals(table)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz", "a.parquet"])
@pytest.mark.parametrize("end", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_half_of_the_rows_are_no_file(tmp_path: Path, name: str, end: BaseException) -> None:
    schema = pa.schema([("id", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": range(100_000)})
        raise end

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises((InvalidRequest, KeyboardInterrupt)):
        write_file(reader, str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_come_back() -> None:
    values = [math.nan, math.inf, -math.inf, -0.0, None]
    table = pa.table(
        {
            "x": pa.array(values),
            "d": pa.array([Decimal("1.50")] * 5),
            "t": [time(1)] * 5,
            "y": [date(1, 1, 1)] * 5,
        }
    )
    for path in ("a.csv", "a.jsonl"):
        write_file(table.to_reader(), path)
        assert str(read_file(path, table.schema).read_all()["x"]) == str(table["x"])


def test_a_ragged_file_may_be_appended_but_not_upserted() -> None:
    path = written("a.jsonl", '{"id": 1, "name": "x"}\n{"id": 2}\n')
    assert rows(path, TEXT)[1] == {"id": 2, "name": None}
    with pytest.raises(SchemaMismatch, match="object 2 lacks 'name'"):
        read_file(path, TEXT, even=True)


@pytest.mark.parametrize(
    "value",
    ["2010/01/01 00:00:00", "Jan 1 2000", "1/2/99", "31.12.1999", "1 January 2000", "01-02-2003"],
)
def test_dates_that_are_not_iso_stay_texts_and_are_named(
    inlay: Run, tmp_path: Path, value: str
) -> None:
    (tmp_path / "stocks.csv").write_text(f"symbol,at\nMSFT,{value}\nIBM,\n")
    said = inlay("create", "stocks", "--like", "stocks.csv").err
    assert "at has dates that are not written 2026-01-31" in " ".join(said.split())
    assert "2026-01-31" in inlay("create", "s2", "--like", "stocks.csv", "--json").json["notes"][0]


def test_texts_that_are_no_dates_are_not_named(inlay: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1-2,10.0.0.1,2026-01-31\n3-4,10.0.0.2,2026-01-30\n")
    assert inlay("create", "t", "--like", "a.csv", "--json").json.get("notes") == []

"""Text that is not UTF-8: no write of the library's own takes it, and it hides from no erasure."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.errors import SchemaMismatch
from inlay.format.predicate import Comparison, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.write.append import append
from inlay.ops.write.upsert import upsert
from inlay.parquet.arrow.evaluate import like
from inlay.storage.base import Location

from .people import People, ids_with, rows
from .test_residue import search

TEXT = Primitive("string")
NAMES = [b"ada\xff@example.org", b"bob@example.org", b"a\xc3", "ädä@example.org".encode()]


def text(*values: bytes) -> pa.Array:
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), made.buffers())


def with_names(*names: bytes) -> pa.Table:
    return rows(list(range(len(names)))).set_column(1, "name", text(*names))


BROKEN: dict[str, Any] = {
    "plain": lambda: text(b"fine", b"ada\xff", b"fine"),
    "large": lambda: text(b"fine", b"ada\xff", b"fine").cast(pa.large_string()),
    "view": lambda: text(b"fine", b"ada\xff", b"fine").cast(pa.string_view()),
    "dictionary": lambda: pa.DictionaryArray.from_arrays([1, 0, 1], text(b"ada\xff", b"fine")),
    "half of a pair": lambda: text(b"fine", b"\xed\xa0\x80", b"fine"),
    "sliced": lambda: text(b"cut", b"fine", b"ada\xff", b"fine").slice(1),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("write", [append, upsert])
def test_a_write_names_the_column_and_the_value(people: People, kind: str, write: Any) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"'name' has text that is not UTF-8: value [01] of a"
    ) as e:
        write(people.ctx, rows([1, 2, 3]).set_column(1, "name", BROKEN[kind]()))
    assert "binary" in (e.value.next_step or "")
    assert people.ids() == []


def test_text_within_lists_and_structs_is_checked(people: People) -> None:
    note = pa.StructArray.from_arrays([text(b"ada\xff"), pa.array([1])], ["note", "at"])
    visits = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), note)
    with pytest.raises(SchemaMismatch, match=r"visits\.element\.note"):
        append(people.ctx, rows([1]).set_column(3, "visits", visits))


def test_what_no_row_shows_is_not_asked_for(people: People) -> None:
    """Bytes under nulls, and entries of a dictionary that no row has."""
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), text(b"fine", b"\xff"))
    append(people.ctx, rows([1, 2]).set_column(1, "name", hidden))
    assert people.ids() == [1, 2]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("ada%.org", [True, False, False, False]),
        ("%a_@%", [True, False, False, False]),
        ("%", [True] * 4),
        ("_%", [True] * 4),
        ("a_", [False, False, True, False]),
        ("%ä@%g", [False, False, False, True]),
        ("b_b%", [False, True, False, False]),
    ],
)
def test_a_wrong_byte_counts_as_one_character(pattern: str, matches: list[bool]) -> None:
    assert like(text(*NAMES), pattern).to_pylist() == matches


@pytest.mark.parametrize(
    ("predicate", "stay"),
    [
        (Like(2, "ada%.org"), [1, 2, 3]),
        (Comparison(2, "=", Literal(TEXT, "bob@example.org")), [0, 2, 3]),
        (Comparison(2, "<", Literal(TEXT, "b")), [1, 3]),
    ],
    ids=["like", "equal", "range"],
)
def test_landed_rows_are_erased_by_what_their_bytes_say(
    people: People, predicate: Predicate, stay: list[int]
) -> None:
    sink = io.BytesIO()
    pq.write_table(with_names(*NAMES), sink, write_page_index=True)
    people.store.put("ingest/people/x.parquet", sink.getvalue())
    people.time.sleep(1)
    done = people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    assert done.write.committed, done.outcomes
    people.append(*ids_with(start=20))
    people.erase(predicate)
    assert people.finish().receipts
    assert [i for i in people.ids() if i < 20] == stay


def test_bounds_that_were_cut_within_a_character_are_searched() -> None:
    """Ranges select them, and so they are compared with the rows."""
    sink = io.BytesIO()
    pq.write_table(with_names(*NAMES), sink, write_page_index=True)
    found = search(sink.getvalue(), Comparison(2, "<", Literal(TEXT, "b")))
    assert found.residues == ()

"""Before an erasure forgets what it asked for, every file that is left is opened and searched."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay.ops.erase.finish as sweep
import inlay.ops.maintain.rewrite_file as rewriting
import inlay.plan.surgery as strategy
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.refs import branch
from inlay.ops.write.append import append
from inlay.parquet.footer.fields import Chunk, File, Group, KeyValue, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.footer.thrift import STRUCT, Items
from inlay.storage.base import Location
from inlay.storage.wrapped import MeteredStore

from .oracle import Secret, find
from .people import NAME, SCHEMA, WHO, People, ids_with, is_named, is_who, rows
from .test_receipt import receipt


def category(*ids: int, with_her: bool = True) -> bytes:
    """A file of another writer whose dictionary has her name, though no row of it does."""
    table = rows(list(ids))
    names = [*dict.fromkeys(table["name"].to_pylist()), *([NAME] if with_her else [])]
    indices = pa.array([names.index(n) for n in table["name"].to_pylist()], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, names)
    sink = io.BytesIO()
    pq.write_table(table.set_column(1, "name", column), sink, row_group_size=3)
    return sink.getvalue()


def land(people: People, name: str, body: bytes, **described: Any) -> Location:
    people.time.sleep(1)
    people.store.put(f"ingest/people/{name}", body, **described)
    return Location("memory", "b", f"ingest/people/{name}")


def test_what_a_newer_file_names_beside_its_rows_is_named(people: People) -> None:
    """A writer goes on writing categories with her in them: new data, like rows that came later."""
    people.append(*ids_with(WHO))
    people.erase(is_named())
    people.time.sleep(1)
    people.ingest(land(people, "new.parquet", category(*range(20, 29))))
    assert people.finish().receipts
    look = receipt(people)["look"]
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    places = {tuple(k) for k in look["kept"]}
    assert {(k, n) for k, n, _ in places} == {("file", entry.key)}
    assert any("dictionary of column name" in detail for _, _, detail in places)
    assert look["newer"] == 1
    assert any(entry.key in line for line in verify_receipt(people.ctx, "case-1").named)


@pytest.mark.parametrize("of_branch", [False, True])
def test_what_an_older_file_still_names_is_written_again(
    people: People, of_branch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say an older library judged the file's rows and nothing beside them: the look finds it."""
    from inlay.format.snapshot import Ref

    people.append(*ids_with(WHO))
    people.ingest(land(people, "old.parquet", category(*range(20, 29))))
    if of_branch:
        branch(people.ctx, "b", Ref(kind="tag", version=people.snapshot.version))
    people.erase(is_named())
    nothing = lambda *_: (frozenset(), frozenset())  # noqa: E731
    monkeypatch.setattr(rewriting, "_residue", nothing)
    people.advance()
    monkeypatch.undo()
    people.collect()
    [erasure] = people.snapshot.erasures
    assert erasure.phase == "rewrite"
    before = people.ids()
    people.advance()
    assert people.finish().receipts
    assert people.found(Secret(NAME)) == []
    assert people.ids() == before
    assert receipt(people)["look"]["kept"] == []


def test_a_file_that_came_after_the_look_is_looked_at_too(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_named())
    people.advance()
    late = land(people, "late.parquet", category(*range(20, 29)))
    real, looks = sweep.search_files, []

    def look_and_race(*args: Any) -> None:
        real(*args)
        looks.append(len(args[1].files))
        if len(looks) == 1:
            people.ingest(late)

    monkeypatch.setattr(sweep, "search_files", look_and_race)
    people.collect()
    assert looks == [1, 2]
    assert people.finish().receipts
    assert receipt(people)["look"]["files"] == 2


def test_an_erasure_that_is_opened_meanwhile_has_a_look_of_its_own(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_named())
    people.advance()
    real, looks = sweep.search_files, []

    def look_and_race(*args: Any) -> None:
        real(*args)
        looks.append(set(args[1].asked))
        if len(looks) == 1:
            people.erase(is_who(999), request="case-2")

    monkeypatch.setattr(sweep, "search_files", look_and_race)
    people.collect()
    assert looks[0] == {"case-1"} and "case-2" in looks[-1]
    assert people.finish().receipts
    assert [receipt(people, name)["look"]["files"] for name in ("case-1", "case-2")] == [1, 1]


def test_metadata_and_tags_of_files_that_older_libraries_copied_are_named(people: People) -> None:
    people.append(*ids_with(WHO))
    people.ingest(land(people, "a.parquet", category(*range(20, 29), with_her=False)))
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    key = people.ctx.key(entry.key)
    body = people.store.get(key).body
    people.store.put(
        key, body, metadata={"of": f"{NAME} and others"}, headers={"Tagging": f"who={NAME}&a=b"}
    )
    people.erase(is_named())
    assert people.finish().receipts
    assert {tuple(k) for k in receipt(people)["look"]["kept"]} == {
        ("object", entry.key, "metadata of"),
        ("object", entry.key, "header Tagging"),
    }


def test_a_file_that_cannot_be_searched_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_named())
    people.advance()
    people.time.sleep(1)
    people.ingest(land(people, "new.parquet", category(*range(20, 29))))
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    key = people.ctx.key(entry.key)
    whole = people.store.get(key).body
    people.store.put(key, whole[:-30] + bytes(30))
    people.ctx = replace(people.ctx, cache=type(people.ctx.cache)())
    people.collect()
    people.store.put(key, whole)
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert look["unsearched"] == 1
    assert [(k[0], k[1]) for k in look["kept"]] == [("unsearched", entry.key)]


def test_key_values_of_other_writers_that_stay_are_named(people: People) -> None:
    frame = pd.DataFrame(rows([*range(20, 26)]).to_pylist())
    frame.attrs["study"] = "S-1"
    sink = io.BytesIO()
    frame.to_parquet(sink, row_group_size=3)
    people.append(*ids_with(WHO))
    people.ingest(land(people, "a.parquet", sink.getvalue()))
    people.erase()
    assert people.finish().receipts
    names = receipt(people)["look"]["key_values"]
    assert (names["pandas"], names["PANDAS_ATTRS"]) == (1, 1)


def test_key_values_of_column_chunks_that_stay_are_named_too(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file counts once, however many chunks have the pair; one that names her goes."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    sink = io.BytesIO()
    pq.write_table(rows(list(range(20, 29))), sink, row_group_size=3)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    for at, group in enumerate(footer.tree[File.GROUPS]):
        said = [(b"unit", b"EUR"), *([(b"owner", NAME.encode())] if at == 1 else [])]
        pairs = [{KeyValue.KEY: key, KeyValue.VALUE: value} for key, value in said]
        for chunk in group[Group.COLUMNS]:
            chunk[Chunk.META][Meta.KEY_VALUES] = Items(STRUCT, pairs)
    body = body[: footer.start] + end_of_file(footer.tree)
    people.ingest(land(people, "a.parquet", body))
    people.erase(is_named())
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert (look["key_values"], look["kept"]) == ({"ARROW:schema": 1, "unit": 1}, [])
    assert people.found(Secret(NAME)) == []


def test_what_this_library_writes_names_nothing_but_its_rows(people: People) -> None:
    """So its own footers rule files out: a category or attribute that was appended is not a residue."""
    table = rows(list(range(6)))
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0, 1, 2], pa.int32()), ["a", "b", "c", NAME]
    )
    told = SCHEMA.with_metadata({"about": NAME}).set(
        1, pa.field("name", column.type, metadata={"x": NAME})
    )
    people.time.sleep(1)
    append(people.ctx, table.set_column(1, "name", column).cast(told))
    assert find(people.store, Secret(NAME)) == []


def test_the_look_asks_for_one_footer_of_a_file_that_bounds_rule_out(people: People) -> None:
    for start in range(0, 100, 10):
        people.append(*ids_with(start=start))
    people.append(*ids_with(WHO, start=200))
    people.erase()
    people.advance()
    meter = MeteredStore(people.store)
    worker = people.on(meter)
    worker.collect()
    look_key = [o.key for o in people.store.list("tables/people/evidence/") if "-look-" in o.key]
    assert len(look_key) == 1
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert (look["files"], look["judged_by_rows"], look["judged_by_own_bounds"]) == (11, 1, 10)
    # Small files come whole: one request each; the HEAD is of the one that surgery may have made.
    assert look["requests"] <= look["files"] + 1


def test_erasures_by_ranges_and_patterns_are_searched_by_evaluation(people: People) -> None:
    from inlay.format.predicate import And, Comparison, Like, Literal
    from inlay.format.schema import Primitive

    people.append(*ids_with(WHO))
    people.ingest(land(people, "a.parquet", category(*range(20, 29))))
    asked = And((Like(2, "zz-X%"), Comparison(1, ">", Literal(Primitive("int64"), 10))))
    people.erase(asked)
    assert people.finish().receipts
    assert people.found(Secret(NAME)) == []

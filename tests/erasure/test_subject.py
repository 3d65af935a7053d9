"""A person is found wherever a table has her, also where no condition names her."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.errors import InvalidRequest
from inlay.format.snapshot import Ref
from inlay.ops.erase.subject import search_subject
from inlay.ops.refs import branch
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import create
from inlay.ops.write.append import append

from .people import NAME, NOTE, WHO, People, ids_with, in_memory, is_who, new_people, rows

SHE = "mail@example.org"


def where(people: People, *texts: str, **options: Any) -> dict[tuple[int, str], int]:
    return dict(search_subject(people.ctx, texts, **options).by_column())


def test_rows_are_found_in_lists_and_structs_and_under_deletes(people: People) -> None:
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=40))
    people.delete(is_who())
    assert where(people, NAME, NOTE) == {(0, "name"): 1, (1, "visits.element.note"): 1}
    report = search_subject(people.ctx, [NAME])
    assert (report.files, report.rows[0].positions, report.is_nowhere) == (2, (10,), False)
    assert search_subject(people.ctx, ["nobody at all"]).is_nowhere


def test_another_rows_note_is_found(people: People) -> None:
    """What a receipt by a condition does not speak of."""
    people.append(*ids_with())
    named = rows([700]).set_column(2, "city", pa.array([f"invited by {SHE}"]))
    people.time.sleep(1)
    append(people.ctx, named)
    assert where(people, SHE) == {(0, "city"): 1}
    assert where(people, SHE.upper()) == {}
    assert where(people, SHE.upper(), ignore_case=True) == {(0, "city"): 1}


def test_maps_bytes_dropped_columns_branches_and_metadata() -> None:
    people = in_memory(3)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("tags", pa.map_(pa.string(), pa.string())),
            ("raw", pa.binary()),
            ("old", pa.string()),
        ]
    )
    create(people.ctx, schema)
    row = {"id": 1, "tags": [("a", "b"), (SHE, f"x {SHE}")], "raw": SHE.encode(), "old": SHE}
    append(
        people.ctx, pa.Table.from_pylist([{**row, "tags": [], "raw": b"", "old": ""}, row], schema)
    )
    branch(people.ctx, "work", Ref(kind="branch", version=people.snapshot.version))
    alter(people.ctx, evolution_of(people.snapshot.schema, drop=["old"]))
    alter(
        people.ctx,
        evolution_of(people.snapshot.schema, add={"s": pa.string()}, comment={"id": SHE}),
    )
    assert where(people, SHE) == {
        (0, "tags.key"): 1,
        (0, "tags.value"): 1,
        (0, "raw"): 1,
        (0, "old"): 1,
    }
    elsewhere = search_subject(people.ctx, [SHE]).elsewhere
    assert [(p.kind, p.name, p.detail) for p in elsewhere] == [("column", "id", "its comment")]


def test_unused_dictionary_entries_of_other_writers_are_found(people: People) -> None:
    """Beside the rows: her name is in no row, but in the category's list."""
    table = rows([1, 2])
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b", NAME]))
    sink = io.BytesIO()
    pq.write_table(table.set_column(1, "name", names), sink)
    people.time.sleep(1)
    people.store.put("ingest/people/x.parquet", sink.getvalue())
    from inlay.storage.base import Location

    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    report = search_subject(people.ctx, [NAME])
    assert report.rows == () and any("dictionary" in p.detail for p in report.elsewhere)


@pytest.mark.parametrize("seed", range(5))
def test_every_place_where_a_text_was_planted_is_found(seed: int) -> None:
    rng = random.Random(seed)
    people = new_people()
    planted: dict[tuple[int, str], int] = {}
    for start in range(0, 60, 20):
        table = rows(list(range(start, start + 20))).to_pylist()
        for row in table:
            for text, path in ((0, "name"), (1, "city"), (0, "visits.element.note")):
                if rng.random() < 0.1:
                    value = f"…{(SHE, 'tel 555')[text]}!"
                    if path == "visits.element.note":
                        row["visits"][rng.randrange(2)]["note"] = value
                    else:
                        row[path] = value
                    planted[text, path] = planted.get((text, path), 0) + 1
        people.time.sleep(1)
        append(people.ctx, pa.Table.from_pylist(table, rows([]).schema))
    assert where(people, SHE, "tel 555") == planted


def test_without_a_text_nothing_is_searched(people: People) -> None:
    for texts in ([], [""]):
        with pytest.raises(InvalidRequest, match="no text"):
            search_subject(people.ctx, texts)

"""What this library wrote as a whole is its own, wherever the rows came from: bounds of it are believed."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from inlay.format.entry import DataFile
from inlay.format.snapshot import Ref
from inlay.ops.commit.driver import commit
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.refs import branch, merge
from inlay.ops.write.append import append
from inlay.plan.change import AddFiles, Change, RemoveFiles, SetProperties
from inlay.storage.wrapped import MeteredStore

from .people import People, is_who, new_people, rows
from .test_foreign_statistics import landed

BIG = "inlay.plan.surgery.SMALL_FILE_BYTES"


def foreign_file(*ids: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(list(ids)), sink, row_group_size=8)
    return sink.getvalue()


def files(people: People) -> list[DataFile]:
    return list(load_entries(people.ctx, load_pointer(people.ctx).state).files())


@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("came", ["appended", "landed"])
def test_a_file_is_as_foreign_as_the_bytes_that_were_taken_over(came: str, way: str) -> None:
    people = new_people()
    if came == "appended":
        append(people.ctx, rows(list(range(30))))
    else:
        landed(people, foreign_file(*range(30)))
    people.delete(is_who(7))
    rewrite(people.ctx, strategy=way)
    [entry] = files(people)
    assert entry.origin is not None and entry.rows == 29
    assert entry.is_foreign is (came == "landed" and way == "surgery")
    compact(people.ctx)


def test_an_erasure_does_not_read_again_what_surgery_made_of_own_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BIG, 0)
    people = new_people()
    for start in range(0, 200, 20):
        people.append(*range(start, start + 20))
    for n in range(10):  # each file loses a row
        people.erase(is_who(n * 20 + 3), f"first {n}")
    assert len(people.finish().receipts) == 10
    assert all(f.origin is not None and not f.is_foreign for f in files(people))
    people.erase(is_who(45), "second")
    meter = MeteredStore(people.store)
    result = people.on(meter).advance()
    assert (result.files, result.removed_rows) == (1, 1)
    # The pointer, and one file: nothing of the nine others.
    assert meter.usage().requests["get"] <= 6


def test_rows_that_ingest_cut_by_partition_are_own() -> None:
    people = new_people()
    reencode = SetProperties({"ingest.unused_dictionary_entries": "reencode"})
    commit(people.ctx, Change(operation="set_properties", updates=(reencode,)))
    table = rows(list(range(30)))
    coded = table["city"].combine_chunks().dictionary_encode()
    more = type(coded).from_arrays(coded.indices, [*coded.dictionary.to_pylist(), "nowhere"])
    sink = io.BytesIO()
    pq.write_table(table.set_column(2, "city", more), sink)
    landed(people, sink.getvalue())
    [entry] = files(people)
    assert entry.event is not None and not entry.is_foreign


def test_a_merge_keeps_what_says_that_a_file_is_foreign() -> None:
    """Older libraries gave what surgery made of an ingested file an origin, and no event."""
    people = new_people()
    append(people.ctx, rows([500]))
    branch(people.ctx, "work", Ref(kind="branch", version=people.snapshot.version))
    work = replace(people, ctx=replace(people.ctx, branch="work"))
    landed(work, foreign_file(*range(30)))
    work.delete(is_who(7))
    rewrite(work.ctx, strategy="surgery")
    loaded = load_pointer(work.ctx)
    state = load_entries(work.ctx, loaded.state)
    [cut] = [f for f in state.files() if f.is_foreign]
    legacy = replace(cut, event=None, sequence=None)
    body = people.store.get(people.ctx.key(cut.key)).body
    people.time.sleep(1)
    legacy = replace(legacy, key=legacy.key.replace(".parquet", "")[:-1] + "f.parquet")
    people.store.put(people.ctx.key(legacy.key), body)
    people.time.sleep(1)
    now = load_pointer(work.ctx)
    updates = (AddFiles((legacy,)), RemoveFiles((cut.key,)))
    change = Change(operation="rewrite", updates=updates, uploaded_us=now.date_us)
    commit(work.ctx, change, base=now)
    merge(people.ctx, "work")
    [found] = [f for f in files(people) if f.key == legacy.key]
    assert found.is_foreign
    people.erase(is_who(8))
    assert people.finish().receipts
    assert sorted(people.ids()) == [n for n in [*range(30), 500] if n not in (7, 8)]

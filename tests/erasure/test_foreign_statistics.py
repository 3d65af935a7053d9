"""An erasure leaves nothing out, and drops nothing, on the word of another writer.

parquet-mr 1.8.2 states a minimum of 2.00 for `fixed_length_decimal.parquet` of parquet-testing, which has
1.00 in it. Here any file's statistics are made to say so.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.predicate import Comparison, In, Literal, Operator, Predicate
from inlay.format.schema import Primitive
from inlay.ops.commit.driver import commit
from inlay.ops.write.append import append
from inlay.parquet.footer.fields import File, Meta, Stats
from inlay.parquet.footer.footer import MAGIC, decode_footer, end_of_file
from inlay.plan.change import Change, SetProperties
from inlay.storage.base import Location

from .people import People, new_people, rows

LONG = Primitive("int64")


def with_bounds(body: bytes, low: int, high: int, *, created_by: bytes | None = None) -> bytes:
    """The same file, whose footer says that every `id` is from `low` to `high`."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        stats = dict(group.column(0).statistics or {})
        for key, value in ((Stats.MIN, low), (Stats.MAX, high)):
            stats[key] = value.to_bytes(8, "little", signed=True)
        stats.pop(Stats.OLD_MIN, None)
        stats.pop(Stats.OLD_MAX, None)
        group.column(0).meta[Meta.STATISTICS] = stats
    if created_by is not None:
        footer.tree[File.CREATED_BY] = created_by
    return body[: footer.start] + end_of_file(footer.tree)


def landed(people: People, body: bytes, *, adopt: bool = False) -> None:
    """As a file that nobody compared with its statistics, say by an older library."""
    people.time.sleep(1)
    unchecked = SetProperties({"ingest.check_statistics": "none"})
    commit(people.ctx, Change(operation="touch", updates=(unchecked,)))
    assert body[:4] == MAGIC
    people.store.put("ingest/people/x.parquet", body)
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"), adopt=adopt)


def wrong_file(low: int, high: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows([1, *range(20, 40)]), sink, row_group_size=8)
    # "parquet-cpp-arrow" is what this library's own files say as well.
    return with_bounds(sink.getvalue(), low, high)


def compared(op: Operator, value: int) -> Predicate:
    return Comparison(1, op, Literal(LONG, value))


@pytest.mark.parametrize("adopt", [False, True], ids=["copied", "adopted"])
@pytest.mark.parametrize(
    "predicate",
    [compared("=", 1), In(1, LONG, (1, 2)), compared("<", 10)],
    ids=["equal", "in", "below"],
)
def test_rows_that_statistics_deny_are_erased(predicate: Predicate, adopt: bool) -> None:
    people = new_people()
    landed(people, wrong_file(20, 39), adopt=adopt)
    people.erase(predicate)
    people.finish()
    body = next(
        v.body
        for key, versions in people.store._bucket.versions.items()
        for v in versions
        if "/data/" in key or (key.endswith(".parquet") and "tables/" in key)
    )
    assert pq.read_table(io.BytesIO(body))["id"].to_pylist() == list(range(20, 40))


def test_readers_do_not_see_them_as_soon_as_the_erasure_is_open() -> None:
    people = new_people()
    landed(people, wrong_file(20, 39))
    people.erase(compared("=", 1))
    assert sorted(people.ids()) == list(range(20, 40))


@pytest.mark.parametrize("op", [">=", ">"])
def test_rows_that_statistics_claim_to_match_stay(op: Operator) -> None:
    """By the bounds every row matches: the file, and each row group, would go whole."""
    people = new_people()
    landed(people, wrong_file(20, 39))
    append(people.ctx, rows([7, 50, 51]))
    people.erase(compared(op, 19))
    assert sorted(people.ids()) == [1, 7]
    assert people.finish().receipts
    assert sorted(people.ids()) == [1, 7]


def test_a_file_that_surgery_made_of_a_foreign_one_is_foreign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What surgery does not touch, it takes over with its statistics."""
    monkeypatch.setattr("inlay.plan.surgery.SMALL_FILE_BYTES", 0)
    people = new_people()
    sink = io.BytesIO()
    pq.write_table(rows([1, *range(20, 52)]), sink, row_group_size=8)
    landed(people, with_bounds(sink.getvalue(), 20, 51))
    people.erase(compared("=", 50), "first")
    assert people.finish().receipts
    people.erase(compared("=", 1), "second")
    assert people.finish().receipts
    assert sorted(people.ids()) == [n for n in range(20, 52) if n != 50]


def test_own_files_are_left_out_by_their_statistics() -> None:
    people = new_people()
    people.append(*range(20, 40))
    people.append(*range(100, 120))
    before = {f for f in people.store._bucket.versions if "/data/" in f}
    people.erase(compared("=", 105))
    people.advance()
    after = {f for f in people.store._bucket.versions if "/data/" in f}
    assert len(after - before) == 1


def test_own_writer_makes_no_dictionary_of_what_rows_lack() -> None:
    """It relies on this: only foreign files are searched for values that no row has."""
    people = new_people()
    table = rows([1, 2, 3])
    coded = pa.DictionaryArray.from_arrays([0, 1, 0], ["city 1", "city 2", "a city of nobody"])
    append(people.ctx, table.set_column(2, "city", coded))
    bodies = [v.body for vs in people.store._bucket.versions.values() for v in vs]
    assert all(b"nobody" not in body for body in bodies)

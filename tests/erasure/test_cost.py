"""What an erasure asks of the store, counted: a file is read once, however many erasures there are."""

from __future__ import annotations

import io
import random
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.faults import Fate, FaultyStore, Sent

from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.erase.request import advance_erasures
from inlay.ops.write.append import append
from inlay.storage.base import Location
from inlay.storage.wrapped import MeteredStore, Usage

from .people import People, new_people

GROUPS, ROWS, PAYLOAD = 20, 40, 4_000
SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string()), ("payload", pa.binary())])


def table(emails: list[str]) -> pa.Table:
    dice = random.Random(3)
    payload = [dice.randbytes(PAYLOAD) for _ in emails]
    return pa.table([range(len(emails)), emails, payload], schema=SCHEMA)


def file_of(emails: list[str], *more: str) -> bytes:
    """Row groups lie further apart than requests are merged over; a dictionary with `more` in each."""
    made = table(emails)
    names = [*dict.fromkeys(emails), *more]
    indices = pa.array([names.index(e) for e in emails], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, names)
    sink = io.BytesIO()
    pq.write_table(made.set_column(1, "email", column), sink, row_group_size=ROWS)
    assert sink.tell() > GROUPS * ROWS * PAYLOAD
    return sink.getvalue()


def landed(body: bytes, schema: pa.Schema = SCHEMA) -> People:
    people = new_people(schema, primary_key=(), row_group_rows=ROWS)
    people.time.sleep(1)
    people.store.put("ingest/people/x.parquet", body)
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    return people


def is_(who: str) -> Predicate:
    return Comparison(2, "=", Literal(Primitive("string"), who))


def advance(people: People) -> tuple[Usage, object]:
    people.time.sleep(1)
    meter = MeteredStore(people.store)
    fresh = replace(people.ctx, store=meter, cache=type(people.ctx.cache)())
    result = advance_erasures(fresh)
    return meter.usage(), result


EMAILS = [f"person{n:04}@example.com" for n in range(GROUPS * ROWS)]


@pytest.mark.parametrize("erasures", [1, 25])
def test_a_file_of_another_writer_is_read_once_to_judge_and_search_it(erasures: int) -> None:
    """Its footer, a range for each row group, and page indexes; pointer and status besides."""
    people = landed(file_of(EMAILS))
    for n in range(erasures):
        people.erase(is_(f"nobody{n}@example.com"), f"case {n}")
    usage, result = advance(people)
    assert result.files == 1 and result.removed_rows == 0  # type: ignore[attr-defined]
    assert usage.requests["get"] <= GROUPS + 6


def test_what_only_the_dictionaries_name_is_found_for_as_many_requests() -> None:
    found = {}
    for erasures in (1, 25):
        gone = [f"gone{n}@example.com" for n in range(25)]
        people = landed(file_of(EMAILS, *gone))
        for n in range(erasures):
            people.erase(is_(gone[n]), f"case {n}")
        found[erasures] = advance(people)[0]
    assert found[25].requests["get"] == found[1].requests["get"] <= 2 * GROUPS + 10


def test_rows_of_many_erasures_are_counted_by_one_look_at_a_file() -> None:
    found = {}
    for erasures in (1, 25):
        people = new_people(SCHEMA, primary_key=(), row_group_rows=ROWS)
        people.time.sleep(1)
        append(people.ctx, table(EMAILS))
        # All in two row groups, so that surgery has the same to do.
        for n in range(erasures):
            people.erase(is_(EMAILS[ROWS * (n % 2) + n]), f"case {n}")
        if erasures == 1:
            people.erase(is_(EMAILS[ROWS + 1]), "case 1")
        usage, result = advance(people)
        assert result.removed_rows == max(erasures, 2)  # type: ignore[attr-defined]
        counted = {e.id: (e.objects, e.rows) for e in people.snapshot.erasures}
        assert set(counted.values()) == {(1, 1)} and len(counted) == max(erasures, 2)
        found[erasures] = usage.requests["get"]
    assert found[25] == found[1], found


def test_each_older_version_is_read_once_by_the_run_that_forgets_it() -> None:
    """To name originals of adopted files, and to collect garbage: both need what every version needed."""
    people = new_people()
    for n in range(30):
        people.append(*range(10 * n, 10 * n + 3))
    people.erase(is_("nobody"))
    people.advance()
    read: list[str] = []

    def note(sent: Sent) -> Fate:
        read.extend([sent.key] if sent.verb == "get" else [])
        return Fate.DONE

    people.on(FaultyStore(people.store, note)).collect()
    assert people.snapshot.erasures[0].phase == "purge"
    archives = Counter(key for key in read if "/manifest/" in key)
    assert len(archives) >= 30 and set(archives.values()) == {1}, archives


def test_another_column_of_text_costs_its_dictionaries() -> None:
    """A range more for each row group, of its dictionary alone; columns of other types cost nothing."""
    found = {}
    for more in (False, True):
        made = table(EMAILS)
        if more:
            made = made.append_column("note", pa.array(["some note"] * len(EMAILS)))
        sink = io.BytesIO()
        pq.write_table(made, sink, row_group_size=ROWS)
        people = landed(sink.getvalue(), made.schema)
        people.erase(is_("nobody@example.com"))
        found[more] = advance(people)[0]
    requests = found[True].requests["get"] - found[False].requests["get"]
    assert requests == GROUPS
    assert 0 < found[True].bytes_down - found[False].bytes_down < GROUPS * 1_000

"""The order of a category names values of rows: those of the erased alone do not survive the receipt."""

from __future__ import annotations

import pyarrow as pa
import pytest

from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.properties import ARROW_CATEGORIES, arrow_categories
from inlay.format.schema import Primitive
from inlay.ops.metadata.load import load_pointer
from inlay.ops.refs import branch
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete

from .oracle import Secret, find
from .people import People, in_memory

PERSON = "Xanthippe-zz-90c1"
ENTRIES = ["low", PERSON, "middle", "high", "top"]
SECRETS = (Secret(PERSON),)


def rows(people: list[tuple[int, str]], entries: list[str] = ENTRIES) -> pa.Table:
    at = {entry: n for n, entry in enumerate(entries)}
    indices = pa.array([at[name] for _, name in people], pa.int8())
    level = pa.DictionaryArray.from_arrays(indices, pa.array(entries), ordered=True)
    return pa.table({"id": pa.array([number for number, _ in people], pa.int64()), "level": level})


def table_of(*given: list[tuple[int, str]], entries: list[str] = ENTRIES) -> People:
    people = in_memory(7)
    create(people.ctx, rows([]).schema)
    for each in given:
        people.time.sleep(1)
        append(people.ctx, rows(each, entries))
    return people


def entries_of(people: People) -> tuple[str, ...]:
    return arrow_categories(load_pointer(people.ctx).snapshot.properties)[2]


def is_row(number: int) -> Predicate:
    return Comparison(1, "=", Literal(Primitive("int64"), number))


def test_an_entry_of_the_erased_row_alone_is_dropped():
    people = table_of([(1, "low"), (7, PERSON), (2, "top")], [(3, "high")])
    assert PERSON in entries_of(people) and find(people.store, *SECRETS)
    people.erase(is_row(7))
    assert people.finish().receipts
    assert find(people.store, *SECRETS) == []
    assert entries_of(people) == ("low", "high", "top")


def test_an_entry_that_another_row_has_stays_in_its_place():
    people = table_of([(1, "low"), (7, PERSON), (2, "top")], [(8, PERSON)])
    people.erase(is_row(7))
    assert people.finish().receipts
    assert entries_of(people) == ("low", PERSON, "top")


def test_an_entry_of_a_row_that_was_deleted_before_is_dropped():
    people = table_of([(1, "low"), (7, PERSON)])
    people.time.sleep(1)
    delete(people.ctx, is_row(7))
    people.erase(is_row(7))
    assert people.finish().receipts
    assert find(people.store, *SECRETS) == []


def test_an_entry_that_a_branch_has_stays():
    people = table_of([(1, "low"), (2, "middle")])
    loaded = load_pointer(people.ctx)
    from inlay.format.snapshot import Ref

    branch(people.ctx, "b", Ref(kind="branch", version=loaded.snapshot.version))
    delete(people.ctx, is_row(2))
    people.erase(is_row(7))
    assert people.finish().receipts
    assert entries_of(people) == ("low", "middle")


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_data_that_still_lists_it_does_not_bring_it_back_while_the_erasure_is_open(step):
    people = table_of([(1, "low"), (7, PERSON), (2, "top")])
    people.erase(is_row(7))
    results = []
    for n in range(8):
        if n == step:
            people.time.sleep(1)
            append(people.ctx, rows([(9, "high")]))
        people.time.sleep(1000)
        people.advance()
        results.append(people.collect())
        if results[-1].receipts:
            break
    assert results[-1].receipts
    assert find(people.store, *SECRETS) == []
    assert [e for e in entries_of(people) if e != "high"] == ["low", "top"]


def test_the_ids_of_columns_are_not_taken_for_an_erased_number():
    """Column 2 is in the properties that say its type and its order."""
    people = table_of([(1, "low"), (2, PERSON), (3, "top")])
    people.erase(is_row(2))
    [receipt] = people.finish().receipts
    body = people.store.get(people.ctx.key(receipt)).body
    assert b"arrow." not in body


def test_a_damaged_property_goes_as_a_whole():
    from inlay.ops.commit.driver import commit
    from inlay.plan.change import Change, SetProperties

    people = table_of([(1, "low"), (7, PERSON)])
    update = SetProperties({ARROW_CATEGORIES: f'{{"2": ["{PERSON}"'})
    commit(people.ctx, Change(operation="set_properties", updates=(update,)))
    people.erase(is_row(7))
    assert people.finish().receipts
    assert find(people.store, *SECRETS) == []

"""Landed objects, older than the erasure and not ingested yet, that name the person beside their rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from inlay.format.predicate import And, Comparison, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.request import erase_status
from inlay.storage.wrapped import MeteredStore, Usage

from .oracle import Secret
from .people import NAME, WHO, People, ids_with, is_named, new_people, rows
from .test_landing import _forget_the_ledger
from .test_last_look import category, land
from .test_receipt import receipt

HERS = Secret(NAME)


def plain(*ids: int, **pairs: str) -> bytes:
    sink = io.BytesIO()
    table = rows(list(ids)).replace_schema_metadata(pairs)
    pq.write_table(table, sink, row_group_size=3, use_dictionary=False)
    return sink.getvalue()


OTHERS = tuple(range(20, 29))
# Each with the object's own metadata and headers.
NAMING: dict[str, Callable[[], tuple[bytes, dict[str, Any]]]] = {
    "a category": lambda: (category(*OTHERS), {}),
    "a key-value": lambda: (plain(*OTHERS, owner=NAME), {}),
    "no rows": lambda: (plain(owner=NAME), {}),
    "its metadata": lambda: (plain(*OTHERS), {"metadata": {"of": NAME}}),
    "its headers": lambda: (plain(*OTHERS), {"headers": {"ContentDisposition": f"a; b={NAME}"}}),
}


@pytest.mark.parametrize("predicate", [is_named(), Like(2, f"{NAME[:8]}%")], ids=["equal", "like"])
@pytest.mark.parametrize("how", NAMING)
def test_it_is_waited_for_and_comes_in_clean(
    any_people: People, how: str, predicate: Predicate
) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    body, described = NAMING[how]()
    pending = land(people, "pending.parquet", body, **described)
    people.erase(predicate)
    assert people.finish().receipts == ()
    [status] = erase_status(people.ctx, landing="ingest/people/")
    [waiting] = status.waiting
    assert (waiting.what, waiting.name) == ("landing", pending.key)
    assert "beside its rows" in waiting.reason
    people.ingest(pending)
    assert people.finish().receipts
    assert people.found(HERS) == []
    assert people.ids() == [*range(10), *(OTHERS if how != "no rows" else ())]
    assert receipt(people)["look"]["kept"] == []
    assert receipt(people)["came_after_look"] == {"count": 0, "files": []}


def test_it_is_waited_for_until_its_owner_deletes_it(people: People) -> None:
    people.append(*ids_with(WHO))
    pending = land(people, "pending.parquet", category(*OTHERS))
    people.erase(is_named())
    assert people.finish().receipts == ()
    people.store.delete([pending.key])
    assert people.finish().receipts
    assert people.found(HERS) == []


def test_what_the_ledger_has_forgotten_is_deleted(people: People) -> None:
    """It was ingested long ago, or refused for good."""
    people.append(*ids_with(WHO))
    old = land(people, "old.parquet", category(*OTHERS))
    _forget_the_ledger(people)
    people.erase(is_named())
    assert people.finish().receipts
    assert old.key not in [o.key for o in people.store.list("ingest/")]
    assert people.found(HERS) == []


def test_what_may_name_her_stays_and_is_counted(people: People) -> None:
    people.append(*ids_with(WHO))
    land(people, "a.parquet", plain(*OTHERS, owner=NAME))
    land(people, "b.parquet", plain(*OTHERS), metadata={"of": NAME})
    land(people, "c.parquet", plain(*OTHERS))
    low, high = (Literal(Primitive("string"), text) for text in ("zz-X", "zz-Y"))
    people.erase(And((Comparison(2, ">=", low), Comparison(2, "<", high))))
    assert people.finish().receipts
    body = receipt(people)
    assert body["look"]["perhaps"] == [["landed object", "", 2]]
    assert body["landing_older_objects"] == 3
    named = verify_receipt(people.ctx, "case-1").named
    assert any("3 objects older than the erasure" in text for text in named)
    assert any(text.startswith("landed object (2)") for text in named)


def test_files_that_came_after_the_last_look_are_counted(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_named())
    people.advance()
    people.collect()  # the predicate is forgotten
    assert people.snapshot.erasures[0].predicate is None
    people.ingest(land(people, "new.parquet", category(*OTHERS)))
    assert people.finish().receipts
    came = receipt(people)["came_after_look"]
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    assert came == {"count": 1, "files": [entry.key]}
    assert "1 data files came after" in "".join(verify_receipt(people.ctx, "case-1").named)
    assert {found.split("@")[0] for found in people.found(HERS)} <= {
        f"tables/people/{entry.key}",
        "ingest/people/new.parquet",
    }


def test_an_older_content_under_a_newer_one_is_searched_as_well() -> None:
    """Each by its version id, its metadata too."""
    people = new_people(versioned=True)
    people.append(*ids_with(WHO))
    first = land(people, "daily.parquet", plain(*OTHERS), metadata={"of": NAME})
    [version] = people.store.list_versions(first.key)
    land(people, "daily.parquet", plain(*range(30, 39)))
    people.erase(is_named())
    assert people.finish().receipts == ()
    people.ingest(first, version_id=version.version_id)
    assert people.finish().receipts
    assert people.found(HERS) == []


def test_a_landed_object_that_names_nobody_costs_two_gets_and_a_head() -> None:
    def asked(landed: int) -> Usage:
        people = new_people()
        people.append(*ids_with(WHO))
        for n in range(landed):
            land(people, f"{n}.parquet", plain(*range(100 * n, 100 * n + 9)))
        people.time.sleep(1)
        people.erase(is_named())
        people.advance()
        store = MeteredStore(people.store)
        people.on(store).collect()
        return store.usage()

    more = asked(5) - asked(0)
    assert {name: n for name, n in more.requests.items() if n} == {"get": 10, "head": 5}

"""Files that the table adopted and no longer uses: no erasure can delete them, so receipts name them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlay.format.snapshot import Ref
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.refs import branch, drop
from inlay.storage.base import Location

from .people import NAME, WHO, People, ids_with
from .test_receipt import receipt


def adopted(people: People, name: str, *ids: int) -> str:
    """The URI of a file that the table reads where it is."""
    landed = people.land(name, *ids)
    people.store.put(f"else/{name}", people.store.get(landed.key).body)
    people.store.delete([landed.key])
    done = people.ingest(Location("memory", "b", f"else/{name}"), adopt=True)
    assert done.write.committed, done.outcomes
    return f"memory://b/else/{name}"


def still_there(people: People) -> list[str]:
    named = verify_receipt(people.ctx, "case-1").named
    return [line.split()[1] for line in named if line.endswith("of an adopted file still exists")]


def test_originals_are_named_whatever_replaced_them(any_people: People) -> None:
    people = any_people
    cut = adopted(people, "cut.parquet", *ids_with(WHO))
    emptied = adopted(people, "emptied.parquet", WHO)
    packed = [adopted(people, f"p{n}.parquet", *ids_with(start=20 * n)) for n in (1, 2)]
    assert compact(people.ctx).commits
    stays = adopted(people, "stays.parquet", *ids_with(start=80))
    branch(people.ctx, "work", Ref(kind="branch", version=people.snapshot.version))
    of_branch = replace(people, ctx=replace(people.ctx, branch="work"))
    on_branch = adopted(of_branch, "branch.parquet", *ids_with(start=100))
    drop(people.ctx, "work")
    people.erase()
    done = people.finish()
    assert done.receipts
    look = receipt(people)["look"]
    gone = sorted([cut, emptied, *packed, on_branch])
    assert look["originals"] == [[name, 1] for name in gone]
    assert (look["originals_count"], look["originals_since"]) == (5, 1)
    assert stays in {f.key for f in people.snapshot.files.inline}
    assert still_there(people) == gone and verify_receipt(people.ctx, "case-1").problems == ()
    people.store.delete([cut.removeprefix("memory://b/")])
    assert still_there(people) == [name for name in gone if name != cut]


def test_originals_of_versions_that_expired_lately_are_named(people: People) -> None:
    """Who has opened one of them may still read it."""
    packed = [adopted(people, f"p{n}.parquet", *ids_with(WHO, start=20 * n)) for n in (1, 2)]
    assert compact(people.ctx).commits
    expire(people.ctx, days=0)
    people.erase()
    assert people.finish().receipts
    assert receipt(people)["look"]["originals"] == [[name, 1] for name in packed]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"name={NAME}/0.parquet", "memory://b/else/name=*/0.parquet"),
        ("name=somebody%20else/0.parquet", "memory://b/else/name=*/0.parquet"),
        (f"{NAME}.parquet", "(a name that may be data)"),
    ],
)
def test_no_value_in_the_path_of_an_original_gets_into_a_receipt(
    people: People, name: str, shown: str
) -> None:
    from .people import is_named

    uri = adopted(people, name, *ids_with(WHO))
    people.erase(is_named())
    assert people.finish().receipts
    assert receipt(people)["look"]["originals"] == [[shown, 1]]
    # The original itself is its owner's.
    own = uri.removeprefix("memory://b/")
    assert [f for f in people.found() if own not in f] == []
    named = verify_receipt(people.ctx, "case-1").named
    assert f"1 originals {shown} could not be looked for" in named


def test_landed_originals_that_an_erasure_deletes_are_counted(people: People) -> None:
    people.ingest(people.land(f"{NAME}.parquet", *ids_with(WHO)))
    people.ingest(people.land("b.parquet", *ids_with(start=20)))
    people.erase()
    assert people.finish().receipts
    body = receipt(people)
    assert sum(made["entries"] for made in body["gone"][:1]) == 2
    assert body["landing_older_objects"] == 0 and people.found() == []

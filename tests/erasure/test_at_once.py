"""Many erased by one request: one commit, and for each person a receipt that speaks of nobody else."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import Fate

from inlay.errors import InvalidRequest
from inlay.format.codec import decode_frame
from inlay.format.keys import receipt_key
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.erase.check_receipt import Asked, verify_receipt
from inlay.ops.erase.last_look import WITHHELD
from inlay.ops.erase.receipt import LIST_KIND
from inlay.ops.erase.request import MAX_AT_ONCE, advance_erasures, erase_status, open_each
from inlay.ops.erase.several import conditions_of_keys
from inlay.ops.metadata.load import load_pointer
from inlay.ops.schema.create import create
from inlay.plan.change import Request
from inlay.storage.wrapped import MeteredStore
from inlay.table import Table

from .crashes import Scene
from .people import KEY, People, in_memory, is_named, new_people, rows


def opened(people: People, keys: pa.Table, request: str = "all", **options: object) -> object:
    people.time.sleep(1)
    named = Request.of(request, body=str(keys))
    asked = conditions_of_keys(people.snapshot.schema, keys, named, **options)  # type: ignore[arg-type]
    return open_each(people.ctx, asked, request=named)


def ids_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def receipts(people: People, result: object) -> dict[str, dict[str, object]]:
    found = {}
    for key in result.receipts:  # type: ignore[attr-defined]
        got = people.store.get(people.ctx.key(key))
        body = decode_frame("erasure", got.body, key=key)
        found[body["id"]] = body
    return found


def test_one_commit_one_pass_and_a_receipt_for_each() -> None:
    people = new_people()
    people.append(*range(10))
    people.append(*range(100, 104))  # one file that two of them empty
    people.ingest(people.land("hers.parquet", 3, 50, 3, 51))
    before = people.snapshot.version
    outcome = opened(people, ids_of(3, 50, 7, 999))
    assert isinstance(outcome, Committed) and people.snapshot.version == before + 1
    assert people.ids() == [0, 1, 2, 4, 5, 6, 8, 9, 51, *range(100, 104)]
    assert isinstance(opened(people, ids_of(3, 50, 7, 999)), Skipped), "repeated"
    bodies = receipts(people, people.finish())
    assert {name: body["removed_rows"] for name, body in bodies.items()} == {
        "all.1": 3,
        "all.2": 1,
        "all.3": 1,
        "all.4": 0,
    }
    for name, body in bodies.items():
        text = json.dumps(body)
        assert not any(other in text for other in bodies if other != name)
        schema = people.snapshot.schema
        asked = conditions_of_keys(schema, ids_of(3, 50, 7, 999), Request.of("all"))[name]
        check = verify_receipt(people.ctx, name, asked=Asked(predicate=asked, key=KEY))
        assert check.problems == (), check.problems
    steps = Counter(
        decode_frame(LIST_KIND, people.store.get(info.key).body, key=info.key)["step"]
        for info in people.store.list(people.ctx.key("evidence/"))
    )
    assert steps["pass"] == 1


@pytest.mark.parametrize("seed", range(6))
def test_each_loses_what_it_would_lose_by_itself(seed: int) -> None:
    """Against a model: own and landed files, files that are emptied, persons in none or many, several keys
    for one person, keys of two columns."""
    random = Random(seed)
    people = new_people(row_group_rows=random.choice([2, 5, None]))
    rows_of: Counter[int] = Counter()
    for n in range(random.randint(2, 6)):
        ids = [random.randint(0, 30) for _ in range(random.randint(1, 12))]
        rows_of.update(ids)
        if random.random() < 0.5:
            people.append(*ids)
        else:
            people.ingest(people.land(f"{n}.parquet", *ids))
    asked = random.sample(range(40), 12)
    keys = pa.table({"id": asked})
    if random.random() < 0.5:
        keys = keys.append_column("name", rows(asked)["name"])
    names = [f"p{n // 2}" for n in range(12)] if random.random() < 0.5 else None
    opened(people, keys, **({} if names is None else {"ids": names}))
    bodies = receipts(people, people.finish())
    expected: Counter[str] = Counter()
    for n, who in enumerate(asked):
        expected[names[n] if names else f"all.{n + 1}"] += rows_of[who]
    assert {name: body["removed_rows"] for name, body in bodies.items()} == expected
    assert people.ids() == sorted(i for i in rows_of.elements() if i not in asked)


def test_a_column_that_is_called_by_what_another_asked_for_is_in_no_receipt_but_its_own() -> None:
    people = new_people()
    people.append(*range(10))
    table = Table(people.ctx, load_pointer(people.ctx))
    table.alter(add={"Ada Lovelace": pa.string()})
    named = {"hers": is_named("Ada Lovelace"), "his": is_named("Charles Babbage")}
    people.time.sleep(1)
    open_each(people.ctx, named, request=Request.of("all"))
    bodies: dict[str, Any] = receipts(people, people.finish())
    assert {name: body["look"]["kept"] for name, body in bodies.items()} == {
        "hers": [["column", WITHHELD, "its name"]],
        "his": [],
    }


def test_many_cost_what_a_few_cost_but_for_their_receipts() -> None:
    usages = []
    for many in (3, 30):
        people = new_people(row_group_rows=None)
        for n in range(4):
            people.ingest(people.land(f"{n}.parquet", *range(1000 * n, 1000 * n + 60)))
        people = people.on(MeteredStore(people.store))
        store = people.ctx.store
        assert isinstance(store, MeteredStore)
        before = store.usage()
        opened(people, ids_of(*(1000 * (n % 4) + n for n in range(many))))
        erase_status(people.ctx, landing="ingest/people/")
        advance_erasures(people.ctx)
        for _ in range(4):
            collect_garbage(people.ctx, life_seconds=900, hmac_key=KEY)
            people.time.sleep(1_000)
        usages.append(store.usage() - before)
    few, all_ = usages
    more = {verb: n - few.requests.get(verb, 0) for verb, n in all_.requests.items()}
    # A few, where markers are stored apart from the pointer.
    assert 27 <= more.pop("put") <= 30
    assert sum(more.values()) <= 6, more


def test_what_cannot_be_opened_whole_is_not_opened_at_all() -> None:
    people = new_people()
    people.append(*range(10))
    before = people.snapshot.version
    null = pa.table({"id": pa.array([1, None], pa.int64())})
    for keys, said, options in (
        (ids_of(*range(MAX_AT_ONCE + 1)), "more than one request may", {}),
        (null, "NULL", {}),
        (ids_of(), "there is none", {}),
        (ids_of(1, 2), "1 ids", {"ids": ["a"]}),
        (ids_of(1, 2), "too long", {"ids": ["a", "é" * 200]}),
    ):
        with pytest.raises(InvalidRequest, match=said):
            opened(people, keys, **options)
    assert people.snapshot.version == before
    opened(people, ids_of(1, 2), request="one")
    with pytest.raises(InvalidRequest, match=r"'one\.2' is open already"):
        opened(people, ids_of(5, 6), request="two", ids=["two.1", "one.2"])
    people.finish()
    assert people.store.get(people.ctx.key(receipt_key("one.2"))) is not None
    with pytest.raises(InvalidRequest, match=r"'one\.2' has ended"):
        opened(people, ids_of(5, 6), request="two", ids=["one.2", "one.20"])
    assert people.snapshot.erasures == ()


def test_of_a_table_by_its_handle() -> None:
    people = in_memory(3)
    create(people.ctx, pa.schema([("mail", pa.string()), ("n", pa.int32())]))
    t = Table(people.ctx, load_pointer(people.ctx))
    t.append(pa.table({"mail": ["a", "b", "c", "c"], "n": pa.array([1, 2, 3, 4], pa.int32())}))
    done = t.delete(keys={"mail": ["a", "c"]}, ids=["x-1", "x-2"], mode="erase")
    assert done.operation == "erase" and t.count() == 1
    assert [e.id for e in t.snapshot.erasures] == ["x-1", "x-2"]
    with pytest.raises(InvalidRequest, match="ids="):
        t.delete("n = 2", ids=["x"], mode="erase")
    past = Table(people.ctx, load_pointer(people.ctx), at=t.snapshot)
    for asked in ({"where": "n = 2"}, {"keys": {"n": [2]}}):
        with pytest.raises(InvalidRequest, match="in the past"):
            past.delete(**asked, mode="erase")  # type: ignore[arg-type]


def many(versioned: bool) -> People:
    people = new_people(versioned=versioned)
    people.append(*range(10))
    people.append(*range(100, 104))
    return people


def open_many(process: People) -> None:
    opened(process, ids_of(3, 100, 999))


def end_many(process: People) -> None:
    open_many(process)  # its message is delivered again
    process.advance()
    for _ in range(4):
        process.collect()
        process.time.sleep(1000)


def all_or_none(people: People) -> None:
    """One commit: whatever became of its requests, each key has an erasure, and one."""
    open_ = [erasure.id for erasure in people.snapshot.erasures]
    assert open_ == ["all.1", "all.2", "all.3"]
    assert people.ids() == [0, 1, 2, *range(4, 10), 101, 102, 103]


def each_has_ended(people: People) -> None:
    assert people.snapshot.erasures == ()
    assert people.ids() == [0, 1, 2, *range(4, 10), 101, 102, 103]
    keys = [info.key for info in people.store.list(people.ctx.key("erasure/"))]
    assert sorted(keys) == [people.ctx.key(f"erasure/all.{n}.json") for n in (1, 2, 3)]
    for n in (1, 2, 3):
        check = verify_receipt(people.ctx, f"all.{n}")
        assert (check.problems, check.missing) == ((), ()) and check.number is not None
    opened(people, ids_of(3, 100, 999))
    assert people.snapshot.erasures == (), "delivered once more"


@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_many_are_opened_once_whatever_becomes_of_a_request(versioned: bool) -> None:
    Scene(many, open_many, all_or_none).strike(versioned, tuple(Fate), 1)


# Together every request.
_FIRST = [1, *(pytest.param(n, marks=pytest.mark.wide) for n in range(2, 14))]


@pytest.mark.parametrize("first", _FIRST)
def test_many_end_once_whatever_becomes_of_a_request(first: int) -> None:
    fates = (Fate.UNSENT, Fate.LOST, Fate.TWICE, Fate.KILLED_BEFORE, Fate.KILLED_AFTER)
    Scene(many, end_many, each_has_ended).strike(bool(first % 2), fates, 13, first=first)


def test_what_an_erasure_asks_of_the_store_beside_data_and_receipts() -> None:
    """Each request with its reason: docs/benchmarks/index.md, "What an erasure asks of the store". A step
    that ends with a commit goes on with the table after it; what nothing was deleted from is listed once,
    the lists of the receipt with it; the look at the pointer that comes before a deletion is one; and
    collection takes the listing that the end was made on.
    """
    people = new_people(row_group_rows=None)
    for n in range(4):
        people.ingest(people.land(f"{n}.parquet", *range(1000 * n, 1000 * n + 60)))
    asked: list[tuple[str, str]] = []

    class Noting(MeteredStore):
        def _ask(self, asks: Any, send: Any) -> Any:
            key = asks.key.removeprefix(people.ctx.key(""))
            if not key.startswith(("data/", "ingest/", "erasure/")):
                kind = key.split("-")[1] if key.startswith("evidence/0") else key.rstrip("/")
                asked.append((asks.verb, re.sub(r"v\d{8}\.json", "version", kind)))
            return super()._ask(asks, send)

    people = people.on(Noting(people.store))
    opened(people, ids_of(*(1000 * (n % 4) + n for n in range(30))))
    steps = []
    for run in (advance_erasures, *[collect_garbage] * 3):
        before = len(asked)
        options = {} if run is advance_erasures else {"life_seconds": 900, "hmac_key": KEY}
        run(people.ctx, **options)
        steps.append(Counter(verb for verb, _ in asked[before:]))
        people.time.sleep(1_000)
    rewrite, forget, sweep, end = steps
    assert rewrite == {"get": 1, "put": 2}
    # The pointer and the six versions before it; three lists, two commits; collection looks as ever.
    assert forget == {"get": 7, "put": 7, "list": 2, "list_uploads": 1}
    # The last GET is the look before the deletion.
    assert sweep == {"get": 3, "put": 5, "list_versions": 1, "list": 2, "list_uploads": 2}
    # Nothing was left to delete: one listing, which shows the lists of the runs before and serves
    # collection, too. A run of its own reads these and the versions since the first sweep.
    assert end == {"get": 1 + 3 + 4, "put": 6, "list_versions": 1, "list_uploads": 1}

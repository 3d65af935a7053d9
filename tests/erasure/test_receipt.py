"""A receipt says what was found out, and can be held to the bucket at any later time."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.errors import CorruptTable, InvalidRequest
from inlay.format.codec import decode_frame
from inlay.format.predicate import Or
from inlay.format.snapshot import Ref
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.receipt import OUT_OF_REACH
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.refs import branch
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.plan.change import Request
from inlay.storage.base import Location
from inlay.storage.wrapped import MeteredStore

from .oracle import guess
from .people import NAME, SCHEMA, WHO, People, ids_with, is_named, is_who, new_people, rows
from .test_guesses import guesses


def receipt(people: People, name: str = "case-1") -> dict[str, Any]:
    key = f"tables/people/erasure/{name}.json"
    return decode_frame("erasure", people.store.get(key).body, key=key)


def named_like_her(people: People) -> None:
    """A file that, according to statistics, may have rows of her name."""
    people.time.sleep(1)
    append(people.ctx, rows([900, 901]).set_column(1, "name", pa.array(["a", "zzz"])))


def test_a_delete_that_names_her_after_the_purge_is_held_to_the_erasure(any_people: People) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    named_like_her(people)
    people.erase()
    people.advance()
    people.collect()
    [erasure] = people.snapshot.erasures
    assert erasure.phase == "purge"
    people.delete(is_named(), request=Request.of("late", body=str(is_named())))
    people.append(*ids_with(start=40))
    people.append(*ids_with(start=60))
    people.time.sleep(1000)
    [(_, waiting)] = people.collect().waiting
    assert (waiting.what, "committed since" in waiting.reason) == ("file", True)
    people.advance()
    assert people.finish().receipts
    assert people.found() == []
    assert guess(people.store, guesses()) == []
    assert receipt(people)["later_deletes"] == {"count": 0, "versions": [], "pending": []}
    assert verify_receipt(people.ctx, "case-1").problems == ()


@pytest.mark.parametrize("on_a_branch", [False, True])
def test_a_delete_that_names_her_in_the_last_phase_is_held_as_well(
    any_people: People, on_a_branch: bool
) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    named_like_her(people)
    if on_a_branch:
        branch(people.ctx, "work", Ref(kind="branch", version=people.snapshot.version))
    people.erase()
    people.advance()
    people.collect()
    people.time.sleep(1000)
    people.collect()
    [erasure] = people.snapshot.erasures
    assert erasure.phase == "sweep"
    where = replace(people, ctx=replace(people.ctx, branch="work" if on_a_branch else None))
    where.delete(is_named(), request=Request.of("late", body=str(is_named())))
    people.append(*ids_with(start=40))
    people.time.sleep(1000)
    waits = {w.what for _, w in people.collect().waiting}
    assert waits in ({"file"}, {"time"})  # on main the file has to be rewritten first
    people.advance()
    assert people.collect().receipts == ()
    [erasure] = people.snapshot.erasures
    assert erasure.phase == "sweep"
    assert people.finish().receipts
    assert people.found() == []
    assert guess(people.store, guesses()) == []
    assert receipt(people)["later_deletes"] == {"count": 0, "versions": [], "pending": []}
    assert verify_receipt(people.ctx, "case-1").problems == ()


def test_what_was_searched_in_part_is_named(people: People) -> None:
    """Another file's dictionary may have her city; the condition names her id alone."""
    people.append(*ids_with(WHO))
    sink = io.BytesIO()
    pq.write_table(rows([20, 21, 22]), sink)
    people.time.sleep(1)
    people.store.put("ingest/people/x.parquet", sink.getvalue())
    people.ingest(Location("memory", "b", "ingest/people/x.parquet"))
    people.erase()
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert (look["columns"], look["searched_in_part"]) == (["id"], 1)
    assert any("['id'] alone" in line for line in verify_receipt(people.ctx, "case-1").named)


def test_deletes_without_end_do_not_keep_an_erasure_open_for_ever(people: People) -> None:
    people.append(*ids_with(WHO))
    named_like_her(people)
    people.erase()
    people.advance()
    people.collect()
    receipts: list[str] = []
    for _ in range(12):
        people.delete(is_named())
        people.time.sleep(600)
        receipts += people.collect().receipts
    assert receipts == ["erasure/case-1.json"]
    later = receipt(people)["later_deletes"]
    assert later["count"] and later["pending"]
    assert any(
        "came after the sweep" in line for line in verify_receipt(people.ctx, "case-1").named
    )


def test_objects_of_unknown_kinds_are_named_and_stay(any_people: People) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    written = people.store.put("tables/people/exports/copy.csv", f"{WHO},{NAME}".encode())
    people.erase()
    assert people.finish().receipts
    unknown = receipt(people)["unknown_objects"]
    assert unknown["count"] == 1
    assert unknown["objects"][0][:2] == ["exports/copy.csv", written.etag]
    assert people.store.get("tables/people/exports/copy.csv").body
    assert "unknown object exports/copy.csv" in verify_receipt(people.ctx, "case-1").named


def test_a_default_that_is_what_was_erased_is_named(people: People) -> None:
    people.append(*ids_with())
    schema = people.snapshot.schema
    people.time.sleep(1)
    alter(
        people.ctx,
        evolution_of(schema, add={"alias": pa.string()}, defaults={"alias": "zz-default"}),
    )
    alias = people.snapshot.schema.column("alias")
    people.erase(is_alias(alias.id))
    assert people.finish().receipts
    assert receipt(people)["look"]["kept"] == [["default", "alias", "of the column"]]


def test_a_default_of_another_column_that_has_an_erased_value_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    people.time.sleep(1)
    schema = people.snapshot.schema
    added = {"alias": pa.string(), "friend": pa.int64(), "other": pa.string()}
    defaults = {"alias": f"known as {NAME}", "friend": WHO, "other": "nobody"}
    alter(people.ctx, evolution_of(schema, add=added, defaults=defaults))
    people.erase(Or((is_named(), is_who())))
    assert people.finish().receipts
    of_column = [["default", name, "of the column"] for name in ("alias", "friend")]
    assert receipt(people)["look"]["kept"] == of_column


def is_alias(field_id: int) -> Any:
    from inlay.format.predicate import Comparison, Literal
    from inlay.format.schema import Primitive

    return Comparison(field_id, "=", Literal(Primitive("string"), "zz-default"))


def test_it_says_what_is_out_of_reach_and_until_when(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.advance()
    for _ in range(3):
        people.collect(retention_days={"dead letters": 14})
        people.time.sleep(1000)
    body = receipt(people)
    until = {each["what"]: each["until_us"] for each in body["out_of_reach"]}
    assert set(until) == set(OUT_OF_REACH)
    assert until.pop("dead letters") == body["ended_us"] + 14 * 86_400_000_000
    # Nobody has said so of queues, but SQS keeps nothing longer.
    assert until.pop("messages in queues") == body["ended_us"] + 14 * 86_400_000_000
    assert set(until.values()) == {None}
    with pytest.raises(InvalidRequest, match="does not cover 'moon'"):
        people.erase(is_who(3), "case-2")
        people.collect(retention_days={"moon": 1})
    for wrong in (-1, float("nan"), float("inf"), 1e300, "14", True, None):
        with pytest.raises(InvalidRequest, match="dead letters cannot keep data for"):
            people.collect(retention_days={"dead letters": wrong})


@pytest.mark.parametrize("seed", range(4))
def test_a_receipt_holds_whatever_the_table_does_afterwards(seed: int) -> None:
    rng = random.Random(seed)
    people = new_people(versioned=bool(seed % 2))
    for start in range(0, 60, 20):
        people.append(*ids_with(WHO, start=start))
    people.ingest(people.land("a.parquet", *ids_with(WHO, start=80)))
    people.erase()
    assert people.finish().receipts
    for _ in range(8):
        match rng.randrange(5):
            case 0:
                people.append(*ids_with(start=rng.randrange(100, 900)))
            case 1:
                people.delete(is_who(rng.randrange(60)))
            case 2:
                compact(people.ctx)
            case 3:
                expire(people.ctx, days=0)
            case _:
                people.time.sleep(86_400 * 10)
                collect_garbage(people.ctx)
        found = verify_receipt(people.ctx, "case-1")
        assert found.problems == ()
        assert found.still_gone > 10


def test_what_contradicts_a_receipt_is_reported(any_people: People) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=20))
    bucket = people.store._bucket
    before = {k: list(v) for k, v in bucket.versions.items()}
    people.erase()
    people.finish()
    assert verify_receipt(people.ctx, "erasure/case-1.json").problems == ()
    gone = sorted(k for k in before if k not in bucket.versions and "/data/" in k)
    for version in before[gone[0]]:
        bucket.add(gone[0], version)
    [problem] = verify_receipt(people.ctx, "case-1").problems
    assert problem == f"{gone[0].removeprefix('tables/people/')} was deleted and exists again"
    people.store.delete_versions([(gone[0], v.version_id) for v in _versions(people, gone[0])])
    assert verify_receipt(people.ctx, "case-1").problems == ()
    people.store.put(gone[0], before[gone[0]][0].body)  # in a bucket with versions it is a new one
    [problem] = verify_receipt(people.ctx, "case-1").problems
    assert problem == f"{gone[0].removeprefix('tables/people/')} was deleted and exists again"
    people.store.delete_versions([(gone[0], v.version_id) for v in _versions(people, gone[0])])

    [kept] = [f.key for f in people.snapshot.files.inline if f.key.startswith("data/")][:1]
    body = people.store.get(people.ctx.key(kept)).body
    people.store.put(people.ctx.key(kept), body + b"x")
    problems = verify_receipt(people.ctx, "case-1").problems
    if people.store._bucket.versioning:  # the version that was there is there, but nobody reads it
        assert problems == (f"{kept} was written again, with another content",)
    else:
        assert problems == (f"{kept} has another content than it had",)
    people.store.put(people.ctx.key(kept), body)
    if people.store._bucket.versioning:  # it is still there for who asks for older versions
        assert verify_receipt(people.ctx, "case-1").problems == problems
        size = len(body) + 1
        others = [v for v in _versions(people, people.ctx.key(kept)) if v.size == size]
        people.store.delete_versions([(v.key, v.version_id) for v in others])
    assert verify_receipt(people.ctx, "case-1").problems == ()

    lists = [o.key for o in people.store.list("tables/people/evidence/") if "-left-" in o.key]
    people.store.put(lists[0], people.store.get(lists[0]).body[:-40] + b" " * 40)
    assert any("evidence/" in p for p in verify_receipt(people.ctx, "case-1").problems)
    people.store.put("tables/people/erasure/case-1.json", b"{}")
    with pytest.raises(CorruptTable):
        verify_receipt(people.ctx, "case-1")
    with pytest.raises(InvalidRequest, match="no receipt"):
        verify_receipt(people.ctx, "case-2")


def _versions(people: People, key: str) -> list[Any]:
    return [v for v in people.store.list_versions(key) if v.key == key]


def test_names_of_what_others_put_into_the_table_are_in_no_list(people: People) -> None:
    people.append(*ids_with(WHO))
    people.store.put(f"tables/people/data/2026/11/20/16/{NAME}.parquet", b"an orphan by her name")
    people.land(f"{NAME}.parquet", *ids_with(WHO, start=20))
    people.store.delete([f"ingest/people/{NAME}.parquet"])
    people.erase()
    assert people.finish().receipts
    assert people.found() == []


def test_many_erasures_share_one_pass(people: People) -> None:
    """Requests of what is not an erasure's own do not grow with their number."""

    def run(count: int) -> int:
        people = new_people()
        for start in range(0, 100, 10):
            people.append(*ids_with(start=start))
        for n in range(count):
            people.erase(is_who(n * 7), f"case-{n}")
        meter = MeteredStore(people.store)
        worker = people.on(meter)
        worker.advance()
        receipts: set[str] = set()
        for _ in range(3):
            receipts |= set(worker.collect().receipts)
            people.time.sleep(1000)
        receipts |= set(worker.collect().receipts)
        assert receipts == {f"erasure/case-{n}.json" for n in range(count)}
        assert verify_receipt(people.ctx, "case-0").problems == ()
        return meter.usage().total

    one, twelve = run(1), run(12)
    # Its receipt is a PUT, and each version since the oldest opening a GET when roots are gathered.
    assert twelve < 4 * one


def test_an_id_whose_receipt_is_there_is_refused_when_an_erasure_is_opened(people: People) -> None:
    """Of a table that was removed and created again: the receipt of the first one stays. The second one's
    could not be written, so that its erasure never ended and every collection failed."""
    people.append(*ids_with(WHO))
    people.erase()
    people.finish()
    root = people.ctx.key("")
    of_the_first = people.store.get(f"{root}erasure/case-1.json").body
    names = [o.key[len(root) :] for o in people.store.list(root)]
    people.store.delete([root + n for n in names if not n.startswith(("erasure/", "evidence/"))])
    create(people.ctx, SCHEMA)
    people.append(*ids_with(WHO))
    with pytest.raises(InvalidRequest, match="'case-1' has ended"):
        people.erase()
    people.erase(request="case-2")
    assert people.finish().receipts
    assert people.store.get(f"{root}erasure/case-1.json").body == of_the_first

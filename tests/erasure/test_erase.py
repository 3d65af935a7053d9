"""An erased person is gone from every byte the table ever wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import FaultyStore

import inlay.ops.erase.finish as sweep
from inlay.errors import InvalidRequest, RequestReused, VersionNotFound
from inlay.format.snapshot import Note, Ref
from inlay.ops.commit.driver import Skipped, commit
from inlay.ops.erase.request import erase_status
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_version
from inlay.ops.refs import branch, tag
from inlay.ops.schema.create import set_partitioning
from inlay.ops.write.append import append
from inlay.plan.change import Change, Request, SetRefs
from inlay.storage.base import DeleteFailure, Location

from .oracle import Secret
from .people import CITY, KEY, NAME, SECRETS, WHO, People, ids_with, is_named, is_who, rows, touch


def test_readers_stop_seeing_the_rows_in_one_commit(people: People) -> None:
    people.append(*ids_with(WHO))
    version = people.snapshot.version
    people.erase()
    assert people.snapshot.version == version + 1
    assert people.ids() == list(range(10))


def test_nothing_of_the_person_is_left_anywhere(any_people: People) -> None:
    people = any_people
    for start in (0, 20, 40):
        people.append(*ids_with(WHO, start=start))
    people.append(*ids_with(start=60))
    people.delete(is_named())  # hides the rows, keeps the bytes, and names a secret
    people.append(*ids_with(WHO, start=80))
    people.delete(is_who(3), mode="vector")
    compact(people.ctx)
    people.append(*ids_with(WHO, start=100))
    before = people.ids()
    assert len(people.found()) > 20

    people.erase()
    result = people.finish()

    assert people.found() == []
    assert result.receipts == ("erasure/case-1.json",)
    assert people.snapshot.erasures == ()
    assert people.ids() == [i for i in before if i != WHO]


def test_what_was_said_of_commits_before_ends_with_their_versions(any_people: People) -> None:
    people = any_people
    people.append(1, 2, WHO)
    said = replace(people, ctx=replace(people.ctx, note=Note(f"for {NAME}", {"city": CITY})))
    said.append(3, 4)
    people.append(5)
    said.erase()
    assert people.found(Secret(NAME), Secret(CITY))
    people.append(6)
    assert people.finish().receipts == ("erasure/case-1.json",)
    assert people.found() == []


def receipt_of(people: People) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(people.store.get("tables/people/erasure/case-1.json").body)
    return body


def test_the_receipt_states_what_was_done_and_nothing_that_was_erased(people: People) -> None:
    people.append(*ids_with(WHO))
    people.append(*ids_with(WHO, start=20))
    opened = people.erase().loaded.snapshot
    people.finish()
    receipt = receipt_of(people)
    assert receipt["id"] == "case-1"
    assert receipt["opened_version"] == opened.version
    assert (receipt["rewritten_objects"], receipt["removed_rows"]) == (2, 2)
    assert receipt["deleted_objects"] > 2
    assert len(receipt["predicate_hmac_sha256"]) == 64
    assert (receipt["look"]["files"], receipt["look"]["judged_by_rows"]) == (2, 2)
    assert (receipt["look"]["kept"], receipt["unknown_objects"]["count"]) == ([], 0)
    again = people.store.get("tables/people/erasure/case-1.json").body
    people.finish()
    assert people.store.get("tables/people/erasure/case-1.json").body == again


@pytest.mark.parametrize("more", [0, 40])
def test_a_file_that_leaves_when_the_erasure_opens_is_counted(people: People, more: int) -> None:
    """All of its rows are hers by its bounds: the opening drops it, and no rewrite sees it."""
    people.append(WHO, WHO)
    for n in range(more):  # enough that entries are in a segment
        people.append(100 + n)
    people.append(*ids_with(WHO))
    people.append(WHO)
    people.erase()
    assert people.snapshot.totals.files == more + 1
    assert people.finish().receipts
    made = receipt_of(people)
    assert (made["rewritten_objects"], made["removed_rows"]) == (3, 4)
    assert people.found() == []


def test_without_a_key_the_receipt_has_no_digest_that_could_be_guessed(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.advance()
    for _ in range(3):
        people.collect(hmac_key=None)
        people.time.sleep(1000)
    receipt = json.loads(people.store.get("tables/people/erasure/case-1.json").body)
    assert receipt["predicate_hmac_sha256"] is None
    assert KEY


def test_each_phase_waits_for_its_time_and_says_so(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    [status] = erase_status(people.ctx)
    assert (status.phase, [w.what for w in status.waiting]) == ("rewrite", ["file"])
    waiting = people.collect().waiting
    assert [(i, w.what) for i, w in waiting] == [("case-1", "file")]
    people.advance()
    assert erase_status(people.ctx)[0].waiting == ()
    people.collect()
    assert erase_status(people.ctx)[0].phase == "purge"
    assert people.found()  # readers of old versions still have their files
    people.time.sleep(1000)
    people.collect()
    [status] = erase_status(people.ctx)
    assert (status.phase, status.text) == ("sweep", "")
    assert people.found() == []
    people.time.sleep(500)
    assert people.collect().receipts == ()
    people.time.sleep(500)
    assert people.collect().receipts == ("erasure/case-1.json",)


def test_time_travel_before_the_erasure_ends(people: People) -> None:
    people.append(*ids_with(WHO))
    opened = people.erase().loaded.snapshot.version
    people.finish()
    for version in range(1, opened + 1):
        with pytest.raises(VersionNotFound):
            load_version(people.ctx, people.snapshot, version)


def test_with_no_wait_one_collection_does_it_all(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.advance()
    result = people.collect(life_seconds=0)
    assert result.receipts == ("erasure/case-1.json",)
    assert people.found() == []


def test_an_erasure_of_rows_that_are_not_there_ends_as_well(people: People) -> None:
    people.append(*ids_with())
    people.erase()
    assert people.finish().receipts
    assert people.ids() == list(range(10))
    assert people.found() == []


def test_a_whole_file_of_the_person_is_dropped(people: People) -> None:
    people.append(WHO)
    people.append(*ids_with())
    people.erase()
    people.finish()
    assert people.found() == []
    assert people.ids() == list(range(10))


def test_rows_inserted_after_the_erasure_stay(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.append(WHO)
    people.finish()
    assert people.ids().count(WHO) == 1
    assert people.snapshot.erasures == ()


def test_orphans_uploads_and_late_uploads_go_too(any_people: People) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    secret = str(WHO).encode()
    people.store.put("tables/people/data/2026/11/20/16/orphan.parquet", secret)
    upload = people.store.create_multipart("tables/people/data/2026/11/20/16/part.parquet")
    people.store.upload_part("tables/people/data/2026/11/20/16/part.parquet", upload, 1, secret)
    people.erase()
    people.advance()
    people.collect()
    people.time.sleep(1000)
    people.collect()
    # A writer that read the rows before the erasure uploads them after the first sweep.
    people.store.put("tables/people/data/2026/11/20/16/late.parquet", secret)
    people.time.sleep(1000)
    assert people.collect().receipts
    assert people.found() == []


def test_an_unfinished_upload_goes_where_nothing_else_has_to(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.advance()
    for _ in range(2):
        people.collect()
        people.time.sleep(1000)
    key, secret = "tables/people/data/2026/11/20/16/part.parquet", str(WHO).encode()
    people.store.upload_part(key, people.store.create_multipart(key), 1, secret)
    assert people.found() != []
    people.time.sleep(1000)
    assert people.collect().receipts
    assert people.found() == []


def test_a_redelivered_request_opens_no_second_erasure(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    assert isinstance(people.erase(), Skipped)
    with pytest.raises(RequestReused):
        people.erase(is_who(5))
    people.finish()
    people.append(WHO)
    assert isinstance(people.erase(), Skipped)
    assert WHO in people.ids()
    # Anything that distinguished it from the first would also confirm a guess of it.
    assert isinstance(people.erase(is_who(5)), Skipped)
    assert 5 in people.ids()
    people.delete(is_who(6), request=Request.of("case-2", body="6"))
    with pytest.raises(RequestReused):
        people.delete(is_who(5), request=Request.of("case-2", body="5"))


def test_two_erasures_at_once_both_end(any_people: People) -> None:
    people = any_people
    people.append(*ids_with(WHO))
    people.append(*ids_with(WHO, start=20))
    people.erase(is_who(), "first")
    people.erase(is_who(7), "second")
    people.advance()
    receipts: set[str] = set()
    for _ in range(6):
        receipts.update(people.collect().receipts)
        people.time.sleep(1000)
    assert receipts == {"erasure/first.json", "erasure/second.json"}
    assert people.found() == []
    assert 7 not in people.ids()


def test_a_second_erasure_opened_while_the_first_is_purged_ends_as_well(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase(is_who(7), "first")
    people.advance()
    people.collect()
    people.erase(is_who(), "second")
    people.advance()
    for _ in range(6):
        people.time.sleep(1000)
        people.collect()
    assert people.snapshot.erasures == ()
    assert people.found() == []


def test_other_writers_go_on_meanwhile(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.append(*ids_with(start=20))
    people.delete(is_who(2))
    people.advance()
    people.append(*ids_with(start=40))
    compact(people.ctx)
    rewrite(people.ctx)
    people.collect()
    people.append(*ids_with(start=60))
    compact(people.ctx)
    for _ in range(3):
        people.time.sleep(1000)
        people.collect()
    assert people.snapshot.erasures == ()
    assert people.found() == []
    assert people.ids() == [
        i for start in (0, 20, 40, 60) for i in range(start, start + 10) if i != 2
    ]


def test_a_legal_hold_on_a_version_with_such_rows_refuses_the_erasure(people: People) -> None:
    people.append(*ids_with(WHO))
    held = people.snapshot.version
    _ref(people, "court", Ref(kind="tag", version=held, hold=True))
    with pytest.raises(InvalidRequest, match="legal hold 'court'"):
        people.erase()
    _ref(people, "court", None)
    people.erase()
    assert people.finish().receipts


def test_a_hold_set_during_the_erasure_keeps_it_open(people: People) -> None:
    people.append(*ids_with(WHO))
    held = people.snapshot.version
    people.erase()
    people.advance()
    _ref(people, "court", Ref(kind="tag", version=held, hold=True))
    assert [w.what for _, w in people.collect().waiting] == ["hold"]
    _ref(people, "court", None)
    assert people.finish().receipts


def test_metadata_rolled_into_segments_is_cleaned(people: People) -> None:
    last = 0
    while len(people.snapshot.files.segments) < 2:
        people.append(last, WHO) if last % 10 == 0 else people.append(last)
        last += 1
    people.erase()
    touch(people.ctx)
    people.finish()
    assert people.found() == []
    assert people.ids() == list(range(last))


def test_an_unreadable_file_keeps_the_erasure_open_and_is_named(people: People) -> None:
    people.append(*ids_with(WHO))
    [entry] = people.snapshot.files.inline
    key = people.ctx.key(entry.key)
    whole = people.store.get(key).body
    people.store.put(key, whole[:-30] + bytes(30))
    people.erase()
    result = people.advance()
    assert [f.key for f in result.failures] == [entry.key]
    [status] = result.erasures
    [waiting] = status.waiting
    assert waiting.name == entry.key and waiting.reason
    assert people.collect().receipts == ()
    people.store.put(key, whole)
    assert people.finish().receipts
    assert people.found() == []


def test_the_oracle_sees_each_secret_before_the_erasure(people: People) -> None:
    people.append(*ids_with(WHO))
    for secret in SECRETS:
        assert people.found(secret)


def _ref(people: People, name: str, ref: Ref | None) -> None:
    people.time.sleep(1)
    commit(people.ctx, Change(operation="tag", updates=(SetRefs({name: ref}, {}),)))


def test_a_hold_that_comes_with_the_last_commit_keeps_the_predicate(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.append(*ids_with(WHO))
    held = people.snapshot.version
    people.erase()
    people.advance()
    _before_commit(
        monkeypatch, lambda: _ref(people, "court", Ref(kind="tag", version=held, hold=True))
    )
    people.collect()
    [erasure] = people.snapshot.erasures
    assert (erasure.phase, erasure.predicate) == ("rewrite", is_who())
    assert load_version(people.ctx, people.snapshot, held).version == held


def test_an_old_object_ingested_with_the_last_commit_is_still_cleaned(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.append(*ids_with(WHO))
    late = people.land("late.parquet", *ids_with(WHO, start=20))
    people.store.copy(late, "elsewhere/late.parquet")
    people.store.delete([late.key])  # not where the erasure looks for it
    people.erase()
    people.advance()
    moved = Location("memory", "b", "elsewhere/late.parquet")
    _before_commit(monkeypatch, lambda: people.ingest(moved))
    people.collect()
    [erasure] = people.snapshot.erasures
    assert erasure.phase == "rewrite"
    people.store.delete([moved.key])
    assert people.finish().receipts
    assert people.found() == []


def _before_commit(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], object]) -> None:
    """Something lands between the look and the next commit of a sweep."""
    real = sweep.commit

    def racing(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(sweep, "commit", real)
        interrupt()
        return real(*args, **options)

    monkeypatch.setattr(sweep, "commit", racing)


def test_an_older_delete_that_names_the_person_is_applied_and_forgotten(people: People) -> None:
    people.append(*ids_with(WHO))
    between = rows([900, 901]).set_column(1, "name", pa.array(["a", "zzz"]))
    append(people.ctx, between)
    people.delete(is_named())  # may hit the second file, too, according to statistics
    people.erase()
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [*range(10), 900, 901]


def test_an_object_the_store_will_not_delete_keeps_the_erasure_open(people: People) -> None:
    people.append(*ids_with(WHO))
    [entry] = people.snapshot.files.inline
    people.erase()
    people.advance()
    locked = replace(people, ctx=replace(people.ctx, store=_Locked(people.store, entry.key)))
    locked.collect()
    people.time.sleep(1000)
    result = locked.collect()
    assert result.receipts == ()
    assert [(w.what, w.reason) for _, w in result.waiting] == [("object", "ObjectLocked")]
    assert people.found()
    for _ in range(2):
        people.time.sleep(1000)
        done = people.collect()
    assert done.receipts
    assert people.found() == []


class _Locked(FaultyStore):
    """A store that keeps one object, as a lock does."""

    def __init__(self, inner: Any, key: str) -> None:
        super().__init__(inner)
        self.key = key

    def delete_versions(self, versions: Any) -> Any:
        wanted = list(versions)
        kept = [v for v in wanted if v[0].endswith(self.key)]
        super().delete_versions([v for v in wanted if v not in kept])
        return [DeleteFailure(key, version, "ObjectLocked") for key, version in kept]


def test_expiring_versions_meanwhile_does_not_restart_the_wait(people: People) -> None:
    people.append(*ids_with(WHO))
    people.erase()
    people.advance()
    receipts: list[str] = []
    for n in range(12):
        people.append(n + 1_000)
        expire(people.ctx, days=0)
        receipts += people.collect().receipts
        people.time.sleep(400)
    assert receipts == ["erasure/case-1.json"]
    assert people.found() == []


def test_partitions_named_by_the_erased_values_are_forgotten_too(any_people: People) -> None:
    """The value of an identity or prefix partition stands in entries, segments and archives."""
    people = any_people
    for number, texts in enumerate((["name"], ["id"], ["truncate(20, name)", "city"], [])):
        people.time.sleep(1)
        set_partitioning(people.ctx, texts)
        people.append(*ids_with(WHO, start=20 * number, count=3))
    landed = people.land("a.parquet", *ids_with(WHO, start=200, count=3))
    people.time.sleep(1)
    set_partitioning(people.ctx, ["name", "bucket(4, id)"])
    people.ingest(landed)
    before = people.ids()
    assert before.count(WHO) == 5
    people.erase()
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [i for i in before if i != WHO]


def test_an_opening_says_what_it_will_end(people: People) -> None:
    people.append(*ids_with(WHO))
    people.append(*ids_with(start=40))
    version = people.snapshot.version
    branch(people.ctx, "work", Ref(kind="branch", version=version))
    tag(people.ctx, "audit", Ref(kind="tag", version=version))
    opened = people.erase()
    assert opened.note == (
        f"once the files are rewritten, versions {people.snapshot.oldest_version} to "
        f"{people.snapshot.version - 1} can no longer be read; branches that can then no longer be "
        "merged: work; tags that lose the rows, and are kept: audit"
    )

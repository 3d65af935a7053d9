"""The landing zone: ingested originals go, pending ones are waited for, nothing comes back."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from inlay.errors import InvalidRequest
from inlay.format.codec import decode_frame
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context
from inlay.ops.erase import finish, landing
from inlay.ops.erase.request import erase_status
from inlay.ops.erase.waive import waive_landed
from inlay.ops.maintain.compact import compact
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import Duplicate, TakenBack, ingest
from inlay.ops.write.landing import landed as list_landed
from inlay.plan.change import Change, SetProperties
from inlay.plan.erasure import landing_prefix
from inlay.storage.base import Location

from .oracle import Secret
from .people import NAME, WHO, People, ids_with, is_named, new_people


def test_ingested_originals_are_deleted_and_newer_objects_left(any_people: People) -> None:
    people = any_people
    people.ingest(people.land(f"{NAME}.parquet", *ids_with(WHO)))
    people.ingest(people.land("other.parquet", *ids_with(start=20)))
    people.erase()
    newer = people.land("newer.parquet", *ids_with(start=40))
    people.ingest(newer)
    assert people.finish().receipts
    assert [o.key for o in people.store.list("ingest/")] == [newer.key]
    assert people.found() == []
    assert people.ids() == [*range(10), *range(20, 30), *range(40, 50)]


def test_an_object_that_was_overwritten_since_the_listing_is_not_deleted(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without versions its name is that of the content that was judged; its event is still on the way."""
    people.ingest(people.land("daily.parquet", *ids_with(WHO)))
    people.erase()
    real = finish.clear_landing
    landed = []

    def clear(ctx: Context, found: Iterable[landing.Landing]) -> object:
        if not landed:
            people.time.sleep(1)
            landed.append(people.land("daily.parquet", *ids_with(start=20)))
        return real(ctx, found)

    monkeypatch.setattr(finish, "clear_landing", clear)
    assert people.finish().receipts
    people.ingest(*landed)
    assert people.ids() == [*range(10), *range(20, 30)]
    assert people.found() == []


def test_a_pending_object_with_such_rows_is_waited_for_and_comes_in_clean(people: People) -> None:
    people.append(*ids_with(WHO))
    pending = people.land("pending.parquet", *ids_with(WHO, start=20))
    people.erase()
    assert people.finish().receipts == ()
    [status] = erase_status(people.ctx, landing="ingest/people/")
    assert [(w.what, w.name) for w in status.waiting] == [("landing", pending.key)]

    people.ingest(pending)

    assert WHO not in people.ids()  # hidden by the very commit that brings it
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [*range(10), *range(20, 30)]


def test_a_pending_object_that_is_ingested_and_compacted_is_clean(people: People) -> None:
    pending = people.land("pending.parquet", *ids_with(WHO))
    people.append(*ids_with(start=20))
    people.erase()
    people.ingest(pending)
    compact(people.ctx)
    assert WHO not in people.ids()
    assert people.finish().receipts
    assert people.found() == []


def test_a_pending_object_without_such_rows_keeps_nobody_waiting(people: People) -> None:
    people.append(*ids_with(WHO))
    pending = people.land("pending.parquet", *ids_with(start=20))
    people.erase()
    assert people.finish().receipts
    people.ingest(pending)
    assert people.ids() == [*range(10), *range(20, 30)]


def test_an_object_adopted_in_place_is_marked_like_a_copied_one(people: People) -> None:
    pending = people.land("pending.parquet", *ids_with(WHO))
    people.erase()
    people.ingest(pending, adopt=True)
    assert WHO not in people.ids()
    assert people.finish().receipts
    assert people.found() == []


def test_a_file_adopted_where_it_landed_stays_while_it_is_live(people: People) -> None:
    clean = people.land("clean.parquet", *ids_with(start=20))
    dirty = people.land("dirty.parquet", *ids_with(WHO))
    people.ingest(clean, adopt=True)
    people.ingest(dirty, adopt=True)
    people.erase()
    assert people.finish().receipts
    assert [o.key for o in people.store.list("ingest/")] == [clean.key]
    assert people.ids() == [*range(10), *range(20, 30)]
    assert people.found() == []


def test_what_landed_after_the_erasure_comes_in_whole(people: People) -> None:
    people.erase()
    people.time.sleep(1)
    people.ingest(people.land("later.parquet", WHO))
    people.finish()
    assert people.ids() == [WHO]


def test_on_a_store_whose_last_modified_is_ahead_what_landed_before_comes_in_whole(
    people: People,
) -> None:
    """The assumption of docs/GUARANTEES.md, broken: the object looks younger than the erasure."""
    people.store._region.behind_us = -30_000_000
    landed = people.land("before.parquet", WHO)
    people.erase()
    people.ingest(landed)
    assert people.ids() == [WHO]


def test_an_ingest_that_began_before_the_erasure_does_not_bring_the_rows_back(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inlay.ops.write.ingest as module

    location = people.land("racing.parquet", *ids_with(WHO))
    real = module.commit_together

    def racing(*args: object, **options: object) -> object:
        monkeypatch.setattr(module, "commit_together", real)
        people.erase()
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "commit_together", racing)
    people.ingest(location)
    assert people.ids() == list(range(10))
    assert people.finish().receipts
    assert people.found() == []


def test_a_duplicate_event_after_the_end_changes_nothing(people: People) -> None:
    location = people.land("a.parquet", *ids_with(WHO))
    [head] = [people.store.head(location.key)]
    people.ingest(location)
    people.erase()
    people.finish()
    result = ingest(people.ctx, [IngestSource(location, etag=head.info.etag)])
    assert isinstance(result.outcomes[0], Duplicate)
    assert people.ids() == list(range(10))


def test_unfinished_uploads_from_before_are_aborted(people: People) -> None:
    people.append(*ids_with(WHO))
    upload = people.store.create_multipart("ingest/people/slow.parquet")
    people.store.upload_part("ingest/people/slow.parquet", upload, 1, NAME.encode())
    people.erase()
    assert people.finish().receipts
    assert people.found() == []


@pytest.mark.parametrize("uploads", [0, 1])
def test_the_receipt_counts_what_was_deleted_where_files_land(people: People, uploads: int) -> None:
    """Only how many: keys of landed objects may contain names. It is said before they are deleted."""
    for name in ("one", NAME):
        people.ingest(people.land(f"{name}.parquet", *ids_with(WHO)))
    for n in range(uploads):
        people.store.create_multipart(f"ingest/people/slow-{n}.parquet")
    people.erase()
    [done] = people.finish().receipts
    body = people.store.get(f"tables/people/{done}").body
    lists = [
        decode_frame("erasure_list", people.store.get(f"tables/people/{made['key']}").body, key="k")
        for made in decode_frame("erasure", body, key="k")["gone"]
    ]
    assert sum(made["others"] for made in lists) == 2
    assert sum(made["uploads"] for made in lists) == uploads
    assert people.found() == []


@pytest.mark.parametrize("when", ["while it is listed", "before it is aborted"])
def test_an_upload_that_ends_in_that_moment_is_waited_for(
    people: People, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The object is dated by the beginning of its upload: it is from before the erasure, and holds rows."""
    people.append(*ids_with(WHO))
    body = people.store.get(people.land("x.parquet", *ids_with(WHO, start=20)).key).body
    people.store.delete(["ingest/people/x.parquet"])
    slow = "ingest/people/slow.parquet"
    upload = people.store.create_multipart(slow)
    part = people.store.upload_part(slow, upload, 1, body)
    people.erase()
    people.advance()

    def complete(prefix: str) -> None:
        if people.store._bucket.uploads and prefix.startswith("ingest/"):
            people.store.complete_multipart(slow, upload, [part])

    if when == "before it is aborted":
        abort = people.store.abort_multipart

        def late(key: str, upload_id: str) -> None:
            complete(key)
            abort(key, upload_id)

        monkeypatch.setattr(people.store, "abort_multipart", late)
    else:
        list_versions = people.store.list_versions

        def listed(prefix: str) -> Any:
            found = list(list_versions(prefix))
            complete(prefix)
            return iter(found)

        monkeypatch.setattr(people.store, "list_versions", listed)
    assert people.finish().receipts == ()
    monkeypatch.undo()
    people.ingest(Location("memory", "b", slow))
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [*range(10), *range(20, 30)]


@pytest.mark.parametrize(
    ("later", "counts"), [(0.3, True), (0.9, True), (1.0, False), (1.2, False)]
)
def test_what_lands_in_the_second_of_the_opening_counts_as_before_it(
    later: float, counts: bool
) -> None:
    """As docs/ERASURE.md says: the store's dates do not tell it from what came before."""
    people = new_people()
    people.append(*ids_with())
    people.time.sleep(1 - people.time.seconds % 1)  # then `erase` begins at a whole second
    people.erase()
    [erasure] = people.snapshot.erasures
    assert erasure.opened_us <= people.time.now_us() < erasure.opened_us + 1_000_000
    people.time.seconds += later - 1  # `land` waits for a second
    landed = people.land("new.parquet", *ids_with(WHO, start=20))
    assert people.store.head(landed.key).info.modified_us % 1_000_000 == 0
    status = people.finish()
    # Waited for, as rows that were there; or new rows, which no erasure concerns.
    assert bool(status.receipts) is not counts
    people.ingest(landed)
    assert (WHO in people.ids()) is not counts
    assert {*range(10), *range(20, 30)} <= set(people.ids())
    if counts:
        assert people.finish().receipts and people.found() == []


def test_an_overwritten_content_comes_in_by_its_event_before_it_goes() -> None:
    """Nobody's other rows are lost: the erasure waits for the event that still leads to the version."""
    people = new_people(versioned=True)
    first = people.land("twice.parquet", *ids_with(WHO))
    second = people.land("twice.parquet", *ids_with(start=20))
    newer, older = people.store.list_versions(first.key)
    people.ingest(second, version_id=newer.version_id)
    people.erase()
    assert people.finish().receipts == ()
    [status] = erase_status(people.ctx, landing="ingest/people/")
    [waiting] = status.waiting
    assert waiting.name == first.key

    people.ingest(first, version_id=older.version_id)

    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("when", ["before the opening", "while it was waited for"])
def test_what_its_owner_deleted_goes_where_the_bucket_keeps_versions(when: str) -> None:
    """Its event brings nothing in any more, whenever it comes: nobody could end the wait."""
    people = new_people(versioned=True)
    people.append(*ids_with(start=20))
    gone = people.land("gone.parquet", *ids_with(WHO))
    if when == "before the opening":
        people.store.delete([gone.key])
    people.erase()
    if when == "while it was waited for":
        assert people.finish().receipts == ()
        [version] = people.store.list_versions("ingest/")
        people.time.sleep(60)
        people.store.delete([gone.key])
        at = datetime.fromtimestamp(version.modified_us / 1e6, UTC)
        event = IngestSource.of_event(
            gone.scheme,
            gone.bucket,
            gone.key,
            etag=version.etag,
            version_id=version.version_id,
            at=at,
        )
        result = ingest(people.ctx, [event])
        assert [type(each) for each in result.outcomes] == [TakenBack]
        [status] = erase_status(people.ctx, landing="ingest/people/")
        assert [w.reason for w in status.waiting] == ["collect_garbage has to delete it"]
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == list(range(20, 30))


def test_an_original_older_than_the_ledger_is_judged_by_its_rows(people: People) -> None:
    old = people.land("old.parquet", *ids_with(WHO))
    clean = people.land("clean.parquet", *ids_with(start=20))
    people.ingest(old)
    people.ingest(clean)
    _forget_the_ledger(people)
    people.erase()
    assert people.finish().receipts
    assert [o.key for o in people.store.list("ingest/")] == [clean.key]
    assert people.found() == []


def test_other_tables_landing_zones_are_left_alone(people: People) -> None:
    people.store.put("ingest/peoples/x.parquet", b"theirs")
    people.ingest(people.land("a.parquet", *ids_with(WHO)))
    people.erase()
    people.finish()
    assert [o.key for o in people.store.list("ingest/")] == ["ingest/peoples/x.parquet"]


def test_the_landing_zone_follows_from_the_tables_place() -> None:
    assert landing_prefix("tables/people") == "ingest/people/"
    assert landing_prefix("lake/tables/a/b") == "lake/ingest/a/b/"
    assert landing_prefix("elsewhere/people") is None


@pytest.mark.parametrize(
    "given",
    [
        "s3://b/ingest/people/",  # a URI is no key: nothing would be found, and the receipt say so
        "memory://b/ingest/people/",
        "/ingest/people/",
        "ingest/people",  # also the start of ingest/people_of_others/
        "ingest/peo",
        "/",
        "tables/",  # the table itself, its pointer and files
        "tables/people/",
        "tables/people/data/",
    ],
)
def test_what_is_no_landing_zone_is_refused_wherever_one_is_given(
    people: People, given: str
) -> None:
    """A receipt that was written all the same would say that nothing of the person is left there."""
    landed = people.land("a.parquet", *ids_with(WHO))
    people.ingest(landed)
    people.erase()
    people.advance()
    with pytest.raises(InvalidRequest, match="no prefix under which files land"):
        people.collect(landing=given)
    with pytest.raises(InvalidRequest, match="'ingest/people/'"):
        erase_status(people.ctx, landing=given)
    with pytest.raises(InvalidRequest, match="no prefix under which files land"):
        waive_landed(people.ctx, landed.key, reason="by the board", landing=given)
    with pytest.raises(InvalidRequest, match="no prefix under which files land"):
        next(list_landed(people.ctx, load_pointer(people.ctx), given))
    assert people.finish().receipts
    assert people.found() == []


def _forget_the_ledger(people: People) -> None:
    """Commits until the records of what came before are past the ledger's horizon."""
    for n in range(20):
        landed = [people.land(f"filler-{n}-{m}.parquet", 1_000 + 50 * n + m) for m in range(50)]
        ingest(people.ctx, [IngestSource(location) for location in landed])
        if n == 4:
            people.time.sleep(20 * 86_400)
        if people.snapshot.ledger.horizon_us > 1_800_000_100 * 1_000_000:
            break
    else:
        raise AssertionError("the ledger forgot nothing")
    for info in list(people.store.list("ingest/people/filler")):
        people.store.delete([info.key])
    assert people.found(Secret(WHO))
    assert Location("memory", "b", "x")


def test_adopted_objects_elsewhere_are_named_for_their_owner_to_delete(people: People) -> None:
    location = people.land("theirs.parquet", *ids_with(WHO))
    people.store.copy(location, "warehouse/theirs.parquet")
    people.store.delete([location.key])
    people.ingest(Location("memory", "b", "warehouse/theirs.parquet"), adopt=True)
    people.erase()
    assert people.advance().foreign == ("memory://b/warehouse/theirs.parquet",)
    assert people.finish().receipts
    assert all("warehouse/" in place for place in people.found())


def test_many_pending_objects_are_judged_by_one_thread(people: People) -> None:
    for n in range(5):
        people.land(f"{n}.parquet", *ids_with(WHO, start=20 * n))
    with ThreadPoolExecutor(1) as executor:
        threaded = replace(people, ctx=replace(people.ctx, executor=executor))
        threaded.erase()
        threaded.advance()
        assert len(threaded.collect().waiting) == 5
        for n in range(5):
            threaded.ingest(Location("memory", "b", f"ingest/people/{n}.parquet"))
        assert threaded.finish().receipts
    assert people.found() == []


def test_no_landing_zone_is_not_the_whole_bucket(people: People) -> None:
    people.append(*ids_with(WHO))
    people.store.put("elsewhere", b"of others")
    people.erase()
    people.advance()
    for _ in range(3):
        receipts = people.collect(landing="").receipts
        people.time.sleep(1000)
    assert receipts
    assert people.ids() == list(range(10))
    assert people.store.get("elsewhere").body == b"of others"


def with_texts(people: People) -> None:
    properties = {"ingest.formats": "parquet,csv,json", "ingest.bad_lines": "5"}
    commit(people.ctx, Change(operation="set", updates=(SetProperties(properties),)))


def land_text(people: People, name: str, text: str) -> Location:
    people.time.sleep(1)
    people.store.put(f"ingest/people/{name}", text.encode())
    return Location("memory", "b", f"ingest/people/{name}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", f"id,name\n40,x\n{WHO},{NAME}\n"),
        ("a.jsonl", f'{{"id": 40, "name": "x"}}\n{{"id": {WHO}, "name": "{NAME}"}}\n'),
    ],
)
def test_a_pending_text_is_read_as_ingestion_reads_it(people: People, name: str, text: str) -> None:
    with_texts(people)
    people.append(*ids_with(WHO))
    pending = land_text(people, name, text)
    land_text(people, "other.csv", "id,name\n41,y\n")
    people.erase()
    assert people.finish().receipts == ()
    [status] = erase_status(people.ctx, landing="ingest/people/")
    assert [w.name for w in status.waiting] == [pending.key]
    people.ingest(pending)
    assert WHO not in people.ids()
    assert people.finish().receipts
    assert people.found() == []
    assert people.ids() == [*range(10), 40]


def test_records_that_were_refused_are_named_in_the_receipt(people: People) -> None:
    """Their list is younger than the erasure, and what they came from is not."""
    with_texts(people)
    people.append(*ids_with(WHO))
    pending = land_text(people, "a.csv", f"id,name\n40,x\nnone,{NAME}\n")
    people.erase(is_named())
    assert people.finish().receipts == ()
    [status] = erase_status(people.ctx, landing="ingest/people/")
    assert [w.name for w in status.waiting] == [pending.key]
    people.ingest(pending)
    [receipt] = people.finish().receipts
    listed = [o.key for o in people.store.list("ingest/people/_refused/")]
    assert len(listed) == 1
    body = people.store.get(people.ctx.key(receipt)).body.decode()
    assert listed[0] in body


@pytest.mark.parametrize("formats", ["parquet", "parquet,csv"])
def test_a_refused_text_that_names_the_person_never_comes_in_later(
    people: People, formats: str
) -> None:
    """Neither where the table takes texts from then on, nor where it takes their values."""
    people.append(*ids_with(start=20))
    properties = {"ingest.formats": formats}
    commit(people.ctx, Change(operation="set", updates=(SetProperties(properties),)))
    refused = land_text(people, "a.csv", f"id,name\n{WHO},{NAME}\nnone,x\n")
    people.erase()
    assert people.finish().receipts
    with_texts(people)
    assert isinstance(people.ingest(refused).outcomes[0], Duplicate)
    assert people.ids() == [*range(20, 30)]

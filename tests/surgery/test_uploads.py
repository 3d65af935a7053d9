"""Objects large enough for multipart uploads: what is moved, how often we ask, and what may go wrong."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock, patch

import checker
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon
from tests.simulator.faults import Fate, FaultyStore, Killed, Plan, Sent, once
from tests.tiers import in_short

from inlay.errors import SnapshotGone, SourceChanged, StoreUnavailable
from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES
from inlay.parquet.read.describe import TAIL_BYTES
from inlay.parquet.read.ranges import RangeFile, Source
from inlay.parquet.surgery import new_object, surgery
from inlay.parquet.surgery.new_object import Assembly
from inlay.parquet.surgery.surgery import (
    Rewritten,
    plan_edit,
    rewrite_object,
)
from inlay.storage.base import ByteRange, Head, IfMatch, Missing, ObjectStore
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

MIB = 1024 * 1024
GROUPS, ROWS = 10, 6_000


@pytest.fixture(scope="module")
def large() -> bytes:
    """Ten row groups of 6 MiB with page index."""
    dice = random.Random(4)
    raw = pa.array([dice.randbytes(1000) for _ in range(GROUPS * ROWS)], pa.binary())
    table = pa.table({"id": pa.array(range(GROUPS * ROWS)), "raw": raw})
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=ROWS,
        compression="none",
        use_dictionary=False,
        write_page_index=True,
    )
    return sink.getvalue()


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def most(keep: float = 0.99) -> list[bool]:
    dice = random.Random(1)
    return [dice.random() < keep for _ in range(ROWS)]


def put(data: bytes) -> tuple[MemoryStore, str]:
    store = MemoryStore("b")
    headers = {"ContentType": "x/y", "StorageClass": "STANDARD_IA"}
    written = store.put("old", data, metadata={"owner": "me"}, headers=headers)
    return store, written.etag


def run(
    store: ObjectStore, data: bytes, etag: str, edit: surgeon.Edit, pool: ThreadPoolExecutor
) -> Rewritten:
    return rewrite_object(
        store,
        surgeon.OLD,
        "new",
        etag=etag,
        size=len(data),
        footer=decode_footer(data, file_size=len(data)),
        kept=surgeon.kept_by(edit),
        executor=pool,
    )


def check(data: bytes, result: bytes, edit: surgeon.Edit) -> None:
    footer = decode_footer(data, file_size=len(data))
    kept = surgeon.kept_rows(footer, edit)
    assert checker.problems(result) == []
    before = pq.read_table(pa.BufferReader(data)).take(pa.array(kept))
    assert pq.read_table(pa.BufferReader(result)).equals(before)


@pytest.mark.parametrize("group", [0, 4, GROUPS - 1])
def test_editing_one_group_moves_little_more_than_that_group(
    group: int, large: bytes, pool: ThreadPoolExecutor
) -> None:
    inner, etag = put(large)
    store = MeteredStore(inner)
    edit: surgeon.Edit = {group: most()}
    outcome = run(store, large, etag, edit, pool)
    assert isinstance(outcome, Rewritten)
    check(large, inner.get("new").body, edit)

    usage = store.usage()
    footer = decode_footer(large, file_size=len(large))
    group_bytes = footer.row_groups[group].compressed_size
    index_bytes = footer.start - max(chunk.end for chunk in footer.row_groups[-1].columns)
    budget = 1.05 * (group_bytes + footer.length + index_bytes)
    assert usage.total <= 9, usage
    assert usage.bytes_down <= budget
    assert usage.bytes_up <= budget
    planned = plan_edit(footer, touched=[group])
    assert planned.requests == usage.total
    assert planned.read_bytes == usage.bytes_down
    assert abs(planned.written_bytes - usage.bytes_up) < 0.05 * usage.bytes_up


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(
    ("changed", "dropped", "requests"),
    [
        ({4}, set(), {True: (9, 9), False: (7, 6)}),
        ({0}, {0}, {True: (8, 9), False: (6, 5)}),
        ({2, 6, 7}, {7}, {True: (12, 12), False: (8, 8)}),
    ],
)
def test_what_an_edit_moves_is_known_from_the_footer(
    changed: set[int],
    dropped: set[int],
    requests: dict[bool, tuple[int, int]],
    copies: bool,
    large: bytes,
    pool: ThreadPoolExecutor,
) -> None:
    """The bytes read to the byte, the requests but for one more or less: (told, made)."""
    inner, etag = put(large)
    inner.copies_ranges = copies
    store = MeteredStore(inner)
    edit: surgeon.Edit = {group: None if group in dropped else most() for group in changed}
    outcome = run(store, large, etag, edit, pool)
    footer = decode_footer(large, file_size=len(large))
    planned = plan_edit(footer, touched=changed, dropped=dropped, copies=copies)
    usage = store.usage()
    assert (planned.requests, usage.total) == requests[copies]
    assert planned.read_bytes == usage.bytes_down
    assert usage.bytes_up < planned.written_bytes < 1.05 * usage.bytes_up
    edited = sum(footer.row_groups[group].compressed_size for group in changed - dropped)
    assert planned.recoded_bytes == edited
    new_size = planned.written_bytes + planned.copied_bytes
    assert outcome.size < new_size < 1.05 * outcome.size
    assert (planned.copied_bytes > 0) is copies


def test_of_a_bloom_filter_of_unknown_length_the_head_is_read_and_nothing_of_the_footer() -> None:
    sure, unsure = Mock(unsure=()), Mock(unsure=(100, 990))
    old, footer, asked = Mock(), Mock(start=1_000), list[ByteRange]()

    def contents(places: Iterable[ByteRange]) -> Iterator[tuple[ByteRange, bytes]]:
        for place in places:
            asked.append(place)
            yield place, b"head"

    old.contents = contents
    with (
        patch.object(surgery, "read_layout", Mock(side_effect=[unsure, sure])) as read,
        patch.object(surgery, "bloom_length", lambda head: (7, 32)),
    ):
        assert surgery._load_layout(old, footer) is sure
    assert read.call_args.args[1] == {100: 39, 990: 39}
    assert asked == [ByteRange(100, 100 + BLOOM_HEADER_BYTES), ByteRange(990, 1_000)]
    with patch.object(surgery, "read_layout", Mock(return_value=sure)):
        assert surgery._load_layout(Mock(contents=None), footer) is sure


def test_an_object_that_is_small_enough_is_read_whole_and_put(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(10 * ROWS)}), sink, row_group_size=ROWS)
    data = sink.getvalue()
    for module in (surgery, new_object):
        monkeypatch.setattr(module, "ONE_PUT_BYTES", len(data))
    inner, etag = put(data)
    store = MeteredStore(inner)
    run(store, data, etag, {3: most(), 5: None}, pool)
    footer = decode_footer(data, file_size=len(data))
    planned = plan_edit(footer, touched=[3, 5], dropped=[5])
    assert planned.requests == store.usage().total == 3
    assert planned.read_bytes == store.usage().bytes_down == len(data)


def test_a_large_footer_costs_no_request_more(pool: ThreadPoolExecutor) -> None:
    """The caller has the footer, from its entry; it shows where the index is, however large it is. Its two
    halves are two requests at a time where 49 KB of other groups are between them."""
    rows = 250
    raw = pa.array([b"%0400d" % n for n in range(12 * rows)], pa.binary())
    sink = io.BytesIO()
    pq.write_table(
        pa.table({f"column {n}": raw for n in range(60)}),
        sink,
        row_group_size=rows,
        compression="none",
        use_dictionary=False,
        write_page_index=True,
    )
    data = sink.getvalue()
    footer = decode_footer(data, file_size=len(data))
    index = footer.start - max(chunk.end for chunk in footer.row_groups[-1].columns)
    assert index + footer.length > TAIL_BYTES
    inner, etag = put(data)
    store = MeteredStore(inner)
    edit: surgeon.Edit = {5: [n % 50 > 0 for n in range(rows)]}
    outcome = run(store, data, etag, edit, pool)
    assert isinstance(outcome, Rewritten)
    check(data, inner.get("new").body, edit)
    assert store.usage().total <= 10


def test_dropping_a_group_moves_the_footer(large: bytes, pool: ThreadPoolExecutor) -> None:
    inner, etag = put(large)
    store = MeteredStore(inner)
    outcome = run(store, large, etag, {4: None}, pool)
    assert isinstance(outcome, Rewritten)
    check(large, inner.get("new").body, {4: None})
    footer = decode_footer(large, file_size=len(large))
    tail = len(large) - max(chunk.end for chunk in footer.row_groups[-1].columns)
    assert store.usage().bytes_down < tail
    assert store.usage().bytes_up < tail


@pytest.mark.parametrize(
    "edit",
    [
        {0: None},
        {0: None, 1: [True] * 100 + [False] * (ROWS - 100)},
        {2: [at < 10 for at in range(ROWS)], 3: [at < 10 for at in range(ROWS)]},
        {at: [row % 2 == 0 for row in range(ROWS)] for at in range(GROUPS)},
        dict.fromkeys(range(1, GROUPS, 2)),
        dict.fromkeys(range(GROUPS - 1)),
        {GROUPS - 1: None, 4: [at % 50 == 0 for at in range(ROWS)]},
    ],
    ids=["first", "first and a few", "tiny pair", "half of all", "odd", "all but last", "ends"],
)
def test_any_set_of_groups_goes_in_one_upload(
    edit: surgeon.Edit, large: bytes, pool: ThreadPoolExecutor
) -> None:
    store, etag = put(large)
    outcome = run(store, large, etag, edit, pool)
    assert isinstance(outcome, Rewritten)
    check(large, store.get("new").body, edit)
    assert list(store.list_uploads("")) == []


def test_how_an_object_is_kept_goes_with_the_new_one_and_nothing_that_may_name_rows(
    large: bytes, pool: ThreadPoolExecutor
) -> None:
    for edit in ({3: most()}, dict.fromkeys(range(GROUPS - 1))):
        store, etag = put(large)
        run(store, large, etag, edit, pool)
        head = store.head("new")
        assert isinstance(head, Head)
        assert head.info.metadata == {}
        assert head.info.headers["StorageClass"] == "STANDARD_IA"
        assert head.info.headers["ContentType"] != "x/y"


def test_another_bucket_may_hold_the_old_object(large: bytes, pool: ThreadPoolExecutor) -> None:
    store, etag = put(large)
    here = store.at("table")
    outcome = rewrite_object(
        here,
        surgeon.OLD,
        "new",
        etag=etag,
        size=len(large),
        footer=decode_footer(large, file_size=len(large)),
        kept=surgeon.kept_by({2: most()}),
        executor=pool,
    )
    assert isinstance(outcome, Rewritten)
    check(large, here.get("new").body, {2: most()})
    assert isinstance(store.get("new"), Missing)


# -- what may go wrong ----------------------------------------------------------------------------


def nothing_is_left(store: MemoryStore) -> None:
    assert isinstance(store.head("new"), Missing)
    assert list(store.list_uploads("")) == []


@pytest.mark.parametrize("verb", ["get", "head", "upload_part_copy"])
def test_an_object_that_changes_meanwhile_stops_the_rewrite(
    verb: str, large: bytes, pool: ThreadPoolExecutor
) -> None:
    store, etag = put(large)
    overwritten: list[bool] = []

    def overwrite(sent: Sent) -> None:
        if sent.verb == verb and not overwritten:
            overwritten.append(True)
            store.put("old", large[::-1], condition=IfMatch(etag))

    with pytest.raises(SourceChanged):
        run(FaultyStore(store, before=overwrite), large, etag, {0: None, 2: most()}, pool)
    assert overwritten
    nothing_is_left(store)


def test_an_object_that_vanished_stops_the_rewrite(large: bytes, pool: ThreadPoolExecutor) -> None:
    store, etag = put(large)
    store.delete(["old"])
    with pytest.raises(SnapshotGone):
        run(store, large, etag, {2: most()}, pool)
    nothing_is_left(store)


@pytest.mark.parametrize(
    "verb", ["get", "head", "create_multipart", "upload_part", "upload_part_copy"]
)
@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST])
def test_a_request_that_fails_leaves_nothing_behind(
    verb: str, fate: Fate, large: bytes, pool: ThreadPoolExecutor
) -> None:
    store, etag = put(large)
    with pytest.raises(StoreUnavailable):
        run(FaultyStore(store, once(fate, verb=verb)), large, etag, {2: most()}, pool)
    assert isinstance(store.head("new"), Missing)
    if (verb, fate) != ("create_multipart", Fate.LOST):  # whose id is unknown: left to GC
        nothing_is_left(store)


def test_an_error_of_the_caller_aborts_the_upload(large: bytes, pool: ThreadPoolExecutor) -> None:
    store, etag = put(large)

    asked = iter(range(GROUPS))

    def goes_on() -> bool:
        if next(asked) == 7:
            raise RuntimeError("no idea")
        return True

    with pytest.raises(RuntimeError, match="no idea"):
        rewrite_object(
            store,
            surgeon.OLD,
            "new",
            etag=etag,
            size=len(large),
            footer=decode_footer(large, file_size=len(large)),
            kept=surgeon.kept_by(dict.fromkeys(range(GROUPS), most(0.5))),
            goes_on=goes_on,
            executor=pool,
        )
    nothing_is_left(store)


@pytest.mark.parametrize("fate", [Fate.UNSENT, Fate.LOST, Fate.TWICE])
@pytest.mark.parametrize("size", ["large", "small"])
def test_an_unknown_end_is_resolved_by_looking(
    fate: Fate, size: str, large: bytes, pool: ThreadPoolExecutor
) -> None:
    data = large
    if size == "small":
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": range(GROUPS * ROWS)}), sink, row_group_size=ROWS)
        data = sink.getvalue()
    verb = "put" if size == "small" else "complete_multipart"
    store, etag = put(data)
    plan: Plan = once(fate, verb=verb, key="new")
    faulty = FaultyStore(store, plan)
    outcome = run(faulty, data, etag, {2: most()}, pool)
    assert isinstance(outcome, Rewritten)
    head = store.head("new")
    assert isinstance(head, Head)
    assert (outcome.etag, outcome.size) == (head.info.etag, head.info.size)
    check(data, store.get("new").body, {2: most()})


def test_complete_that_never_lands_is_an_error(large: bytes, pool: ThreadPoolExecutor) -> None:
    store, etag = put(large)

    def plan(sent: Sent) -> Fate:
        return Fate.UNSENT if sent.verb == "complete_multipart" else Fate.DONE

    with pytest.raises(StoreUnavailable):
        run(FaultyStore(store, plan), large, etag, {2: most()}, pool)
    nothing_is_left(store)


# -- the assembly by itself -----------------------------------------------------------------------


def test_pieces_of_any_kind_make_the_object_they_describe() -> None:
    """Windows smaller than the pieces: parts go out while more pieces come."""
    dice = random.Random(6)
    old = dice.randbytes(32 * MIB)
    for window in (1, 6 * MIB, 64 * MIB):
        for _ in range(4):
            store = MemoryStore("b")
            etag = store.put("old", old).etag
            source = RangeFile(Source(store, "old", "old", len(old), etag), len(old))
            with Assembly(store, source, "new", InlineExecutor(), dict, window_bytes=window) as new:
                expected = []
                for _ in range(dice.randrange(1, 9)):
                    length = dice.choice([1, 1000, MIB, 7 * MIB])
                    if dice.random() < 0.5:
                        start = dice.randrange(len(old) - length)
                        new.copy(start, start + length)
                        expected.append(old[start : start + length])
                    else:
                        new.add(old[:length])
                        expected.append(old[:length])
                new.finish()
            assert store.get("new").body == b"".join(expected)
            assert list(store.list_uploads("")) == []


def test_a_range_beyond_the_object_is_refused_before_the_store_is_asked() -> None:
    store = MemoryStore("b")
    etag = store.put("old", b"x" * 100).etag
    source = RangeFile(Source(store, "old", "old", 100, etag), 100)
    new = Assembly(store, source, "new", InlineExecutor(), dict)
    with pytest.raises(ValueError, match="range"):
        new.copy(50, 101)


def test_no_range_is_copied_from_an_object_that_s3_would_refuse() -> None:
    """A small object that makes a large one: its ranges are sent, not copied."""
    store = MemoryStore("b")
    old = b"x" * (5 * MIB)
    etag = store.put("old", old).etag
    metered = MeteredStore(store)
    source = RangeFile(Source(metered, "old", "old", len(old), etag), len(old))
    with Assembly(metered, source, "new", InlineExecutor(), dict, window_bytes=6 * MIB) as new:
        new.copy(0, 100)
        new.add(b"y" * (9 * MIB))
        new.copy(100, len(old))
        new.finish()
    assert store.get("new").body == old[:100] + b"y" * (9 * MIB) + old[100:]
    assert "upload_part_copy" not in metered.usage().requests


FATES = [Fate.UNSENT, Fate.LOST, Fate.TWICE, Fate.KILLED_BEFORE, Fate.KILLED_AFTER]


@pytest.mark.parametrize("fate", in_short(FATES, (Fate.LOST, Fate.KILLED_AFTER)))
def test_whatever_befalls_any_request_the_object_is_whole_or_absent(
    fate: Fate, large: bytes
) -> None:
    footer = decode_footer(large, file_size=len(large))
    edit: surgeon.Edit = dict.fromkeys(range(3, GROUPS))
    expected: bytes | None = None
    for number in range(9):
        store, etag = put(large)

        def plan(sent: Sent, number: int = number) -> Fate:
            return fate if sent.number == number and fate in sent.possible else Fate.DONE

        process = FaultyStore(store, plan)
        try:
            outcome = rewrite_object(
                process,
                surgeon.OLD,
                "new",
                etag=etag,
                size=len(large),
                footer=footer,
                kept=surgeon.kept_by(edit),
                executor=InlineExecutor(),
            )
        except (StoreUnavailable, Killed):
            outcome = None
        found = store.get("new")
        body = None if isinstance(found, Missing) else found.body
        expected = expected or body
        assert expected is not None, "the first run meets no fault"
        if outcome is not None:
            assert isinstance(outcome, Rewritten)
            assert body is not None and outcome.etag == found.etag
        assert body in (None, expected)
        killed = fate in (Fate.KILLED_BEFORE, Fate.KILLED_AFTER)
        lost_id = fate is Fate.LOST  # of the upload: what Create answered
        if not killed and not lost_id:
            assert list(store.list_uploads("")) == []
    check(large, expected or b"", edit)

"""The golden lake of format version 2: tables prepared, decided and gone on from, as bytes on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.golden import from_the_page, make_v2

import inlay
from inlay.errors import NewerFormat
from inlay.format.codec import PREPARED, decode_frame, decode_snapshot
from inlay.format.keys import DECISIONS, POINTER
from inlay.format.transaction import (
    decode_decision,
    decode_prepared,
    encode_decision,
    encode_prepared,
)
from inlay.ops.metadata.load import load_pointer
from inlay.ops.transaction import load_together

EXPECTED = make_v2.expected()
OPEN = ("prepared", "committed", "aborted")


def pointers(state: str) -> dict[str, bytes]:
    found = make_v2.golden(state)
    return {name: found[f"tables/{name}/{POINTER}"] for name in make_v2.TABLES}


def decisions(state: str) -> dict[str, bytes]:
    return {k: body for k, body in make_v2.golden(state).items() if f"/{DECISIONS}" in k}


def test_every_state_is_there():
    assert sorted(EXPECTED) == sorted(make_v2.STATES)
    for state in make_v2.STATES:
        prepared = [body.startswith(PREPARED) for body in pointers(state).values()]
        assert prepared == [state in OPEN] * 3
        assert len(decisions(state)) == (state != "prepared")
    # The same transaction, whatever became of it.
    assert pointers("prepared") == pointers("committed") == pointers("aborted")


@pytest.mark.parametrize("state", make_v2.STATES)
def test_it_is_read_as_it_is_and_nothing_is_written(state):
    store, time = make_v2.opened(state)
    assert make_v2.seen(store, time) == EXPECTED[state]
    for ctx in make_v2.lake(store, time, "see").values():
        assert load_pointer(ctx).undecided == (state == "prepared")
        assert inlay.open(ctx.uri, context=ctx).maintain.verify(depth="pages").errors == ()
    at_one_cut = load_together([*make_v2.lake(store, time, "cut").values()])
    assert [t.snapshot.version for t in at_one_cut] == [
        EXPECTED[state][n]["version"] for n in make_v2.TABLES
    ]
    assert make_v2.objects(store) == make_v2.golden(state)


@pytest.mark.parametrize("state", make_v2.STATES)
def test_its_frames_are_written_again_byte_for_byte(state):
    for body in pointers(state).values():
        if body.startswith(PREPARED):
            assert encode_prepared(decode_prepared(body, key="k")) == body
    for body in decisions(state).values():
        assert encode_decision(decode_decision(body, key="k")) == body


@pytest.mark.parametrize("state", make_v2.AFTER)
def test_the_next_commit_on_each_table_writes_these_bytes(state):
    """Version 1 again, and the archive of what was prepared, as if there had been no transaction."""
    store, time = make_v2.opened(state)
    make_v2.go_on(store, time)
    assert make_v2.objects(store) == make_v2.golden(make_v2.AFTER[state])


def test_who_is_kept_waiting_decides_in_these_bytes():
    store, time = make_v2.opened("prepared")
    make_v2.go_on(store, time)  # an hour later: the deadline has passed
    assert make_v2.objects(store) == make_v2.golden("ended")


# -- read from docs/FORMAT.md alone ----------------------------------------------------------------


def test_the_reader_from_the_page_has_nothing_of_the_library():
    text = Path(from_the_page.__file__).read_text()
    lines = [line.split() for line in text.splitlines() if line.startswith(("import", "from"))]
    assert "inlay" not in {words[1].split(".")[0] for words in lines}


@pytest.mark.parametrize("state", make_v2.STATES)
def test_who_reads_by_the_page_sees_the_same(state):
    objects = make_v2.golden(state)
    for name in make_v2.TABLES:
        root = f"tables/{name}"
        data, prepared = from_the_page.pointer(objects, root)
        found = {
            "version": from_the_page.frame(data, "snapshot")["version"],
            "rows": from_the_page.rows(objects, root, data),
        }
        assert found == EXPECTED[state][name]
        assert (prepared is None) == (state not in OPEN)
        if prepared is not None:
            assert ("pending" in prepared) == (name != "c")
            assert {t[1] for t in prepared["tables"]} == {
                f"memory://{make_v2.BUCKET}/tables/{n}" for n in make_v2.TABLES
            }


def test_who_reads_by_the_page_goes_on_from_what_was_prepared():
    """Rule 1: the next commit archives the frame that was decided, byte for byte, and is above it."""
    for before, after in make_v2.AFTER.items():
        was, now = make_v2.golden(before), make_v2.golden(after)
        for name in make_v2.TABLES:
            root = f"tables/{name}"
            data, _ = from_the_page.pointer(was, root)
            version = from_the_page.frame(data, "snapshot")["version"]
            assert now[from_the_page.archive(root, version)] == data
            next_one = from_the_page.frame(now[f"{root}/{POINTER}"], "snapshot")
            assert next_one["version"] == version + 1
            ids = [
                from_the_page.frame(now[from_the_page.archive(root, v)], "snapshot")["commit"]["id"]
                for v in range(1, version + 1)
            ]
            assert len({*ids, next_one["commit"]["id"]}) == version + 1


# -- readers of version 1 --------------------------------------------------------------------------


@pytest.mark.parametrize("state", make_v2.STATES)
def test_who_knows_version_1_only_stops_while_it_is_prepared(state):
    """The rule of section 4, as a reader of version 1 has it. What the wheel of such a library does is in
    docs/TRANSACTIONS.md."""
    for body in pointers(state).values():
        if state in OPEN:
            with pytest.raises(from_the_page.NewerVersion):
                from_the_page.frame(body, "snapshot", knows=1)
            with pytest.raises(NewerFormat, match="format version 2; this library reads up to 1"):
                decode_frame("snapshot", body, key=POINTER, version=1)
        else:
            assert from_the_page.frame(body, "snapshot", knows=1)["inlay"] == 1
            assert decode_snapshot(body, key=POINTER)


def test_all_that_is_not_a_pointer_or_a_decision_is_of_version_1():
    """So who can read the pointer can read the table."""
    for state in make_v2.STATES:
        for key, body in make_v2.golden(state).items():
            if "/manifest/" in key:
                assert json.loads(body)["inlay"] == 1


def test_its_maker_makes_it_again():
    for state in make_v2.STATES:
        store, time = make_v2.build(state)
        assert make_v2.seen(store, time) == EXPECTED[state]
        assert make_v2.objects(store).keys() == make_v2.golden(state).keys()

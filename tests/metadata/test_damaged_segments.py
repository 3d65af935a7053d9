"""A segment that was cut, edited, mixed up or written by a later format is refused by name, as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from tests.metadata.tables import Table

from inlay.errors import CorruptTable, InlayError, NewerFormat
from inlay.format import keys
from inlay.format.codec import decode_frame, encode_frame
from inlay.ops.metadata.load import load_entries, load_ledger, load_pointer
from inlay.ops.read.scan import Scan
from inlay.plan.commit import apply as apply_module
from inlay.storage.base import Got

KINDS = ("files", "ledger", "references")


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """Of a table with a node, leaves under it, and leaves of the ledger."""
    made = Table()
    with (
        patch.object(apply_module._Files, "most", 8),
        patch.object(apply_module._Records, "most", 8),
        patch.object(apply_module, "POINTER_TARGET_BYTES", 1_500),
        patch.object(apply_module, "INLINE_MIN_BYTES", 300),
    ):
        for _ in range(40):
            made.append(made.files(4))
    return {
        o.key: got.body
        for o in made.store.list("t/")
        if isinstance(got := made.store.get(o.key), Got)
    }


@pytest.fixture
def table(objects: dict[str, bytes]) -> Table:
    found = Table()
    for key, body in objects.items():
        found.store.put(key, body)
    found.forget()
    return found


def key_of(table: Table, kind: str) -> str:
    snapshot = table.loaded.snapshot
    segment = {
        "references": lambda: next(s for s in snapshot.files.segments if s.level),
        "files": lambda: next(s for s in snapshot.files.segments if not s.level),
        "ledger": lambda: next(s for s in snapshot.ledger.records.segments if not s.level),
    }[kind]()
    return table.ctx.key(keys.segment_key(segment.id))


def put(table: Table, key: str, change: Callable[[bytes], bytes]) -> None:
    got = table.store.get(key)
    assert isinstance(got, Got)
    table.store.put(key, change(got.body))


def reframed(kind: str, change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def changed(body: bytes) -> bytes:
        found = decode_frame(kind, body, key="k")
        change(found)
        return encode_frame(kind, found)

    return changed


def read_everything(table: Table) -> None:
    table.forget()
    ctx = table.fresh()
    load_ledger(ctx, load_entries(ctx, load_pointer(ctx).state))


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_that_was_cut_short_is_refused_by_name(table: Table, kind: str) -> None:
    key = key_of(table, kind)
    put(table, key, lambda body: body[: len(body) * 2 // 3])
    with pytest.raises(CorruptTable, match=key.rsplit("/", 1)[1]):
        read_everything(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_of_another_kind_is_refused_by_name(table: Table, kind: str) -> None:
    key, other = key_of(table, kind), key_of(table, KINDS[KINDS.index(kind) - 1])
    got = table.store.get(other)
    assert isinstance(got, Got)
    put(table, key, lambda _: got.body)
    with pytest.raises(CorruptTable, match=key.rsplit("/", 1)[1]):
        read_everything(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_with_parts_of_a_later_format_stops_the_reader(table: Table, kind: str) -> None:
    key = key_of(table, kind)
    put(table, key, reframed(kind, lambda body: body.update(surprise=1)))
    with pytest.raises(NewerFormat, match=key.rsplit("/", 1)[1]):
        read_everything(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_segment_of_a_later_format_stops_the_reader(table: Table, kind: str) -> None:
    key = key_of(table, kind)

    def later(body: bytes) -> bytes:
        found = decode_frame(kind, body, key="k")
        return json.dumps({"inlay": 99, "kind": kind, **found}).encode()

    put(table, key, later)
    with pytest.raises(NewerFormat, match="99"):
        read_everything(table)


EDITS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("files", lambda b: b.update(count=b["count"] + 1)),
    ("files", lambda b: b.update(count=10**9)),
    ("files", lambda b: b.update(size=b["size"][:-1] if isinstance(b["size"], list) else [])),
    ("files", lambda b: b.update(size={"all": -1})),
    ("files", lambda b: b.update(rows={"steps": [1, "2"]})),
    ("files", lambda b: b.update(key={"all": None})),
    ("files", lambda b: b.update(key={"around": ["a"], "texts": []})),
    ("files", lambda b: b.update(schema={"each": 1})),
    ("files", lambda b: b["stats"][0].__setitem__(1, "int7")),
    ("files", lambda b: b["stats"][0].__setitem__(2, {"all": 2**70})),
    ("files", lambda b: b["stats"][0].pop()),
    ("ledger", lambda b: b.update(ids=b["ids"][:-16])),
    ("ledger", lambda b: b.update(runs=[1])),
    ("ledger", lambda b: b.update(bodies=[[0], "AAAA"])),
    ("references", lambda b: b.update(id={"all": 7})),
    ("references", lambda b: b.update(dead={"all": "!!"})),
    ("references", lambda b: b.update(entries={"all": 1})),
]


@pytest.mark.parametrize(("kind", "change"), EDITS)
def test_content_that_cannot_be_is_refused_by_name(
    table: Table, kind: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    key = key_of(table, kind)
    put(table, key, reframed(kind, change))
    with pytest.raises(InlayError) as caught:
        read_everything(table)
    assert key.rsplit("/", 1)[1] in str(caught.value)
    assert isinstance(caught.value, CorruptTable)


def test_a_missing_node_is_named_by_a_query(table: Table) -> None:
    key = key_of(table, "references")
    table.store.delete([key])
    with pytest.raises(CorruptTable, match=key.rsplit("/", 1)[1]):
        Scan(table.ctx, table.loaded.state, where="k >= 0").plan.tasks  # noqa: B018

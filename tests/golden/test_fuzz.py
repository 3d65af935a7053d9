"""Damaged metadata: whatever is done to whichever object, a table reports it or answers correctly.

Two kinds of damage to the golden table, which has every feature of the format. Bytes that were cut,
flipped, lost, replaced by other bytes or by another object never make a wrong answer. Edits by someone
who knows how to seal a frame again can say anything; they are answered, or refused by name, and never by
an error of Python.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import inlay
from inlay.errors import InlayError
from inlay.format.codec import encode_frame
from inlay.format.snapshot import FORMAT_VERSION
from inlay.ops.context import Context, InlineExecutor
from inlay.storage.memory import MemoryStore

from ..clock import Clock

HERE = Path(__file__).parent
TABLE = HERE / f"v{FORMAT_VERSION}" / "table"
# Damages of each kind in `make test`; the slow test has more.
FEW = int(os.environ.get("INLAY_FUZZ", "15"))
MANY = 2_000

spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
assert spec is not None and spec.loader is not None
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

OBJECTS = {
    str(p.relative_to(TABLE)): p.read_bytes() for p in sorted(TABLE.rglob("*")) if p.is_file()
}
METADATA = [k for k in OBJECTS if not k.startswith("data/")]
FRAMES = [k for k in METADATA if not k.startswith("tombstone/")]
NEWEST, ROWS = make.expected(HERE / f"v{FORMAT_VERSION}")
REFS = json.loads((TABLE.parent / "expected.json").read_text(encoding="utf-8"))["refs"]


class Untold(Exception):
    """A pointer put back: what the table then says was not written down."""


def rows_of(table: inlay.Table) -> list[dict[str, Any]]:
    if table.version != NEWEST:
        raise Untold
    rows: list[dict[str, Any]] = ROWS[NEWEST]
    return rows


def opened(objects: dict[str, bytes]) -> Callable[..., inlay.Table]:
    store = MemoryStore("m")
    for key, body in objects.items():
        store.put(f"t/{key}", body)
    ctx = Context(
        store=store,
        root="t",
        uri="memory://m/t",
        executor=InlineExecutor(),
        clock=Clock(0.0),
        random=random.Random(1),
    )
    return lambda **options: inlay.open(ctx.uri, context=ctx, **options)


# -- damage ---------------------------------------------------------------------------------------


def cut(rng: random.Random, body: bytes, key: str) -> bytes:
    return body[: rng.randrange(len(body))]


def flip(rng: random.Random, body: bytes, key: str) -> bytes:
    at = rng.randrange(len(body))
    return body[:at] + bytes([body[at] ^ (1 << rng.randrange(8))]) + body[at + 1 :]


def scramble(rng: random.Random, body: bytes, key: str) -> bytes:
    at = rng.randrange(len(body))
    length = rng.randrange(1, 64)
    return body[:at] + rng.randbytes(length) + body[at + length :]


def lengthen(rng: random.Random, body: bytes, key: str) -> bytes:
    return body + rng.choice([b"\n", b"}", b"\0" * 100, body])


def other(rng: random.Random, body: bytes, key: str) -> bytes:
    """What stands in another object of the same folder, or of any."""
    folder = [k for k in METADATA if k.rpartition("/")[0] == key.rpartition("/")[0] and k != key]
    return OBJECTS[rng.choice(folder or [k for k in METADATA if k != key])]


def lose(rng: random.Random, body: bytes, key: str) -> None:
    return None


DAMAGES = (cut, flip, scramble, lengthen, other, lose)


def edit(rng: random.Random, body: bytes, key: str) -> bytes:
    """One value of a frame changed, and the frame sealed again."""
    plain = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    frame = json.loads(plain)
    kind = frame["kind"]
    for name in ("inlay", "kind", "digest"):
        del frame[name]
    places = list(_places(frame))
    holder, name = rng.choice(places)
    was = holder[name]
    holder[name] = rng.choice(
        [None, -1, 0, 2**63, 1.5, True, "", "x", [], {}, [was], {"a": was}, was]
        + ([was + 1, was - 1, was * 2] if isinstance(was, int) else [])
        + ([was[:-1], was + "0"] if isinstance(was, str) else [])
        + ([was[1:], was + was, was[::-1]] if isinstance(was, list) else [])
    )
    if rng.random() < 0.2:
        del holder[name]
    return encode_frame(kind, frame)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for name in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from _places(value[name])


# -- what a damaged table is asked ----------------------------------------------------------------


def newest(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table = t()
    return bool(make.plain(table.scan().to_arrow()) == rows_of(table))


def some_version(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    version = rng.choice(sorted(ROWS))
    rows_of(t())
    return bool(make.plain(t(version=version).scan().to_arrow()) == ROWS[version])


def some_ref(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    name = rng.choice(sorted(REFS))
    rows_of(t())
    return bool(make.plain(t(ref=name).scan().to_arrow()) == REFS[name])


def a_range(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table, n = t(), rng.randrange(60)
    found = make.plain(table.scan(where=f"id <= {n}").to_arrow())
    return bool(found == [row for row in rows_of(table) if row["id"] <= n])


def a_delete(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table, n = t(), rng.randrange(60)
    before = rows_of(table)
    mode = rng.choice(["tombstone", "vector", "rewrite"])
    table.delete(f"id = {n}", mode=mode)
    return bool(make.plain(t().scan().to_arrow()) == [r for r in before if r["id"] != n])


def tables(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table = t()
    what = ["history", "files", "snapshots", "segments", "tombstones", "partitions", "ledger"]
    getattr(table.inspect, rng.choice([*what, "refs", "report"]))()
    return True


def changes(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table = t()
    t().changes(max(table.version - rng.randrange(1, 9), 1)).to_arrow()
    return True


def upkeep(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    """Maintenance changes no row."""
    table = t()
    before = rows_of(table)
    what = rng.choice(["rewrite", "compact", "expire", "collect_garbage"])
    getattr(table.maintain, what)(**({"dry_run": True} if what == "collect_garbage" else {}))
    return bool(make.plain(t().scan().to_arrow()) == before)


def checks(t: Callable[..., inlay.Table], rng: random.Random) -> bool:
    table = t()
    table.maintain.verify(depth=rng.choice(["metadata", "footers"]))
    table.maintain.repair(dry_run=rng.random() < 0.5)
    return True


ASKED = (
    newest,
    some_version,
    some_ref,
    a_range,
    a_delete,
    tables,
    changes,
    upkeep,
    checks,
)


def ask(seed: int, key: str, body: bytes | None, *, believed: bool) -> None:
    objects = {k: v for k, v in OBJECTS.items() if k != key or body is not None}
    if body is not None:
        objects[key] = body
    rng = random.Random(seed)
    for question in rng.sample(ASKED, 3):
        try:
            right = question(opened(objects), rng)
        except InlayError as error:
            assert str(error)
            continue
        except Untold:
            continue
        assert right or believed, f"seed {seed}: {question.__name__} of {key} answers wrong"


def damage(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        key = "_latest_manifest" if rng.random() < 0.2 else rng.choice(METADATA)
        ask(seed, key, rng.choice(DAMAGES)(rng, OBJECTS[key], key), believed=False)


def edited(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        key = "_latest_manifest" if rng.random() < 0.4 else rng.choice(FRAMES)
        ask(seed, key, edit(rng, OBJECTS[key], key), believed=True)


def test_damage_is_reported_or_does_no_harm() -> None:
    damage(range(FEW))


def test_edits_that_were_sealed_again_are_answered_or_refused() -> None:
    edited(range(FEW))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_much_damage_is_reported_or_does_no_harm() -> None:
    damage(range(FEW, MANY))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_edits_that_were_sealed_again_are_answered_or_refused() -> None:
    edited(range(FEW, MANY))

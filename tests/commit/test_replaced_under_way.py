"""A table that is removed and created again at each request of an operation that began on the first one:
the second table is as if nobody else had been there.

What remains is a request on its way: a delete that the store carries out after all that
(docs/GUARANTEES.md, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.simulator.faults import FaultyStore, Sent
from tests.tiers import paired

from inlay.errors import InlayError
from inlay.format import keys
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context
from inlay.ops.drop import drop
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import load_pointer
from inlay.ops.publish.publish import publish
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.verify.repair import repair
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Change, SetProperties
from inlay.storage.base import Got
from inlay.storage.memory import MemoryRegion, MemoryStore

from .conftest import POINTER, ROOT, context

SCHEMA = pa.schema([("id", pa.int64())])
HINT = f"{ROOT}/{keys.VERSION_HINT}"
HOUR_US = 3_600_000_000
MOST_REQUESTS = 150


class Place:
    def __init__(self, other: Place | None = None) -> None:
        """With what `other` has, and without any effect on it."""
        self.now_us = other.now_us if other else 1_780_000_000_000_000
        self.contexts = other.contexts if other else 0
        self.region = other.region.copy(self.tick) if other else MemoryRegion(self.tick)
        self.store = MemoryStore("b", region=self.region)

    def tick(self) -> int:
        self.now_us += 1_000
        return self.now_us

    def context(self, store: Any = None) -> Context:
        self.contexts += 1
        return context(store or self.store, seed=self.contexts)

    def append(self, row: int) -> None:
        append(self.context(), pa.table({"id": pa.array([row], pa.int64())}))

    def create(self, first: int, properties: dict[str, str]) -> None:
        create(self.context(), SCHEMA, properties=properties)
        for row in range(first, first + 6):
            self.append(row)

    def make(self, first: int) -> None:
        """A table with something to do for everybody, and archives that nobody needs."""
        self.create(first, {"publish.format": "v2"})
        publish(self.context())
        expire(self.context(), days=0, min_versions=1)
        self.append(first + 6)
        publish(self.context())
        self.now_us += HOUR_US
        self.append(first + 7)
        self.now_us += HOUR_US

    def remove(self) -> None:
        self.store.delete([found.key for found in self.store.list(f"{ROOT}/")])

    def replace(self) -> dict[str, str]:
        """Another table, of as many versions; what it consists of."""
        self.remove()
        self.make(100)
        return self.objects()

    def objects(self) -> dict[str, str]:
        return {found.key: found.etag for found in self.store.list(f"{ROOT}/")}

    def rows(self) -> list[int]:
        ctx = self.context()
        return sorted(Scan(ctx, load_pointer(ctx).state).to_arrow()["id"].to_pylist())


def where(text: str) -> Any:
    return parse_predicate(text, schema_from_arrow(SCHEMA))


def erase_to_the_end(ctx: Context) -> None:
    for _ in range(6):
        advance_erasures(ctx)
        found = collect_garbage(ctx, life_seconds=0, clock_margin_seconds=0)
        if found.receipts:
            return


def collect(ctx: Context) -> object:
    return collect_garbage(ctx, grace_seconds=1, clock_margin_seconds=0)


OPERATIONS: dict[str, Callable[[Context], object]] = {
    "append": lambda ctx: append(ctx, pa.table({"id": pa.array([50], pa.int64())})),
    "delete": lambda ctx: delete(ctx, where("id = 103 OR id = 3"), mode="vector"),
    "rewrite": lambda ctx: delete(ctx, where("id = 103 OR id = 3"), mode="rewrite"),
    "compact": compact,
    "properties": lambda ctx: commit(
        ctx, Change(operation="set_properties", updates=(SetProperties({"team.owner": "x"}),))
    ),
    "publish": publish,
    "publish again": lambda ctx: publish(ctx, rebuild=True),
    "collect": collect,
    "erase": lambda ctx: (open_erasure(ctx, where("id = 103 OR id = 3")), erase_to_the_end(ctx)),
    "repair": lambda ctx: repair(ctx, dry_run=False),
    "drop": lambda ctx: drop(ctx, grace_seconds=0),
}


# They consist of operations that begin on what they find, unless they have a handle.
BY_A_HANDLE = ("erase",)


def is_ours(key: str) -> bool:
    """Whether it is an object of the format: the second table, and whoever reads it, knows it by name."""
    return keys.classify(key.removeprefix(f"{ROOT}/")) is not keys.ObjectKind.UNKNOWN


@dataclass
class Gap:
    """The table is replaced before request `at` of an operation that has read the first one's pointer."""

    place: Place
    at: int
    passed: bool = False
    began: bool = False
    second: dict[str, str] = field(default_factory=dict)

    def before(self, sent: Sent) -> None:
        if sent.number == self.at:
            self.passed = True
            if self.began and sent.verb not in ("delete", "delete_versions"):
                self.second = self.place.replace()
        self.began |= sent.verb == "get" and sent.key == POINTER


# Those of `BY_A_HANDLE` begin again on the existing table where they know it by its place alone.
@pytest.mark.parametrize(
    ("name", "handle"),
    [
        *((name, True) for name in BY_A_HANDLE),
        *paired([name for name in OPERATIONS if name not in BY_A_HANDLE], [True, False]),
    ],
)
def test_at_whatever_request_the_table_is_replaced_the_second_stays_as_it_is(
    name: str, handle: bool
) -> None:
    replaced, first = 0, Place()
    first.make(0)
    for at in range(2, MOST_REQUESTS):
        place = Place(first)
        gap = Gap(place, at)
        ctx = place.context(FaultyStore(place.store, before=gap.before))
        if handle:
            ctx = replace(ctx, table_id=load_pointer(place.context()).snapshot.table_id)
        with suppress(InlayError):
            OPERATIONS[name](ctx)
        if not gap.passed:
            break
        if not gap.second:
            continue
        replaced += 1
        after = place.objects()
        # A hint is a number: one that says the same is swapped as one's own. The next publication mends it.
        mine = gap.second.keys() - {HINT}
        changed = {k for k in mine if is_ours(k) and after.get(k) != gap.second[k]}
        assert not changed, f"at request {at}: {sorted(changed)}"
        assert place.rows() == list(range(100, 108))
        # An archive of the first table may have come after the second was created: it is refused by name.
        repair(place.context(), dry_run=False)
        place.append(108)
        assert place.rows() == list(range(100, 109))
        shown = publish(place.context()).version
        hint = place.store.get(HINT)
        assert isinstance(hint, Got) and hint.body == str(shown).encode()
        left = verify(place.context(), depth="footers").errors
        assert not left, f"at request {at}: {left}"
    assert replaced > 0

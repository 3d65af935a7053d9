"""A coordinator that is killed at each of its requests, with every operation on one of its tables before it
is repeated: the tables agree at every step, and the request is applied once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.transaction.conftest import Died, content, rows
from tests.transaction.test_transactions import AFTER, OPERATIONS, START

import inlay
from inlay.errors import InlayError
from inlay.ops.metadata.load import load_pointer
from inlay.plan.change import Request
from inlay.storage.base import ObjectStore
from inlay.storage.wrapped import READS, Asked, WrappedStore

T = TypeVar("T")
# Rows of the two tables, with their archives; a swap of each; the decision.
WRITES = 2 * 2 + 2 + 1


class Dying(WrappedStore):
    """The process dies right before write `left[0]`, or right after it."""

    def __init__(self, inner: ObjectStore, left: list[int], after: bool) -> None:
        super().__init__(inner)
        self.left, self.after = left, after

    def at(self, bucket: str) -> Dying:
        return Dying(self.inner.at(bucket), self.left, self.after)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        if asked.verb in READS:
            return send()
        self.left[0] -= 1
        if self.left[0] < 0 or (self.left[0] == 0 and not self.after):
            raise Died
        answer = send()
        if self.left[0] == 0:
            raise Died
        return answer


def transfer(tables: list[inlay.Table]) -> None:
    with inlay.transaction(request_id="r") as tx:
        for table in tables:
            tx.append(table, rows((3, 30)))


def killed(tables: list[inlay.Table], write: int, *, after: bool) -> None:
    left = [write]
    with pytest.raises(Died):
        transfer(
            [
                inlay.open(t.uri, context=replace(t._ctx, store=Dying(t._ctx.store, left, after)))
                for t in tables
            ]
        )


def test_it_makes_so_many_writes(tables):
    left = [WRITES + 1]
    a, b, _ = tables
    transfer(
        [
            inlay.open(t.uri, context=replace(t._ctx, store=Dying(t._ctx.store, left, True)))
            for t in (a, b)
        ]
    )
    assert left == [1]


def has(table: inlay.Table) -> bool:
    return 3 in content(table)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("first", [True, False], ids=["of its decision", "of another"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
@pytest.mark.wide  # the case in which both are prepared is in `test_transactions.py` as well
def test_whatever_others_do_meanwhile(tables, in_no_time, write, first, name):
    a, b = tables[:2] if first else tables[1::-1]
    killed(tables[:2], write, after=True)
    committed = write == WRITES
    assert (has(a), has(b)) == (committed, committed)
    OPERATIONS[name](inlay.open(a.uri))
    assert content(b) == (AFTER if committed else START)
    assert inlay.verify(b.uri).ok
    if name not in ("drop", "restore"):
        assert has(a) == committed
        if name != "delete":
            at_one_cut = inlay.snapshot([a.uri, b.uri])
            assert [
                3 in {r["id"] for r in t.scan().to_arrow().to_pylist()} for t in at_one_cut
            ] == [committed] * 2
    # Its message comes again.
    try:
        transfer([inlay.open(b.uri), inlay.open(a.uri)])
    except InlayError as error:
        assert name == "drop"
        assert content(b) == (AFTER if committed else START), error
        inlay.repair(a.uri, dry_run=False)
        return
    for table in (a, b):
        if name != "restore":
            assert has(table)
        assert inlay.verify(table.uri).ok
        known = inlay.open(table.uri).inspect.ledger()["id"].to_pylist()
        assert known.count(Request.of("r").id.hex()) == 1
    assert load_pointer(b._ctx).snapshot.totals.rows == len(AFTER)

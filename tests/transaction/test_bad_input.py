"""What cannot take part in a transaction, or stops being able to: typed, by name, with the next step, and
nothing half done is ever shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transaction.conftest import SCHEMA, content, rows

import inlay
from inlay.errors import AccessDenied, InlayError, TableNotFound, TableReplaced
from inlay.format import keys
from inlay.format.codec import PREPARED
from inlay.storage.base import ObjectStore
from inlay.storage.wrapped import WrappedStore

START = {1: 10, 2: 20}
AFTER = {1: 10, 2: 20, 3: 30}


def is_prepared(table: inlay.Table) -> bool:
    answer = table._ctx.store.get(table._ctx.key(keys.POINTER))
    return bool(answer.body.startswith(PREPARED))


class ReadOnly(WrappedStore):
    """As a role without s3:PutObject there."""

    def __init__(self, inner: ObjectStore, *, only: str = "") -> None:
        super().__init__(inner)
        self.only = only

    def at(self, bucket: str) -> ReadOnly:
        return ReadOnly(self.inner.at(bucket), only=self.only)

    def put(self, key: str, body: bytes, **options: object):  # type: ignore[no-untyped-def]
        if self.only in key:
            raise AccessDenied(f"PutObject of {key} is denied")
        return self.inner.put(key, body, **options)  # type: ignore[arg-type]


def read_only(table: inlay.Table, *, only: str = "") -> inlay.Table:
    ctx = replace(table._ctx, store=ReadOnly(table._ctx.store, only=only))
    return inlay.open(table.uri, context=ctx)


@pytest.mark.parametrize("only", ["", keys.POINTER])
def test_a_table_that_may_only_be_read(tables, only):
    """It is found out at its rows, or, where only its pointer may not be written, when it is prepared."""
    a, b, _ = tables
    with pytest.raises(AccessDenied) as refused, inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(read_only(b, only=only), rows((3, 30)))
    assert refused.value.next_step
    assert content(a) == content(b) == START
    # Nobody waits for it: where it had prepared one, it has decided.
    assert inlay.open(a.uri).append(rows((5, 50))).committed
    assert (content(a), content(b)) == ({**START, 5: 50}, START)


def test_a_table_that_may_only_be_read_cannot_even_be_read_by_the_transaction(tables):
    a, b, _ = tables
    with pytest.raises(AccessDenied), inlay.transaction() as tx:
        tx.append(a, rows((3, len(tx.read(read_only(b))))))
    assert content(a) == START


def test_a_table_that_is_dropped(tables):
    a, b, _ = tables
    inlay.drop(b.uri)
    with pytest.raises(TableReplaced, match="is gone") as refused, inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(b, rows((3, 30)))
    assert b.uri in str(refused.value) and refused.value.next_step
    assert content(a) == START
    inlay.repair(b.uri, dry_run=False)
    assert content(b) == START


def test_a_table_that_is_being_created(tables):
    """Its pointer is not there yet: there is nothing to open."""
    a = tables[0]
    with pytest.raises(TableNotFound), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(inlay.open(f"{a.uri}-new"), rows((3, 30)))
    assert content(a) == START
    made = inlay.create(f"{a.uri}-new", SCHEMA)  # and then it takes part from its first version on
    with inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.append(made, rows((3, 30)))
    assert (content(a), content(made)) == (AFTER, {3: 30})


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("when", ["archives", "prepare", "decide"])
def test_a_participant_that_disappears_at_each_step(tables, monkeypatch, when, again):
    """Dropped, and perhaps created again, before its archive, before its swap, before the decision."""
    a, b, _ = tables
    from inlay.ops import transaction as module

    name = {"archives": "_write", "prepare": "_prepare_all", "decide": "decide"}[when]
    real, once = getattr(module, name), []

    def meanwhile(*given, **options):
        if not once:
            once.append(1)
            b._ctx.store.delete([i.key for i in b._ctx.store.list(b._ctx.key(""))])
            if again:
                inlay.create(b.uri, SCHEMA)
        return real(*given, **options)

    monkeypatch.setattr(module, name, meanwhile)
    try:
        with inlay.transaction(request_id="r") as tx:
            tx.append(a, rows((3, 30)))
            tx.append(b, rows((3, 30)))
    except (TableNotFound, TableReplaced) as error:
        assert b.uri in str(error) and error.next_step
        assert content(a) == START
    else:
        # It was prepared, and removed by hand then: what was decided is in what is left.
        assert when == "decide"
        assert content(a) == AFTER
    assert once
    inlay.open(a.uri).append(rows((5, 50)))
    assert inlay.verify(a.uri).ok
    if again:
        assert content(b) == {}


def test_every_error_of_a_transaction_says_what_to_do_next(tables, tmp_path):
    a, b, _ = tables
    other = inlay.create(str(tmp_path / "t"), SCHEMA)
    b.set_properties(format__max_version=1)
    wrong = {
        "twice": lambda tx: (tx.append(a, rows((3, 3))), tx.append(a, rows((4, 4)))),
        "two handles": lambda tx: (
            tx.append(a, rows((3, 3))),
            tx.delete(inlay.open(a.uri), "id = 1"),
        ),
        "read after": lambda tx: (tx.append(a, rows((3, 3))), tx.read(a)),
        "other store": lambda tx: (tx.append(a, rows((3, 3))), tx.append(other, rows((3, 3)))),
        "denied": lambda tx: (tx.append(a, rows((3, 3))), tx.append(b, rows((3, 3)))),
        "past": lambda tx: tx.append(inlay.open(a.uri, version=1), rows((3, 3))),
        "compact": lambda tx: tx.compact(a),
    }
    for name, do in wrong.items():
        with pytest.raises(InlayError) as refused, inlay.transaction() as tx:
            do(tx)
        assert refused.value.next_step, name
    assert content(a) == START
    assert not any(map(is_prepared, (a, b)))

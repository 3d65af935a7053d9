"""Every operation that commits, in a transaction: done with the others, once, or refused by its name."""

from __future__ import annotations

import io
import weakref
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.erasure.oracle import Secret, find
from tests.transaction.conftest import SCHEMA, content, rows

import inlay
from inlay.errors import InvalidRequest, RequestReused
from inlay.ops.read.scan import Scan

START = {1: 10, 2: 20}
AFTER = {1: 10, 2: 20, 3: 30}


def landed(table: inlay.Table, name: str, rows: pa.Table) -> str:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    key = f"ingest/{name}.parquet"
    table._ctx.store.put(key, sink.getvalue())
    return f"{table.uri.partition('/tables')[0]}/{key}"


def erased(table: inlay.Table) -> list[str]:
    return [e.id for e in inlay.open(table.uri).snapshot.erasures]


def branched(table: inlay.Table) -> None:
    table.refs.branch("b").append(rows((3, 30)))


# What is done to the first table, and what is there after it, besides the rows of the start.
VERBS = {
    "ingest": lambda tx, t, uri: tx.ingest(t, [uri]),
    "alter": lambda tx, t, uri: tx.alter(t, add={"x": "int"}),
    "merge": lambda tx, t, uri: tx.merge(t, "b"),
    "restore": lambda tx, t, uri: tx.restore(t, version=1),
    "tag": lambda tx, t, uri: tx.tag(t, "then"),
    "set_properties": lambda tx, t, uri: tx.set_properties(t, {"history.days": 3}),
    "erase": lambda tx, t, uri: tx.delete(t, "id = 1", mode="erase"),
    "erase keys": lambda tx, t, uri: tx.delete(t, keys={"id": [1, 2]}, mode="erase"),
}


def is_done(name: str, table: inlay.Table) -> bool:
    now = inlay.open(table.uri)
    match name:
        case "ingest" | "merge":
            return content(table) == AFTER
        case "alter":
            return now.columns == ["id", "n", "x"]
        case "restore":
            return content(table) == {}
        case "tag":
            ref = now.snapshot.refs.get("then")
            return ref is not None and ref.version == now.version - 1
        case "set_properties":
            return now.properties.get("history.days") == "3"
        case "erase":
            return content(table) == {2: 20} and erased(table) == ["r"]
        case _:
            return content(table) == {} and erased(table) == ["r.1", "r.2"]


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_is_done_once_with_the_other_table_or_not_at_all(tables, name):
    a, b, _ = tables
    uri = landed(a, "rows", rows((3, 30)))
    branched(a)
    a.refresh()
    with pytest.raises(ZeroDivisionError), inlay.transaction() as tx:
        VERBS[name](tx, a, uri)
        tx.append(b, rows((1 // 0, 1)))
    assert not is_done(name, a)
    versions = set()
    for _ in range(2):  # the second time by who did not hear of the first
        first, second = inlay.open(a.uri), inlay.open(b.uri)
        with inlay.transaction(request_id="r") as tx:
            VERBS[name](tx, first, uri)
            tx.append(second, rows((3, 30)))
        assert is_done(name, a)
        assert content(b) == AFTER
        versions.add(tuple(tx.versions.values()))
    assert len(versions) == 1
    assert [r.applied_before for r in tx.results] == [True, True]
    assert inlay.open(a.uri).maintain.verify().ok
    with pytest.raises(RequestReused), inlay.transaction(request_id="r") as tx:
        VERBS[name](tx, inlay.open(a.uri), uri)
        tx.append(inlay.open(b.uri), rows((4, 40), (5, 50)))


@pytest.mark.parametrize("name", VERBS)
def test_others_that_commit_meanwhile_are_gone_on_from(tables, name):
    a, b, _ = tables
    uri = landed(a, "rows", rows((3, 30)))
    branched(a)
    a.refresh()
    with inlay.transaction(request_id="r") as tx:
        VERBS[name](tx, a, uri)
        tx.append(b, rows((3, 30)))
        inlay.open(a.uri).set_properties(my__own="x")
    assert content(b) == AFTER
    if name != "tag":  # which names the version before that one
        assert is_done(name, a)
    assert inlay.open(a.uri).properties["my.own"] == "x"


def test_objects_that_were_ingested_before_do_not_end_what_else_is_asked(tables):
    a, b, _ = tables
    uri = landed(a, "rows", rows((3, 30)))
    a.ingest([uri])
    with inlay.transaction(request_id="r") as tx:
        tx.ingest(a, [uri])
        tx.append(b, rows((3, 30)))
    assert (content(a), content(b)) == (AFTER, AFTER)


def test_a_person_is_erased_from_two_tables_with_a_receipt_of_each(tables):
    a, b, _ = tables
    with inlay.transaction(request_id="case-7") as tx:
        for table in (a, b):
            tx.delete(table, "id = 1", mode="erase")
    assert erased(a) == erased(b) == ["case-7"]
    assert all("can no longer be read" in done.note for done in tx.by_table.values())
    for table in (a, b):
        inlay.open(table.uri).maintain.rewrite()
    assert content(a) == content(b) == {2: 20}


def test_an_erasure_from_two_tables_leaves_no_byte_and_a_receipt_in_each():
    place, who = f"memory://tx-{uuid4()}/tables", "mail@who.example"
    schema = pa.schema([("id", "int64"), ("mail", "string")])
    made = [inlay.create(f"{place}/{name}", schema, primary_key="id") for name in "ab"]
    for n, table in enumerate(made):
        table.append(pa.table({"id": [1, 2 + n], "mail": [who, "other"]}, schema=schema))
    with inlay.transaction(request_id="case-7") as tx:
        for table in made:
            tx.delete(table, "mail = ?", params=[who], mode="erase")
    store = made[0]._ctx.store.inner
    assert find(store, Secret(who))
    for n, table in enumerate(made):
        table.maintain.rewrite()
        assert table.maintain.collect_garbage(
            life_seconds=0, clock_margin_seconds=0, landing=""
        ).receipts
        [receipt], _ = table.inspect.receipts()
        assert receipt["id"] == "case-7" and table.count() == 1
        checked = table.inspect.check_receipt("case-7", where="mail = ?", params=[who])
        assert not checked.problems
        assert (find(store, Secret(who)) == []) is (n == 1)


def test_what_takes_two_commits_is_refused(tables):
    a, b, _ = tables
    b.set_properties(schema__evolve="add")
    uri = landed(b, "wider", rows((3, 30)).append_column("x", pa.array([1])))
    with pytest.raises(InvalidRequest, match="more than one commit"), inlay.transaction() as tx:
        tx.append(a, rows((3, 30)))
        tx.ingest(b, [uri])
    assert (content(a), content(b)) == (START, START)


@pytest.mark.parametrize("name", ["compact", "expire", "publish", "drop", "branch", "repair"])
def test_what_is_not_part_of_a_transaction_is_refused_by_its_name(tables, name):
    with pytest.raises(InvalidRequest, match=f"{name} is not part of"), inlay.transaction() as tx:
        getattr(tx, name)(tables[0])
    with pytest.raises(AttributeError, match="no 'frobnicate'"), inlay.transaction() as tx:
        tx.frobnicate(tables[0])


# -- as data ----------------------------------------------------------------------------------------


def test_operations_as_data(tables):
    a, b, c = tables
    with inlay.transaction() as tx:
        done = tx.run(
            [
                {"upsert": a.uri, "rows": [{"id": 1, "n": 11}, {"id": 3, "n": 30}]},
                {
                    "update": b.uri,
                    "set": {"n": "n + :by"},
                    "where": "id = :id",
                    "params": {"by": 1, "id": 2},
                },
                {"read": c.uri},
            ]
        )
    assert [r and r.operation for r in done] == ["upsert", "update", None]
    assert (content(a), content(b)) == ({1: 11, 2: 20, 3: 30}, {1: 10, 2: 21})
    with inlay.transaction() as tx:
        tx.run(
            {
                "operations": [
                    {"delete": a.uri, "keys": [{"id": 1}, {"id": 3}]},
                    {
                        "apply_changes": b.uri,
                        "order": ["n"],
                        "op": "op",
                        "rows": [{"id": 2, "n": 99, "op": "d"}],
                    },
                    {
                        "overwrite": c.uri,
                        "rows": [{"id": 5, "n": 1}],
                        "where": "id = ?",
                        "params": [5],
                    },
                ]
            }
        )
    assert (content(a), content(b), content(c)) == ({2: 20}, {1: 10}, {**START, 5: 1})


WRONG = {
    "not a list": {"append": "t"},
    "empty": [],
    "no object": ["append"],
    "no verb": [{"rows": []}],
    "two verbs": [{"append": "t", "delete": "t", "rows": []}],
    "no table": [{"append": 7, "rows": []}],
    "unknown field": [{"append": "t", "rows": [], "secret": "Ada"}],
    "no rows": [{"append": "t"}],
    "rows and files": [{"append": "t", "rows": [], "files": []}],
    "where is null": [{"update": "t", "set": {}, "where": None}],
    "rows of lists": [{"append": "t", "rows": [["Ada"]]}],
    "no branch": [{"merge": "t"}],
    "a true version": [{"restore": "t", "version": True}],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_is_checked_before_anything_is_done(tables, name):
    a = tables[0]
    first = [{"append": a.uri, "rows": [{"id": 3, "n": 30}]}]
    plan = (
        WRONG[name] if not isinstance(WRONG[name], list) or not WRONG[name] else first + WRONG[name]
    )
    with pytest.raises(InvalidRequest) as refused, inlay.transaction() as tx:
        tx.run(plan)
    assert "Ada" not in str(refused.value) and "secret" not in str(refused.value)
    assert content(a) == START
    assert SCHEMA.names == ["id", "n"]


class Batches:
    """Batches of `ROWS` rows, which are counted as long as somebody holds their memory."""

    ROWS, COUNT = 5_000, 60

    def __init__(self) -> None:
        self.made = self.held = self.most = 0

    def let_go(self) -> None:
        self.held -= 1

    def one(self, number: int) -> pa.RecordBatch:
        values = np.arange(number * self.ROWS, (number + 1) * self.ROWS)
        weakref.finalize(values, self.let_go)
        self.made, self.held = self.made + 1, self.held + 1
        self.most = max(self.most, self.held)
        column = pa.array(values)
        assert column.buffers()[1].address == values.ctypes.data  # no copy
        return pa.record_batch([column, column], schema=SCHEMA)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, map(self.one, range(self.COUNT)))


@pytest.fixture
def small_groups(tables):
    """The first and the last table, with row groups of two batches: writers hold no more of them."""
    a, _, c = tables
    for each in (a, c):
        each.set_properties(
            {"write.row_group_rows": 2 * Batches.ROWS, "write.row_group_bytes": 2**20}
        )
    return a, c


def test_rows_of_files_go_through_a_few_batches_at_a_time(small_groups, tables):
    a, _ = small_groups
    seen = Batches()

    class Files:
        def rows(self, schema, *, even=False):
            return seen.reader()

    with inlay.transaction(request_id="f") as tx:
        tx.run(
            [{"append": a.uri, "files": ["x"]}, {"read": tables[1].uri}], files=lambda _: Files()
        )
    assert seen.made == Batches.COUNT
    assert seen.most < Batches.COUNT / 4
    assert inlay.open(a.uri).snapshot.totals.rows == Batches.COUNT * Batches.ROWS + 2


def test_a_move_goes_through_a_few_batches_at_a_time(small_groups, monkeypatch):
    a, c = small_groups
    a.append(Batches().reader())
    pulled, when_written = [0], []
    batches, write = Scan._batches, pq.ParquetWriter.write_table

    def pulling(self):
        for batch in batches(self):
            pulled[0] += batch.num_rows
            yield batch

    def writing(self, *given, **options):
        when_written.append(pulled[0])
        return write(self, *given, **options)

    monkeypatch.setattr(Scan, "_batches", pulling)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", writing)
    with inlay.transaction() as tx:
        tx.run([{"move": a.uri, "to": c.uri, "where": "id >= ?", "params": [100]}])
    moved = Batches.ROWS * Batches.COUNT - 100
    assert pulled == [moved]
    # A row group is written once its rows are there, long before the last ones are.
    assert when_written[0] <= 4 * Batches.ROWS
    assert len(when_written) >= Batches.COUNT / 4
    assert [inlay.open(t.uri).scan().count() for t in (a, c)] == [102, moved + 2]


def test_a_move_that_comes_again_moves_nothing(tables):
    """Though its rows are elsewhere by now."""
    a, _, c = tables
    c.delete("id >= 1", mode="tombstone")
    plan = [{"move": a.uri, "to": c.uri, "where": "id = 1"}]
    for _ in range(2):
        with inlay.transaction(request_id="m") as tx:
            tx.run(plan)
    assert all(done.applied_before for done in tx.results)
    assert (content(a), content(c)) == ({2: 20}, {1: 10})


def test_an_erasure_of_what_a_stream_remembers_is_refused_by_name_and_next_step(tables):
    """What is remembered is erased by a commit of its own, which nothing would take back."""
    a, b, _ = tables
    for op, seq in (("c", 1), ("d", 2)):
        record = pa.table({"id": [7], "n": [seq], "op": [op]})
        b.apply_changes(record, order="n", op="op")
    memory = inlay.open(f"{b.uri}/changes").version
    with pytest.raises(InvalidRequest) as refused, inlay.transaction(request_id="case") as tx:
        tx.delete(a, "id = 7", mode="erase")
        tx.delete(b, "id = 7", mode="erase")
    assert b.uri in str(refused.value) and "remembers deletes" in str(refused.value)
    assert (
        refused.value.next_step == "Erase on this table alone, and on the others in the transaction"
    )
    assert erased(a) == erased(b) == []
    assert inlay.open(f"{b.uri}/changes").version == memory
    # As it says.
    b.delete("id = 7", mode="erase", request_id="case")
    with inlay.transaction(request_id="case") as tx:
        tx.delete(a, "id = 7", mode="erase")
    assert erased(a) == erased(b) == ["case"]

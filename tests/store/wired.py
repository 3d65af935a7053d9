"""Operations on a table over a wire that goes wrong, and what is seen of the table afterwards."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import inlay
from inlay.errors import RefNotFound, TableNotFound
from inlay.format import keys
from inlay.ops.verify.repair import repair
from inlay.ops.write.ingest import Duplicate, Ingested
from inlay.storage.base import Got, ObjectStore
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])
NOW = timedelta(0)
# A row group of so many bytes is one part of an upload, which S3 can copy.
GROUP_BYTES = 6 << 20
GROUP_ROWS = 6_000


def rows(*ids: int, who: str = "w") -> pa.Table:
    return pa.table({"id": list(ids), "who": [who] * len(ids)}, SCHEMA)


def content(table: Table) -> list[tuple[int, str]]:
    found = table.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["who"].to_pylist(), strict=True))


BEFORE = [(i, "w") for i in range(12)]


def begin(uri: str) -> None:
    """The table that operations are done on: version 4, of three files."""
    table = inlay.create(uri, SCHEMA, primary_key="id")
    for first in (0, 4, 8):
        table.append(rows(*range(first, first + 4)))


def begin_large(uri: str) -> None:
    """A table of one file with two row groups, each large enough to be copied by the server."""
    table = inlay.create(uri, SCHEMA, primary_key="id")
    store = store_of(table)
    store.put(f"{table._ctx.root}.parquet", large_file())
    landed(table.ingest([f"{uri}.parquet"]))


def large_file() -> bytes:
    sink = io.BytesIO()
    import random

    noise = random.Random(1)
    texts = [noise.randbytes(GROUP_BYTES // GROUP_ROWS // 2).hex() for _ in range(2 * GROUP_ROWS)]
    table = pa.table({"id": list(range(2 * GROUP_ROWS)), "who": texts}, SCHEMA)
    pq.write_table(
        table, sink, row_group_size=GROUP_ROWS, compression="none", use_dictionary=["id"]
    )
    return sink.getvalue()


def store_of(table: Table) -> ObjectStore:
    return table._ctx.store


def landing_file(*ids: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(*ids), sink)
    return sink.getvalue()


def landed(done: Any) -> None:
    """Raises what kept a file out."""
    for outcome in done.outcomes:
        if not isinstance(outcome, Ingested | Duplicate):
            raise getattr(outcome, "error", AssertionError(outcome))


def without(*ids: int) -> list[tuple[int, str]]:
    return [row for row in BEFORE if row[0] not in ids]


def with_more(*more: tuple[int, str]) -> list[tuple[int, str]]:
    return sorted([*BEFORE, *more])


# -- what is seen ----------------------------------------------------------------------------------


def seen(uri: str) -> object:
    try:
        return content(inlay.open(uri))
    except TableNotFound:
        return "no table"


def seen_large(uri: str) -> object:
    found = inlay.open(uri).scan(columns=["id"]).to_arrow()["id"]
    return found.length(), pc.sum(found).as_py()


def seen_on_branch(uri: str) -> object:
    with suppress(RefNotFound):
        return content(inlay.open(uri, ref="dev"))
    return "no branch"


def seen_refs(uri: str) -> object:
    return sorted(inlay.open(uri).inspect.refs()["name"].to_pylist())


def seen_left(uri: str) -> object:
    """The table, or how much of it is left."""
    table = seen(uri)
    ctx = inlay.connect(uri)
    return "nothing" if not list(ctx.store.list(ctx.key(""))) else table


def seen_created(uri: str) -> object:
    return seen(f"{uri}-new")


def seen_columns(uri: str) -> object:
    return inlay.open(uri).schema.names


def seen_property(uri: str) -> object:
    return inlay.open(uri).properties.get("delete.mode")


def seen_partitioning(uri: str) -> object:
    return inlay.open(uri).partitioning


def seen_published(uri: str) -> object:
    """Rows, and whether the newest version is published."""
    table = inlay.open(uri)
    status = table.inspect.publication()
    return content(table), status is not None and status.behind == 0


# -- before ----------------------------------------------------------------------------------------


def lose_pointer(uri: str) -> None:
    ctx = inlay.connect(uri)
    ctx.store.delete([ctx.key(keys.POINTER)])


def put_back(uri: str) -> None:
    ctx = inlay.connect(uri)
    old = ctx.store.get(ctx.key(keys.archive_key(2)))
    assert isinstance(old, Got)
    ctx.store.put(ctx.key(keys.POINTER), old.body)


def land(uri: str) -> None:
    ctx = inlay.connect(uri)
    ctx.store.put(f"{ctx.root}.parquet", landing_file(90))


def branched(uri: str) -> None:
    inlay.open(uri).refs.branch("dev").append(rows(70))


def with_garbage(uri: str) -> None:
    table = inlay.open(uri)
    table.maintain.compact()
    table.maintain.expire(days=0, min_versions=1)
    time.sleep(1.1)  # the store's clock has whole seconds


def erasing(uri: str) -> None:
    table = inlay.open(uri)
    table.delete("id = 3", mode="erase", request_id="e")
    table.maintain.rewrite()
    time.sleep(1.1)


def collect_now(uri: str) -> None:
    inlay.open(uri).maintain.collect_garbage(
        grace=NOW, clock_margin_seconds=0, life_seconds=0, hmac_key=b"k" * 32, landing=""
    )


# -- what is done ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """`run` is called with the URI, and again until it is done; `then` is what `see` finds afterwards."""

    run: Callable[[str], Any]
    then: object = None  # None: what was there before
    before: Callable[[str], Any] | None = None
    see: Callable[[str], object] = seen
    begin: Callable[[str], None] = begin
    verified: bool = True  # it is a sound table afterwards
    between: tuple[object, ...] = ()  # what else is seen where it was not done


def on(do: Callable[[Table], Any]) -> Callable[[str], Any]:
    return lambda uri: do(inlay.open(uri))


def scanned(table: Table) -> None:
    assert content(table) == BEFORE


def first_rows(table: Table) -> None:
    found = table.scan(order_by="id DESC", limit=2).to_arrow()
    assert found["id"].to_pylist() == [11, 10]


def changed(table: Table) -> None:
    found = table.changes(2).to_arrow()
    assert found.num_rows == 8


def counted(table: Table) -> None:
    assert table.count(where="id < 5") == 5


def read_then(uri: str) -> None:
    assert content(inlay.open(uri, version=3)) == BEFORE[:8]


def on_dev(do: Callable[[Table], Any]) -> Callable[[str], Any]:
    return lambda uri: do(inlay.open(uri, ref="dev"))


def forget_dev(table: Table) -> None:
    with suppress(RefNotFound):  # done before
        table.refs.drop("dev")


def drop(uri: str) -> None:
    with suppress(TableNotFound):  # done before
        inlay.drop(uri)


def drop_now(uri: str) -> None:
    with suppress(TableNotFound):  # done before
        inlay.drop(uri, grace=NOW)


FIRST_HALF = (2 * GROUP_ROWS, GROUP_ROWS * (2 * GROUP_ROWS - 1))
OPERATIONS: dict[str, Operation] = {
    # Rows.
    "append": Operation(on(lambda t: t.append(rows(50), request_id="r")), with_more((50, "w"))),
    "scan": Operation(on(scanned)),
    "delete": Operation(on(lambda t: t.delete("id = 3", request_id="r")), without(3)),
    "delete rows": Operation(
        on(lambda t: t.delete("id = 3", mode="vector", request_id="r")), without(3)
    ),
    "delete keys": Operation(
        on(lambda t: t.delete(keys=pa.table({"id": [3, 4]}), request_id="r")), without(3, 4)
    ),
    "delete by rewriting": Operation(
        on(lambda t: t.delete("id = 3", mode="rewrite", request_id="r")), without(3)
    ),
    "surgery": Operation(
        on(lambda t: t.delete("id < 3", mode="surgery", request_id="r")), without(0, 1, 2)
    ),
    "update": Operation(
        on(lambda t: t.update({"who": "'x'"}, where="id = 3", request_id="r")),
        sorted([*without(3), (3, "x")]),
    ),
    "upsert": Operation(
        on(lambda t: t.upsert(rows(3, 60, who="y"), request_id="r")),
        sorted([*without(3), (3, "y"), (60, "y")]),
    ),
    "partial upsert": Operation(
        on(lambda t: t.upsert(pa.table({"id": [3, 11]}), request_id="r")), BEFORE
    ),
    "ingest": Operation(
        lambda uri: landed(inlay.open(uri).ingest([f"{uri}.parquet"])),
        with_more((90, "w")),
        before=land,
    ),
    "ingest in place": Operation(
        lambda uri: landed(inlay.open(uri).ingest([f"{uri}.parquet"], adopt=True)),
        with_more((90, "w")),
        before=land,
    ),
    # In parts.
    "append in parts": Operation(
        on(lambda t: t.append(pq.read_table(io.BytesIO(large_file())), request_id="r")),
        (4 * GROUP_ROWS, 2 * FIRST_HALF[1]),
        begin=begin_large,
        see=seen_large,
    ),
    "surgery in parts": Operation(
        on(lambda t: t.delete("id = 0", mode="surgery", request_id="r")),
        (2 * GROUP_ROWS - 1, FIRST_HALF[1]),
        begin=begin_large,
        see=seen_large,
    ),
    # Maintenance.
    "rewrite": Operation(
        on(lambda t: t.maintain.rewrite()), without(3), before=on(lambda t: t.delete("id = 3"))
    ),
    "settle": Operation(
        on(lambda t: t.maintain.settle()), without(3), before=on(lambda t: t.delete("id = 3"))
    ),
    "compact": Operation(on(lambda t: t.maintain.compact())),
    "expire": Operation(on(lambda t: t.maintain.expire(days=0))),
    "collect": Operation(on(lambda t: t.maintain.collect_garbage())),
    "collect garbage": Operation(collect_now, before=with_garbage),
    "erase": Operation(on(lambda t: t.delete("id = 3", mode="erase", request_id="r")), without(3)),
    "finish an erasure": Operation(collect_now, before=erasing),
    # The table.
    "create": Operation(
        lambda uri: inlay.create(f"{uri}-new", SCHEMA, primary_key="id", exist_ok=True),
        [],
        see=seen_created,
    ),
    "drop": Operation(drop, "no table", verified=False),
    "drop for good": Operation(
        drop_now, "nothing", see=seen_left, verified=False, between=("no table",)
    ),
    "alter": Operation(
        on(lambda t: t.alter(widen={}, optional=(), order=("who", "id"), request_id="r")),
        ["who", "id"],
        see=seen_columns,
    ),
    "partitioning": Operation(
        on(lambda t: t.set_partitioning("bucket(4, id)", request_id="r")),
        ("bucket(4, id)",),
        see=seen_partitioning,
    ),
    "properties": Operation(
        on(lambda t: t.set_properties(delete__mode="vector")), "vector", see=seen_property
    ),
    "restore": Operation(on(lambda t: t.refs.restore(version=3)), BEFORE[:8]),
    # Tags and branches.
    "tag": Operation(on(lambda t: t.refs.tag("dev", 3)), ["dev", "main"], see=seen_refs),
    "branch": Operation(on(lambda t: t.refs.branch("dev", 4)), BEFORE, see=seen_on_branch),
    "append to a branch": Operation(
        on_dev(lambda t: t.append(rows(71), request_id="r")),
        with_more((70, "w"), (71, "w")),
        before=branched,
        see=seen_on_branch,
    ),
    "merge": Operation(
        on(lambda t: t.refs.merge("dev", request_id="r")), with_more((70, "w")), before=branched
    ),
    "fast forward": Operation(
        on(lambda t: t.refs.fast_forward("dev")), with_more((70, "w")), before=branched
    ),
    "forget a branch": Operation(on(forget_dev), ["main"], before=branched, see=seen_refs),
    # Reading.
    "read a version": Operation(read_then),
    "count": Operation(on(counted)),
    "first rows": Operation(on(first_rows)),
    "changes": Operation(on(changed)),
    "history": Operation(on(lambda t: t.inspect.history())),
    "report": Operation(on(lambda t: t.inspect.report())),
    # Checking.
    "verify": Operation(on(lambda t: t.maintain.verify(depth="pages"))),
    "repair a lost pointer": Operation(
        lambda uri: repair(inlay.connect(uri), dry_run=False), BEFORE[:8], before=lose_pointer
    ),
    "repair a pointer that went back": Operation(
        lambda uri: repair(inlay.connect(uri), dry_run=False), BEFORE[:8], before=put_back
    ),
    # Other engines.
    "publish": Operation(on(lambda t: t.publish(format="v3")), (BEFORE, True), see=seen_published),
}
# Through the stores of other makers, too.
ROWS_AND_MAINTENANCE = (
    *("append", "scan", "delete", "delete rows", "surgery", "update", "upsert", "compact"),
    *("expire", "collect", "erase", "alter", "restore", "ingest", "verify", "history"),
)

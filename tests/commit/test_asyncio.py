"""`await asyncio.to_thread(…)` from an event loop: the loop goes on while Inlay waits for the store.

Tables are safe to use from several threads, one call of one table object at a time.
"""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import inlay
from inlay.storage import s3
from inlay.storage.s3 import S3Store

SCHEMA = pa.schema([("id", pa.int64())])
WAIT_SECONDS = 60


def rows(n: int) -> pa.Table:
    return pa.table({"id": [n]}, SCHEMA)


def test_the_loop_goes_on_while_an_append_waits_for_the_store(s3_bucket, monkeypatch):
    table = inlay.create(f"s3://{s3_bucket}/tables/t", SCHEMA)
    asked, may_go_on = threading.Event(), threading.Event()
    put = S3Store.put

    def held(self, key, *args, **how):
        asked.set()
        assert may_go_on.wait(WAIT_SECONDS)
        return put(self, key, *args, **how)

    async def main() -> int:
        monkeypatch.setattr(s3.S3Store, "put", held)
        writing = asyncio.create_task(asyncio.to_thread(table.append, rows(1)))
        turns = 0
        while not asked.is_set():
            await asyncio.sleep(0)
        # The request is held back, and only this loop can let it go: were it blocked, nobody would.
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        assert not writing.done()
        may_go_on.set()
        result = await asyncio.wait_for(writing, WAIT_SECONDS)
        assert result.committed
        return turns

    assert asyncio.run(main()) == 100
    assert table.count() == 1


def test_many_coroutines_append_and_scan_at_once(s3_bucket):
    uri = f"s3://{s3_bucket}/tables/t"
    inlay.create(uri, SCHEMA)

    async def one(n: int) -> int:
        table = await asyncio.to_thread(inlay.open, uri)
        await asyncio.to_thread(table.append, rows(n), request_id=f"r{n}")
        return len((await asyncio.to_thread(table.scan().to_arrow))["id"])

    async def main() -> list[int]:
        return await asyncio.gather(*(one(n) for n in range(12)))

    seen = asyncio.run(main())
    assert all(1 <= n <= 12 for n in seen)
    ids = inlay.open(uri).scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(12))


def test_batches_of_a_scan_are_taken_one_by_one(s3_bucket):
    table = inlay.create(f"s3://{s3_bucket}/tables/t", SCHEMA)
    for n in range(3):
        table.append(rows(n))

    async def main() -> list[int]:
        reader = await asyncio.to_thread(table.scan().to_reader)
        found = []
        while (batch := await asyncio.to_thread(next, reader, None)) is not None:
            found += batch["id"].to_pylist()
        return found

    assert sorted(asyncio.run(main())) == [0, 1, 2]


def test_a_cancelled_append_is_done_or_not_and_repeated_under_its_id_it_is_done_once(s3_bucket):
    table = inlay.create(f"s3://{s3_bucket}/tables/t", SCHEMA)

    async def main() -> None:
        writing = asyncio.create_task(asyncio.to_thread(table.append, rows(1), request_id="r"))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(main())  # waits for the thread
    again = inlay.open(table.uri)
    again.append(rows(1), request_id="r")
    assert again.count() == 1

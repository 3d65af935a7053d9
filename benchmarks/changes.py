"""What a batch of a change stream costs: by comparing what is there, without reading, and by others.

    python benchmarks/changes.py                     # what docs/HOW.md, "Why it is like this" sums up
    python benchmarks/changes.py --readers           # what lists of keys cost a reader
    python benchmarks/changes.py --peers PYTHON      # one that has deltalake, pylance, duckdb, pypaimon

Rows of three columns (key, text, order). `clustered` changes are of consecutive keys, `scattered` ones of
all. `marker` is what an ordered key marker would cost at least: the same rows and keys written by `upsert`,
which reads nothing and compares no order; a reader of it needs the order's column too, and that is measured
as a scan which is asked for it. The peers get 2,000,000 rows in 20 files, and a batch of 100,000 scattered
changes, of which a tenth are deletes; then the three batches of the recipe "Follow a change stream".
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from counting_server import CountingServer, Measured

BATCHES = (200, 10_000, 100_000)
ROWS = 6_000_000
PEER_ROWS, PEER_BATCH = 2_000_000, 100_000
BUCKET = "bench"
# (operation, key, order): the second batch is newer than the third.
RECIPE = (
    (("c", 1, 1), ("c", 2, 2)),
    (("u", 1, 9), ("d", 2, 10)),
    (("u", 1, 5), ("u", 2, 6)),
)
RIGHT = {1: 9}


def rows(keys: Any, order: int) -> pa.Table:
    ids = pa.array(keys, pa.int64())
    values = pa.array([f"value {key % 1_000} of {key}" for key in keys], pa.string())
    return pa.table({"id": ids, "value": values, "lsn": pa.repeat(pa.scalar(order), len(ids))})


def changes(keys: list[int], order: int, deletes: int = 0) -> pa.Table:
    data = rows(keys, order)
    ops = ["d"] * deletes + ["u"] * (len(keys) - deletes)
    return data.append_column("op", pa.array(ops))


def recipe(batch: tuple[tuple[str, int, int], ...]) -> pa.Table:
    ops, ids, orders = zip(*batch, strict=True)
    columns = {"id": ids, "value": [f"v{order}" for order in orders], "lsn": orders, "op": ops}
    return pa.table(columns)


def keys_of(count: int, total: int, kind: str, seed: int) -> list[int]:
    dice = random.Random(seed)
    if kind == "scattered":
        return sorted(dice.sample(range(total), count))
    start = dice.randrange(total - count)
    return list(range(start, start + count))


# -- Inlay ----------------------------------------------------------------------------------------


def fill(uri: str, total: int, files: int, *, sorted_by_key: bool) -> Any:
    import inlay

    properties = {} if sorted_by_key else {"write.bloom_filters": "id"}
    table = inlay.create(
        uri, rows([], 0).schema, primary_key="id", sort_by="id", properties=properties
    )
    step = total // files
    for n in range(files):
        keys = range(n * step, (n + 1) * step) if sorted_by_key else range(n, total, files)
        table.append(rows(keys, 1))
    return table


def show(*cells: Any) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def cost(used: Measured) -> str:
    down, up = used.bytes_down / 1e6, used.bytes_up / 1e6
    return f"{used.requests} / {down:.2f} / {up:.2f} / {used.cpu_s:.2f}"


def measure_inlay(server: CountingServer, files: int, *, sorted_by_key: bool, total: int) -> None:
    import inlay

    name = f"{files}-{'sorted' if sorted_by_key else 'mixed'}"
    uri = f"s3://{BUCKET}/{name}"
    table = fill(uri, total, files, sorted_by_key=sorted_by_key)
    table.apply_changes(changes([0], 2), order="lsn", op="op")  # imports
    table.upsert(rows([0], 2))
    table.scan(columns=["value"]).to_arrow()
    order = 2
    kinds = ("clustered", "scattered") if sorted_by_key else ("scattered",)
    for kind in kinds:
        for count in BATCHES:
            keys = keys_of(count, total, kind, count)
            order += 1
            data = rows(keys, order)
            marker = server.measure(lambda data=data: inlay.open(uri).upsert(data) and 0)
            order += 1
            batch = changes(keys, order)
            compared = server.measure(
                lambda batch=batch: inlay.open(uri).apply_changes(batch, order="lsn", op="op") and 0
            )
            show(name, kind, f"{count:,}", cost(compared), cost(marker))
    for columns in (["value"], ["value", "id"], ["value", "id", "lsn"]):
        used = server.measure(lambda c=columns: inlay.open(uri).scan(columns=c).to_arrow().num_rows)
        show(name, "read under them", ", ".join(columns), cost(used), "")
    inlay.open(uri).maintain.rewrite()
    for columns in (["value"], ["value", "id", "lsn"]):
        used = server.measure(lambda c=columns: inlay.open(uri).scan(columns=c).to_arrow().num_rows)
        show(name, "read when folded", ", ".join(columns), cost(used), "")


def measure_readers(server: CountingServer, total: int) -> None:
    """Under lists of 100,000 keys that are not folded."""
    import inlay

    uri = f"s3://{BUCKET}/readers"
    fill(uri, total, 20, sorted_by_key=True).scan(columns=["value"]).to_arrow()
    for n in range(11):
        if n:
            inlay.open(uri).upsert(rows(keys_of(100_000, total, "scattered", n), n + 1))
        if n not in (0, 1, 3, 10):
            continue
        scan = server.measure(lambda: inlay.open(uri).scan(columns=["value"]).to_arrow().num_rows)
        count = server.measure(lambda: inlay.open(uri).count())
        lookup = server.measure(lambda: inlay.open(uri).scan(where="id = 77").to_arrow().num_rows)
        show(f"{n * 100_000:,}", *map(cost, (scan, count, lookup)), f"{scan.peak_mb:.0f}")


# -- peers ----------------------------------------------------------------------------------------
# Each: (server's environment, folder) → apply a batch, read all rows. The first batch makes the table.

Peer = tuple[Callable[[pa.Table], Any], Callable[[], pa.Table]]


def parts(data: pa.Table) -> Iterator[pa.Table]:
    """The rows that a table begins with, in twenty files."""
    step = max(1, data.num_rows // 20)
    for start in range(0, data.num_rows, step):
        yield data.slice(start, step).drop_columns(["op"])


def by_inlay(folder: str) -> Peer:
    import inlay

    uri = f"s3://{BUCKET}/{folder}"

    def apply(data: pa.Table) -> None:
        if not inlay.exists(uri):
            inlay.create(uri, data.drop_columns(["op"]).schema, primary_key="id", sort_by="id")
            for part in parts(data):
                inlay.open(uri).append(part)
            return
        inlay.open(uri).apply_changes(data, order="lsn", op="op")

    return apply, lambda: inlay.open(uri).scan().to_arrow()


def by_deltalake(folder: str) -> Peer:
    from deltalake import DeltaTable, write_deltalake

    uri = f"s3://{BUCKET}/{folder}"
    options = {
        "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"],
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }

    def apply(data: pa.Table) -> None:
        if not DeltaTable.is_deltatable(uri, options):
            for part in parts(data):
                write_deltalake(uri, part, mode="append", storage_options=options)
            return
        values = {name: f"s.{name}" for name in ("id", "value", "lsn")}
        (
            DeltaTable(uri, storage_options=options)
            .merge(data, "s.id = t.id", source_alias="s", target_alias="t")
            .when_matched_delete("s.op = 'd' AND s.lsn > t.lsn")
            .when_matched_update(values, predicate="s.op <> 'd' AND s.lsn > t.lsn")
            .when_not_matched_insert(values, predicate="s.op <> 'd'")
            .execute()
        )

    return apply, lambda: pa.table(DeltaTable(uri, storage_options=options).to_pyarrow_table())


def by_lance(folder: str) -> Peer:
    import lance

    uri = f"s3://{BUCKET}/{folder}"
    options = {
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": "true",
        "aws_region": "us-east-1",
    }
    made: list[Any] = []

    def apply(data: pa.Table) -> None:
        if not made:
            for n, part in enumerate(parts(data)):
                mode = "append" if n else "create"
                lance.write_dataset(part, uri, mode=mode, storage_options=options)
            made.append(uri)
            return
        # Two commits: one statement has no deletes of matched rows.
        table = lance.dataset(uri, storage_options=options)
        upserts = data.filter(pa.compute.not_equal(data["op"], "d")).drop_columns(["op"])
        merge = table.merge_insert("id").when_matched_update_all("source.lsn > target.lsn")
        merge.when_not_matched_insert_all().execute(upserts)
        deletes = data.filter(pa.compute.equal(data["op"], "d"))["id"].to_pylist()
        if deletes:
            table = lance.dataset(uri, storage_options=options)
            table.delete(f"id IN ({', '.join(map(str, deletes))})")

    return apply, lambda: lance.dataset(uri, storage_options=options).to_table()


def by_duckdb(folder: str) -> Peer:
    """A database file of its own: it writes no Parquet tables on S3."""
    import duckdb

    db = duckdb.connect(str(Path(tempfile.gettempdir()) / f"{folder}-{os.getpid()}.db"))
    db.execute("CREATE OR REPLACE TABLE t (id BIGINT PRIMARY KEY, value VARCHAR, lsn BIGINT)")
    begun: list[bool] = []

    def apply(data: pa.Table) -> None:
        db.register("s", data)
        if not begun:
            begun.append(True)
            db.execute("INSERT INTO t SELECT id, value, lsn FROM s")
            return
        db.execute(
            "MERGE INTO t USING s ON t.id = s.id "
            "WHEN MATCHED AND s.op = 'd' AND s.lsn > t.lsn THEN DELETE "
            "WHEN MATCHED AND s.op <> 'd' AND s.lsn > t.lsn THEN UPDATE SET value = s.value, lsn = s.lsn "
            "WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT VALUES (s.id, s.value, s.lsn)"
        )

    return apply, lambda: pa.table(db.execute("SELECT * FROM t").to_arrow_table())


def by_pypaimon(folder: str) -> Peer:
    """Local files. Its Python writer takes rows, no deletes: those of the batch are left out."""
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": tempfile.mkdtemp()})
    catalog.create_database("d", True)
    schema = rows([], 0).schema
    schema = schema.set(0, schema.field(0).with_nullable(False))
    options = {"bucket": "4", "sequence.field": "lsn"}
    made = Schema.from_pyarrow_schema(schema, primary_keys=["id"], options=options)
    catalog.create_table("d.t", made, True)
    table = catalog.get_table("d.t")

    def apply(data: pa.Table) -> None:
        kept = data.filter(pa.compute.not_equal(data["op"], "d")).drop_columns(["op"]).cast(schema)
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(kept)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def read() -> pa.Table:
        builder = table.new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    return apply, read


PEERS: dict[str, Callable[[str], Peer]] = {
    "inlay": by_inlay,
    "deltalake": by_deltalake,
    "lance": by_lance,
    "duckdb": by_duckdb,
    "pypaimon": by_pypaimon,
}


# Those whose tables are files of this machine.
LOCAL = ("duckdb", "pypaimon")


def of_files(measure: Callable[[], Measured]) -> Measured:
    """What is measured, with the bytes that this process reads from files and writes into them."""

    def moved() -> tuple[int, int]:
        lines = Path("/proc/self/io").read_text("ascii").splitlines()
        found = dict(line.split(": ") for line in lines)
        return int(found["rchar"]), int(found["wchar"])

    (read, written), used = moved(), measure()
    read_now, written_now = moved()
    return replace(used, bytes_down=read_now - read, bytes_up=written_now - written)


def peer(name: str, endpoint: str, total: int) -> None:
    server = CountingServer(endpoint=endpoint)
    os.environ.update(server.env())
    apply, read = PEERS[name](f"changes-{name}")
    everything = rows(range(total), 1).append_column("op", pa.array(["c"] * total))
    apply(everything)
    del everything
    apply(changes([0], 2))  # what is imported when first used
    keys = keys_of(PEER_BATCH, total, "scattered", 7)
    random.Random(8).shuffle(keys)
    batch = changes(keys, 3, deletes=PEER_BATCH // 10)
    looked = of_files if name in LOCAL else lambda measure: measure()
    used = looked(lambda: server.measure(lambda: apply(batch) or 0))
    scanned = looked(lambda: server.measure(lambda: read().num_rows))
    apply, read = PEERS[name](f"recipe-{name}")
    for part in RECIPE:
        apply(recipe(part))
    found = {row["id"]: row["lsn"] for row in read().to_pylist()}
    print(json.dumps([asdict(used), asdict(scanned), sorted(found.items())]), flush=True)


def measure_peers(server: CountingServer, python: str, total: int) -> None:
    show("", "a batch: requests / MB down / MB up / CPU s", "wall s", "a read of all", "recipe")
    for name in PEERS:
        where = sys.executable if name == "inlay" else python
        done = subprocess.run(
            [where, __file__, "--peer", name, server.endpoint, "--rows", str(total)],
            capture_output=True,
            text=True,
            env={**os.environ, **server.env()},
        )
        if done.returncode:
            show(name, done.stderr.strip().splitlines()[-1:])
            continue
        first, scanned, found = json.loads(done.stdout.splitlines()[-1])
        used, read = Measured(**first), Measured(**scanned)
        said = "right" if dict(found) == RIGHT else f"wrong: {dict(found)}"
        show(name, cost(used), f"{used.wall_s:.2f}", f"{cost(read)}; {read.wall_s:.2f}", said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--readers", action="store_true")
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        library, endpoint = asked.peer
        peer(library, endpoint, total=asked.rows)
        return
    with CountingServer(latency_ms=0) as server:
        os.environ.update(server.env())
        server.set_latency(asked.latency_ms)
        if asked.readers:
            measure_readers(server, asked.rows or PEER_ROWS)
            return
        if asked.peers:
            measure_peers(server, asked.peers, asked.rows or PEER_ROWS)
            return
        total = asked.rows or ROWS
        show("table", "changes", "batch", "compared: requests / MB down / MB up / CPU s", "marker")
        for files, ordered in ((20, True), (20, False), (1_000, True)):
            measure_inlay(server, files, sorted_by_key=ordered, total=total)


if __name__ == "__main__":
    main()

"""What reading costs: requests, bytes and time of scans over TPC-H lineitem.

    python benchmarks/scan.py --scale 1

Lineitem (8 columns, sorted by order key as it is generated) is written through the library's own
writer to a memory store: as files of the default size, as many small ones, and as one large file (five
sixths of the rows) with 20 small ones. It is read back whole, in part, by key, and under deletes.
Requests and bytes are counted at the store; pyarrow reading the same bytes from memory, in one thread,
is the yardstick for time.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from inlay.engine import Context, Got, MeteredStore, Snapshot
from inlay.format.entry import DataFile, KeyRange, Marker, Vector
from inlay.format.puffin import encode_puffin
from inlay.format.snapshot import Commit, Tier
from inlay.ops.read.scan import Scan
from inlay.parquet.arrow.conform import conform
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.write.writer import Layout, Target, write_files
from inlay.plan.metadata.state import State
from inlay.storage.memory import MemoryStore

COLUMNS = [
    "l_orderkey",
    "l_partkey",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_shipdate",
    "l_shipmode",
    "l_comment",
]


def lineitem(scale: float, folder: Path) -> pa.Table:
    """Generated once per folder."""
    path = folder / "lineitem.parquet"
    if not path.exists():
        generator = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [generator, "parquet", "-s", str(scale), "--tables=lineitem", f"--output-dir={folder}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    table = pq.read_table(path, columns=COLUMNS)
    at = table.schema.get_field_index("l_shipmode")
    for name in ("l_shipmode", "l_comment"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table[name].cast(pa.string()))
    return table


class Bench:
    """A table of several parts, each written in files of its own."""

    def __init__(self, parts: list[pa.Table], layout: Layout) -> None:
        self.store = MeteredStore(MemoryStore("bench"))
        self.pool = ThreadPoolExecutor(16)
        self.schema = schema_from_arrow(parts[0].schema)
        ctx = self.context()
        new_key = (f"data/{i}.parquet" for i in itertools.count()).__next__
        target = Target(ctx.store, ctx.key, new_key, self.pool)
        started = time.perf_counter()
        found: list[DataFile] = []
        for part in parts:
            batches = part.to_batches(max_chunksize=131_072)
            conformed = (conform(batch, self.schema, self.schema) for batch in batches)
            found += write_files(target, conformed, self.schema, layout)
        self.files = tuple(replace(file, sequence=1) for file in found)
        self.write_seconds = time.perf_counter() - started
        self.markers: tuple[Marker, ...] = ()

    def context(self) -> Context:
        return Context(store=self.store, root="t", uri="memory://bench/t", executor=self.pool)

    def scan(self, **options: Any) -> Scan:
        snapshot = Snapshot(
            table_id="t",
            version=9,
            commit=Commit(id="c", operation="bench"),
            schemas=(self.schema,),
            schema_id=0,
            last_field_id=self.schema.max_id(),
            files=Tier(inline=self.files),
            markers=Tier(inline=self.markers),
        )
        return Scan(self.context(), State(snapshot), **options)

    def vectors(self, every: int) -> Iterator[Marker]:
        """A vector for each file that deletes every n-th row."""
        rows = [(f.key, BitMap64(range(0, f.rows, every))) for f in self.files]
        body, blobs = encode_puffin(rows)
        self.store.put("t/tombstone/v.puffin", body)
        for (key, bitmap), blob in zip(rows, blobs, strict=True):
            place = Vector("tombstone/v.puffin", blob.offset, blob.length, len(bitmap))
            yield Marker(id=key, body=place, file=key, sequence=2)

    def show(self, name: str, work: Callable[[], int]) -> None:
        before = self.store.usage()
        started = time.perf_counter()
        rows = work()
        seconds = time.perf_counter() - started
        used = self.store.usage() - before
        print(
            f"{name:42} {rows:>10,} rows {used.total:>6} requests "
            f"{used.bytes_down / 1e6:>8.2f} MB {seconds:>7.3f} s"
        )


def rows_of(scan: Scan) -> int:
    return sum(batch.num_rows for batch in scan.to_reader())


def run(name: str, parts: list[pa.Table], layout: Layout) -> None:
    table = pa.concat_tables(parts)
    bench = Bench(parts, layout)
    size = sum(f.size for f in bench.files)
    groups = sum(f.row_groups for f in bench.files)
    print(
        f"\n{name}: {len(bench.files)} files, {groups} row groups, {size / 1e6:.1f} MB, "
        f"written in {bench.write_seconds:.2f} s"
    )
    middle = table["l_orderkey"][table.num_rows // 2].as_py()
    two = ["l_quantity", "l_extendedprice"]

    def by_pyarrow(columns: list[str] | None) -> int:
        rows = 0
        for file in bench.files:
            got = bench.store.inner.get(f"t/{file.key}")
            assert isinstance(got, Got)
            source = pa.BufferReader(got.body)
            rows += pq.read_table(source, columns=columns, use_threads=False).num_rows
        return rows

    bench.show("pyarrow, all columns (yardstick)", lambda: by_pyarrow(None))
    bench.show("pyarrow, 2 columns (yardstick)", lambda: by_pyarrow(two))
    bench.show("full scan", lambda: rows_of(bench.scan()))
    bench.show("full scan, 2 columns", lambda: rows_of(bench.scan(columns=two)))
    bench.show("count, no delete", lambda: bench.scan().count())
    bench.show(
        "point lookup by key, all columns",
        lambda: rows_of(bench.scan(where=f"l_orderkey = {middle}")),
    )
    bench.show(
        "selective filter on an unsorted column",
        lambda: rows_of(bench.scan(columns=two, where="l_partkey = 1234")),
    )
    bench.show(
        "filter that half the rows pass", lambda: rows_of(bench.scan(where="l_quantity < 25"))
    )
    bench.show("limit 10", lambda: rows_of(bench.scan(limit=10)))
    key = bench.schema.column("l_orderkey")
    assert key is not None
    bench.markers = (Marker(id="r", body=KeyRange(key.id, middle, middle + 1000), sequence=2),)
    bench.show("full scan, 2 columns, range deleted", lambda: rows_of(bench.scan(columns=two)))
    bench.show("count, range deleted", lambda: bench.scan().count())
    step = max(4, int(table["l_orderkey"][-1].as_py()) // 10_000)
    bench.markers = tuple(
        Marker(id=str(n), body=KeyRange(key.id, n * step, n * step + 1), sequence=2)
        for n in range(10_000)
    )
    bench.show("full scan, 10,000 ranges deleted", lambda: rows_of(bench.scan()))
    bench.markers = tuple(bench.vectors(100))
    bench.show("full scan, 2 columns, 1 % by vectors", lambda: rows_of(bench.scan(columns=two)))
    bench.markers = ()
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    peak = 0
    for _ in bench.scan(read_ahead_bytes=32 << 20).to_reader():
        peak = max(peak, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    print(f"{'memory at most, 32 MiB read ahead':42} {peak / 2**20:>10.1f} MiB")
    bench.pool.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H scale (1 is 6M rows)")
    parser.add_argument("--data", type=Path, help="where generated data is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.data or Path(scratch)
        table = lineitem(options.scale, folder)
        stats = tuple(range(1, len(COLUMNS) + 1))
        run("default files", [table], Layout(stats_columns=stats))
        few = Layout(stats_columns=stats, target_file_bytes=1 << 20, row_group_bytes=1 << 20)
        run("small files", [table], few)
        large = table.num_rows * 5 // 6
        small = (table.num_rows - large) // 20 + 1
        parts = [table.slice(0, large)]
        parts += [table.slice(large + n * small, small) for n in range(20)]
        one_file = Layout(stats_columns=stats, target_file_bytes=1 << 40)
        run("one large file, 20 small ones", parts, one_file)


if __name__ == "__main__":
    main()

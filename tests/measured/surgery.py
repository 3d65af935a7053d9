"""Row-group surgery beside pyarrow: requests, bytes moved and CPU.

    python -m tests.measured.surgery             256 MiB, 20 row groups, with 9, 30 and 50 columns
    python -m tests.measured.surgery --size 32   smaller

Everything runs in one process against a store in memory whose own CPU is not counted, so requests and
bytes are what S3 would see and CPU is that of the work itself. It is held to the floor: pyarrow decodes,
filters and encodes the one touched row group and nothing else.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from inlay import Usage
from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.surgery.surgery import Rewritten, rewrite_object
from inlay.storage.base import Got, Location, Written
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import Asked, MeteredStore

# Its rows are those of the benchmarks.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from data import events

T = TypeVar("T")

MIB = 1024 * 1024
GROUPS = 20
OPTIONS = {"compression": "snappy", "write_page_index": True}
TURNS = 20


def make_file(mebibytes: int, columns: int) -> bytes:
    sample = 50_000
    per_row = len(_parquet(events(sample, columns), sample)) / sample
    rows = int(mebibytes * MIB / per_row)
    return _parquet(events(rows, columns), -(-rows // GROUPS))


def _parquet(table: pa.Table, group_rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group_rows, **OPTIONS)
    return sink.getvalue()


@dataclass(frozen=True)
class Measured:
    requests: int
    down: int
    up: int
    cpu_s: float


def cpu(work: Callable[[], float | None]) -> float:
    """CPU seconds of the process, all its threads, without those that `work` says were not ours."""
    gc.collect()
    started = time.process_time()
    others = work() or 0.0
    return time.process_time() - started - others


def keep_mask(rows: int) -> pa.BooleanArray:
    return pa.array(np.random.default_rng(3).random(rows) > 0.001)


class NotOurs(MeteredStore):
    """A store whose own work is not counted: on S3 it is another machine's."""

    seconds = 0.0

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        started = time.process_time()
        try:
            return super()._ask(asked, send)
        finally:
            self.seconds += time.process_time() - started


def by_surgery(
    data: bytes, touched: Sequence[int], executor: Executor, *, dropped: Sequence[int] = ()
) -> Measured:
    footer = decode_footer(data, file_size=len(data))
    groups = footer.row_groups
    masks = {at: keep_mask(groups[at].num_rows) for at in touched}
    kept = {at: BitMap(np.flatnonzero(mask).tolist()) for at, mask in masks.items()}
    kept |= {at: BitMap() for at in dropped}
    memory = MemoryStore("b")
    old = memory.put("old", data)
    assert isinstance(old, Written)
    used = Usage({}, 0, 0)

    def work() -> float:
        nonlocal used
        memory.delete(["new"])
        store = NotOurs(memory)
        outcome = rewrite_object(
            store,
            Location("memory", "b", "old"),
            "new",
            etag=old.etag,
            size=len(data),
            footer=footer,
            kept=kept,
            executor=executor,
        )
        assert isinstance(outcome, Rewritten)
        used = store.usage()
        return store.seconds

    seconds = cpu(work)
    rows = sum(
        sum(masks[g.ordinal].to_pylist()) if g.ordinal in masks else g.num_rows
        for g in groups
        if g.ordinal not in dropped
    )
    made = memory.get("new")
    assert isinstance(made, Got)
    assert pq.read_table(pa.BufferReader(made.body), columns=["id"]).num_rows == rows
    return Measured(used.total, used.bytes_down, used.bytes_up, seconds)


def group_alone(data: bytes, group: int) -> float:
    """CPU of pyarrow."""
    file = pq.ParquetFile(pa.BufferReader(data))
    mask = keep_mask(file.metadata.row_group(group).num_rows)

    def work() -> None:
        table = file.read_row_group(group, use_threads=False).filter(mask)
        pq.write_table(table, io.BytesIO(), row_group_size=table.num_rows, **OPTIONS)

    return cpu(work)


def report(data: bytes, columns: int) -> dict[str, float]:
    footer = decode_footer(data, file_size=len(data))
    middle = GROUPS // 2
    group_bytes = footer.row_groups[middle].compressed_size

    def dropping() -> float:
        # Nothing is decoded: what is left is the footer and the page index.
        return by_surgery(data, [], InlineExecutor(), dropped=[middle]).cpu_s

    # Turn by turn, so that a busy moment of the machine hits both, and each behind the same: it has to
    # touch memory first that the store has let go. Behind the other, either would have that at hand.
    turns = [
        (
            dropping(),
            by_surgery(data, [middle], InlineExecutor()),
            dropping(),
            group_alone(data, middle),
        )
        for _ in range(TURNS)
    ]
    one = min((surgery for _, surgery, _, _ in turns), key=lambda row: row.cpu_s)
    alone = min(seconds for _, _, _, seconds in turns)
    return {
        **asdict(one),
        "columns": columns,
        "group_mib": group_bytes / MIB,
        "alone_s": alone,
        "index_s": min(seconds for one, _, other, _ in turns for seconds in (one, other)),
        "ratio": one.cpu_s / alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=256, help="MiB of the file")
    parser.add_argument(
        "--columns", type=int, nargs="+", default=[9, 30, 50], help="a file for each"
    )
    parser.add_argument("--json", action="store_true", help="print the figures, on the last line")
    options = parser.parse_args()
    rows = []
    for columns in options.columns:
        rows.append(report(make_file(options.size, columns), columns))
        print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()

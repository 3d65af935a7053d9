"""Row-group surgery against writing the file again: requests, bytes moved and CPU.

    python benchmarks/surgery.py                 256 MiB, 20 row groups, with 9, 30 and 50 columns
    python benchmarks/surgery.py --size 32       smaller

Everything runs in one process against a store in memory whose own CPU is not counted, so requests and
bytes are what S3 would see and CPU is that of the work itself. "that group alone" is the floor: pyarrow
decodes, filters and encodes the one touched row group and nothing else. "whole file" is what a table
format without surgery does.
"""

from __future__ import annotations

import argparse
import gc
import io
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inlay import Usage
from inlay.engine import Got, MeteredStore
from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.surgery.surgery import Rewritten, rewrite_object
from inlay.storage.base import Written
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import Asked

T = TypeVar("T")

MIB = 1024 * 1024
GROUPS = 20
OPTIONS = {"compression": "snappy", "write_page_index": True}
ROUNDS = 5
TURNS = 4


def make_table(rows: int, columns: int) -> pa.Table:
    """Keys, measures, a few categories and a text: what an event table looks like, and for wider ones
    the same kinds of columns over again."""
    dice = np.random.default_rng(7)
    words = np.array([f"word{n:04d}" for n in range(2_000)])
    texts = pa.array([" ".join(words[dice.integers(0, 2_000, 6)]) for _ in range(20_000)])
    verbs = pa.array(["view", "click", "buy", "return"])
    countries = pa.array(words[:200])

    def pick(values: pa.Array) -> pa.Array:
        return values.take(pa.array(dice.integers(0, len(values), rows, dtype=np.int32)))

    kinds: dict[str, Callable[[], pa.Array]] = {
        "id": lambda: pa.array(np.arange(rows, dtype=np.int64)),
        "user_id": lambda: pa.array(dice.integers(0, 1_000_000, rows)),
        "at": lambda: pa.array(
            dice.integers(1_600_000_000_000_000, 1_700_000_000_000_000, rows),
            pa.timestamp("us", "UTC"),
        ),
        "amount": lambda: pa.array(dice.normal(100, 30, rows)),
        "price": lambda: pa.array(dice.integers(0, 10**7, rows).astype(np.int32)),
        "kind": lambda: pick(verbs),
        "country": lambda: pick(countries),
        "token": lambda: _tokens(dice, rows),
        "text": lambda: pick(texts),
    }
    names = list(kinds)
    found = {}
    for at in range(columns):
        turn, kind = divmod(at, len(names))
        found[names[kind] + (str(turn) if turn else "")] = kinds[names[kind]]()
    return pa.table(found)


def _tokens(dice: np.random.Generator, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(dice.bytes(16 * rows))])


def make_file(mebibytes: int, columns: int) -> bytes:
    sample = 50_000
    per_row = len(_parquet(make_table(sample, columns), sample)) / sample
    rows = int(mebibytes * MIB / per_row)
    return _parquet(make_table(rows, columns), -(-rows // GROUPS))


def _parquet(table: pa.Table, group_rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group_rows, **OPTIONS)
    return sink.getvalue()


@dataclass(frozen=True)
class Measured:
    name: str
    requests: int
    down: int
    up: int
    cpu_seconds: float


def cpu(work: Callable[[], float | None], rounds: int = ROUNDS) -> float:
    """Least CPU seconds of the process, all its threads, without those that `work` says were not ours."""
    spent = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        others = work() or 0.0
        spent.append(time.process_time() - started - others)
    return min(spent)


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
    data: bytes, touched: list[int], dropped: list[int], name: str, executor: Executor
) -> Measured:
    footer = decode_footer(data, file_size=len(data))
    groups = footer.row_groups
    masks = {at: keep_mask(groups[at].num_rows) for at in touched}
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
            "old",
            "new",
            etag=old.etag,
            size=len(data),
            footer=footer,
            keep=lambda ordinal: masks[ordinal],
            groups=touched,
            drop_groups=dropped,
            executor=executor,
        )
        assert isinstance(outcome, Rewritten)
        used = store.usage()
        return store.seconds

    seconds = cpu(work)
    rows = sum(sum(masks[g.ordinal].to_pylist()) if g.ordinal in masks else g.num_rows
               for g in groups if g.ordinal not in dropped)  # fmt: skip
    made = memory.get("new")
    assert isinstance(made, Got)
    assert pq.read_table(pa.BufferReader(made.body), columns=["id"]).num_rows == rows
    return Measured(name, used.total, used.bytes_down, used.bytes_up, seconds)


def group_alone(data: bytes, group: int) -> Measured:
    file = pq.ParquetFile(pa.BufferReader(data))
    mask = keep_mask(file.metadata.row_group(group).num_rows)

    def work() -> None:
        table = file.read_row_group(group, use_threads=False).filter(mask)
        pq.write_table(table, io.BytesIO(), row_group_size=table.num_rows, **OPTIONS)

    size = decode_footer(data, file_size=len(data)).row_groups[group].compressed_size
    return Measured("that group alone, pyarrow", 0, size, size, cpu(work))


def whole_file(data: bytes, group: int) -> Measured:
    def write() -> int:
        file = pq.ParquetFile(pa.BufferReader(data))
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, file.schema_arrow, **OPTIONS) as writer:
            for at in range(file.num_row_groups):
                table = file.read_row_group(at, use_threads=False)
                if at == group:
                    table = table.filter(keep_mask(table.num_rows))
                writer.write_table(table, row_group_size=max(1, table.num_rows))
        return sink.tell()

    written = write()
    # A ranged GET per row group, one for the footer; parts of 8 MiB and the two ends of an upload.
    requests = GROUPS + 1 + -(-written // (8 * MIB)) + 2
    return Measured(
        "whole file, pyarrow", requests, len(data), written, cpu(lambda: write() and None, 1)
    )


def report(data: bytes, columns: int, *, against_whole_file: bool) -> None:
    footer = decode_footer(data, file_size=len(data))
    middle = GROUPS // 2
    group_bytes = footer.row_groups[middle].compressed_size
    index = footer.start - max(chunk.end for chunk in footer.row_groups[-1].columns)
    print(
        f"{columns} columns: {len(data) / MIB:.1f} MiB, {footer.num_row_groups} row groups of "
        f"{group_bytes / MIB:.1f} MiB, page index {index / 1024:.0f} KiB, "
        f"footer {footer.length / 1024:.0f} KiB"
    )
    inline = InlineExecutor()
    # Turn by turn, so that a busy moment of the machine hits both.
    turns = [
        (
            by_surgery(data, [middle], [], "surgery, one group", inline),
            group_alone(data, middle),
        )
        for _ in range(TURNS)
    ]
    one, alone = (
        min(column, key=lambda row: row.cpu_seconds) for column in zip(*turns, strict=True)
    )
    rows = [
        one,
        by_surgery(data, [0], [], "surgery, the first group", inline),
        by_surgery(data, [2, 9, 15], [], "surgery, three groups", inline),
        by_surgery(data, [], [middle], "surgery, one group dropped", inline),
        alone,
    ]
    if against_whole_file:
        rows.append(whole_file(data, middle))
    print(f"{'':<28}{'requests':>9}{'MiB down':>10}{'MiB up':>10}{'CPU s':>9}")
    for row in rows:
        print(
            f"{row.name:<28}{row.requests or '':>9}{row.down / MIB:>10.2f}{row.up / MIB:>10.2f}"
            f"{row.cpu_seconds:>9.3f}"
        )
    floor = group_bytes + index + footer.length
    print(
        f"one group: down {one.down / floor:.3f} and up {one.up / floor:.3f} of group + footer + index "
        f"(at most 1.05), {one.requests} requests (at most 9),\n"
        f"CPU {one.cpu_seconds / alone.cpu_seconds:.2f} of that group alone (at most 1.3)"
    )
    if against_whole_file:
        times = rows[-1].cpu_seconds / max(one.cpu_seconds, 1e-9)
        print(f"and {times:.0f} times less than the whole file")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=256, help="MiB of the file")
    parser.add_argument(
        "--columns", type=int, nargs="+", default=[9, 30, 50], help="a file for each"
    )
    arguments = parser.parse_args()
    for columns in arguments.columns:
        data = make_file(arguments.size, columns)
        report(data, columns, against_whole_file=columns == min(arguments.columns))


if __name__ == "__main__":
    main()

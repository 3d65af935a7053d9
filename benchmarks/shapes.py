"""What tables of unusual shape cost, in CPU beside pyarrow's: thousands of columns, files of a row.

    python benchmarks/shapes.py                                # 500, 1,000, 2,500 and 5,000 columns
    python benchmarks/shapes.py --columns 5000 --files 1000

Tables are in a folder of this machine. CPU is of the process, all its threads, and good for ratios within
one run: of the columns to pyarrow's write of the same rows, with the same codec and page index, in one row
group; of the files to pyarrow's scan of the same files. Nothing is quadratic where a ratio stays as columns
become more.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import inlay

ROWS = 1_000
FEW = 10
ROUNDS = 3


def cpu(work: Callable[[], object], rounds: int = 1) -> float:
    """Least CPU seconds of this process."""
    spent = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return min(spent)


def wide_rows(columns: int) -> pa.Table:
    """A key, then integers, doubles, texts and booleans in turn."""
    dice = np.random.default_rng(1)
    made: dict[str, pa.Array] = {"id": pa.array(np.arange(ROWS))}
    kinds: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array(dice.integers(0, 1_000, ROWS)),
        lambda: pa.array(dice.random(ROWS)),
        lambda: pa.array([f"s{n}" for n in dice.integers(0, 100, ROWS)]),
        lambda: pa.array(dice.integers(0, 2, ROWS).astype(bool)),
    )
    for n in range(columns - 1):
        made[f"c{n}"] = kinds[n % len(kinds)]()
    return pa.table(made)


def report_wide(columns: int, folder: str) -> None:
    rows = wide_rows(columns)
    few = rows.slice(0, FEW)
    write = cpu(
        lambda: pq.write_table(rows, io.BytesIO(), compression="zstd", write_page_index=True),
        ROUNDS,
    )
    table = inlay.create(f"{folder}/wide-{columns}", rows.schema, primary_key=["id"])
    operations: dict[str, Callable[[], object]] = {
        "append": lambda: table.append(rows),
        "scan": lambda: table.scan().to_arrow(),
        f"upsert of {FEW} rows": lambda: table.upsert(few),
        "of two of their columns": lambda: table.upsert(few.select(["id", "c0"])),
        "update of a row": lambda: table.update({"c0": "c0 + 1"}, where="id = 500"),
        "rewrite": lambda: table.maintain.rewrite(),
        "publish": lambda: table.publish(format="v3"),
        "verify": lambda: table.maintain.verify(),
    }
    print(f"{columns:,} columns of {ROWS:,} rows: pyarrow writes them in {write:.2f} s")
    for name, act in operations.items():
        spent = cpu(act)
        print(f"  {name:<26}{spent:7.2f} s {spent / write:6.1f}", flush=True)


def report_tiny(files: int, folder: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
    place = f"{folder}/tiny"
    table = inlay.create(place, schema)
    for n in range(files):
        row = {"id": [n], "name": [f"n{n}"], "value": [n / 2]}
        table.append(pa.table(row, schema=schema))
    paths = [str(path) for path in Path(place).rglob("*.parquet")]
    # In turn, so that a busy moment of the machine hits both.
    turns = [
        (
            cpu(lambda: inlay.open(place).scan().to_arrow()),
            cpu(lambda: ds.dataset(paths, format="parquet").to_table()),
        )
        for _ in range(ROUNDS)
    ]
    ours, theirs = (min(each) for each in zip(*turns, strict=True))
    print(
        f"{files:,} files of a row, scanned: {ours / files * 1e3:.2f} ms of CPU a file, "
        f"pyarrow {theirs / files * 1e3:.2f}, {ours / theirs:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--columns", type=int, nargs="*", default=[500, 1_000, 2_500, 5_000])
    parser.add_argument("--files", type=int, default=1_000, help="of a row; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for columns in options.columns:
            report_wide(columns, folder)
        if options.files:
            report_tiny(options.files, folder)


if __name__ == "__main__":
    main()

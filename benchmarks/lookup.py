"""What a row of 16 columns costs to look up, by what decides between requests and bytes.

    python benchmarks/lookup.py [--rows 150000]

lineitem in two files, each one row group, in memory: requests and bytes are exact, no time is measured.
`gap` is `parquet.read.ranges.GAP_BYTES`, over which two ranges are one request. Opening the table is not
in it.
"""

from __future__ import annotations

import argparse
from unittest import mock

import pyarrow as pa

import inlay
from bench import KEY, lineitem, parts
from inlay.ops.context import InlineExecutor
from inlay.parquet.read import data_file, ranges
from inlay.parquet.write import writer

PAGES = (5_000, 2_000, 1_000)
GAPS = (0, 8_000, 16_000, ranges.GAP_BYTES, 64_000, 128_000, 256_000)


def opened(uri: str) -> inlay.Table:
    return inlay.open(uri, context=inlay.connect(uri, executor=InlineExecutor()))


def cost(uri: str, **asked: object) -> str:
    table = opened(uri)
    before = table.usage
    table.scan(**asked).to_arrow()  # type: ignore[arg-type]
    used = table.usage - before
    return f"{used.total} / {used.bytes_down / 1e6:.2f}"


def measure(data: pa.Table, page_rows: int) -> None:
    uri = f"memory://lookup/{page_rows}"
    with (
        mock.patch.object(data_file, "PAGE_ROWS", page_rows),
        mock.patch.object(writer, "PAGE_ROWS", page_rows),
    ):
        table = inlay.create(uri, data.schema, primary_key=KEY, sort_by="l_orderkey")
        for part in parts(data, 2):
            table.append(part)
        stored = sum(file.size for file in table.inspect.entries()[0])
        key = data["l_orderkey"][data.num_rows * 3 // 4 + 1_000].as_py()
        for gap in GAPS:
            with mock.patch.dict(ranges.merge_ranges.__kwdefaults__, gap=gap):
                row = cost(uri, where=f"l_orderkey = {key}")
                first = cost(uri, limit=10)
            print(f"| {page_rows:,} | {stored / 1e6:.2f} | {gap:,} | {row} | {first} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=150_000)
    data = lineitem(parser.parse_args().rows)
    print("| rows of a page | MB stored | gap | a row by its key | limit 10 |")
    print("|---|---|---|---|---|")
    for page_rows in PAGES:
        measure(data, page_rows)


if __name__ == "__main__":
    main()

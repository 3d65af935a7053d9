"""Editing every row group of a large file takes the memory of one group and a window of parts."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# A Lambda of 512 MB has its runtime, boto3 and pyarrow besides.
MEBIBYTES = 420

CHILD = """
import sys
import pyarrow as pa, pyarrow.parquet
from pyroaring import BitMap
from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read.describe import TAIL_BYTES
from inlay.parquet.surgery.surgery import rewrite_object
from inlay.storage.base import Head, Location
from inlay.storage.directory import DirectoryStore

store = DirectoryStore(sys.argv[1])
head = store.head("old")
assert isinstance(head, Head)
footer = decode_footer(store.get_suffix("old", TAIL_BYTES).body, file_size=head.info.size)
kept = {
    group: BitMap(n for n in range(15_000) if (group * 15_000 + n) & 7 != 3) for group in range(16)
}
outcome = rewrite_object(
    store, Location("file", "", "old"), "new", etag=head.info.etag, size=head.info.size,
    footer=footer, kept=kept, executor=InlineExecutor(),
)
# Not `ru_maxrss`, which a child begins with its parent's.
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(outcome.footer.num_rows, int(peak) // 1024)
"""


@pytest.mark.slow
def test_every_group_of_256_mebibytes_is_edited_within_a_small_lambda(tmp_path: Path) -> None:
    rows = 16 * 15_000
    dice = random.Random(2)
    with pq.ParquetWriter(
        tmp_path / "old", pa.schema([("id", pa.int64()), ("raw", pa.binary())]), compression="none"
    ) as writer:
        for group in range(16):
            ids = pa.array(range(group * 15_000, (group + 1) * 15_000), pa.int64())
            raw = pa.array([dice.randbytes(1_100) for _ in range(15_000)], pa.binary())
            writer.write_table(pa.table([ids, raw], names=["id", "raw"]), row_group_size=15_000)
    assert (tmp_path / "old").stat().st_size > 250 * 1024**2
    output = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    kept, peak = map(int, output.split())
    assert kept == rows * 7 // 8
    assert peak < MEBIBYTES
    assert pq.ParquetFile(tmp_path / "new").metadata.num_rows == kept

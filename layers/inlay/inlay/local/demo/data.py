"""The data: TPC-H lineitem as Parquet files, made on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from inlay.errors import InvalidRequest

# Uncompressed bytes of a row group: several in each file even at a small scale, so that surgery has
# something to leave alone.
ROW_GROUP_BYTES = 2_000_000


def generate_lineitem(folder: Path, *, scale: float, files: int) -> Sequence[Path]:
    """Lineitem at a TPC-H scale (1 is six million rows) as `files` Parquet files in `folder`."""
    command = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which(
        "tpchgen-cli"
    )
    if command is None:
        raise InvalidRequest(
            "the demo needs tpchgen-cli, which is not installed",
            next_step="pip install tpchgen-cli",
        )
    made = subprocess.run(
        [
            command,
            "parquet",
            *("--scale-factor", str(scale)),
            *("--tables", "lineitem", "--parts", str(files)),
            *("--row-group-bytes", str(ROW_GROUP_BYTES)),
            *("--output-dir", str(folder), "--quiet"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise InvalidRequest(
            f"tpchgen-cli failed: {made.stderr.strip()[-300:]}",
            next_step="Give a scale above 0, such as 0.1, and enough free disk",
        )
    return [folder / "lineitem" / f"lineitem.{n}.parquet" for n in range(1, files + 1)]

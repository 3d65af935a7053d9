"""Pieces: surgery on one file that goes on in another invocation.

Promise: a file of which only some row groups were cut in time is whole to every reader. Rows of the other
groups stay under the deletes that hit them: table-wide ones because the output keeps its input's sequence,
those that name the file because `carried` puts them on the output. So whoever goes on sees a file like any
other, needs to know nothing of what was done before, and does again nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from inlay.errors import UnsupportedFile
from inlay.format.entry import Marker, RowGroups, Rows, Vector
from inlay.ops.context import Clock, Context
from inlay.ops.data.vectors import vector_markers
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.read.deleted_rows import load_vector
from inlay.plan.scan.scan import FileTask
from inlay.plan.surgery.positions import PositionMap

# What surgery and a whole rewrite hold of a row group, measured: its values up to three times.
VALUE_FORMS = 3
# ... out of this share of the memory there is; the rest is Python's, pyarrow's and the metadata's.
GROUP_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Means:
    """What an invocation has: time until `deadline` (of the context's clock; None: enough) and memory
    (None: the machine's)."""

    deadline: float | None = None
    memory_bytes: int | None = None

    def must_hold(self, group_bytes: int) -> None:
        """Raises `UnsupportedFile` where a row group of so many bytes, uncompressed, does not fit: the
        platform would kill the process, again and again, and no other file would get its turn."""
        takes = VALUE_FORMS * group_bytes
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if takes > GROUP_SHARE * memory:
            raise UnsupportedFile(
                f"a row group takes about {takes >> 20} MiB of memory to rewrite, and there are "
                f"{memory >> 20} MiB",
                next_step="Run `inlay rewrite` or the Spark job where there is more",
            )


BOUNDLESS = Means()


@dataclass(slots=True)
class Pace:
    """Whether one more row group fits before `deadline` (None: always), by the slowest so far. Asked
    before each group but the first, so that every invocation gets on."""

    clock: Clock
    deadline: float | None
    slowest: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = self.clock.monotonic()

    def goes_on(self) -> bool:
        now = self.clock.monotonic()
        self.slowest, self.last = max(self.slowest, now - self.last), now
        return self.deadline is None or now + self.slowest < self.deadline


def carried(
    ctx: Context, loaded: LoadedTable, task: FileTask, positions: PositionMap, output: str
) -> Iterator[Marker]:
    """The deletes that name the file, as far as they still hit rows of `output`. They keep their ids and
    sequences: an erasure tells by those which are older than itself."""
    for marker in task.markers:
        match marker.body:
            case _ if marker.file is None:
                continue
            case RowGroups():
                continue  # whole groups go without being read, whatever the time
            case Rows(found):
                left = positions.moved(BitMap64(found))
            case Vector() as vector:
                left = positions.moved(load_vector(ctx.objects, vector, task.file.rows))
            case _:
                yield replace(marker, file=output)
                continue
        if left:
            [moved] = vector_markers(ctx, loaded, {output: left})
            yield replace(marker, body=moved.body, file=output)

"""Partial surgery: surgery on one file that continues in another invocation.

Promise: a file of which only some row groups were rewritten in time is complete for every reader. Rows of
the other groups stay under their deletes: table-wide ones because the output keeps its input's sequence,
those that name the file because `markers_for_output` moves them to the output. The next invocation sees an
ordinary file, needs no knowledge of earlier work, and repeats none of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from inlay.errors import UnsupportedFile
from inlay.format.entry import Marker, RowGroups, Rows, Vector
from inlay.ops.context import Clock, Context
from inlay.ops.data import vector_markers
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.read.deleted_rows import load_vector
from inlay.plan.scan.scan import FileTask
from inlay.plan.surgery.positions import PositionMap

# Memory that surgery and a whole rewrite need for a row group, measured: up to three times its values.
VALUE_FORMS = 3
# ... out of this share of the available memory; the rest is for Python, pyarrow and the metadata.
GROUP_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The limits of an invocation: time until `deadline` (of the context's clock; None: no limit) and
    memory (None: the machine's)."""

    deadline: float | None = None
    memory_bytes: int | None = None

    def must_hold(self, group_bytes: int) -> None:
        """Raises `UnsupportedFile` where a row group of so many bytes, uncompressed, does not fit: the
        platform would kill the process each time, and no other file would be processed."""
        takes = VALUE_FORMS * group_bytes
        memory = self.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if takes > GROUP_SHARE * memory:
            raise UnsupportedFile(
                f"a row group takes about {takes >> 20} MiB of memory to rewrite, and there are "
                f"{memory >> 20} MiB",
                next_step="Run `inlay rewrite` or the Spark job where there is more",
            )


NO_LIMITS = ResourceLimits()


@dataclass(slots=True)
class GroupTimer:
    """Whether one more row group fits before `deadline` (None: always), judging by the slowest so far.
    Asked before each group but the first, so that every invocation makes progress."""

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


def markers_for_output(
    ctx: Context, loaded: LoadedTable, task: FileTask, positions: PositionMap, output: str
) -> Iterator[Marker]:
    """The deletes that name the file, as far as they still hit rows of `output`. They keep their ids and
    sequences, by which an erasure recognises those older than itself."""
    for marker in task.markers:
        match marker.body:
            case _ if marker.file is None:
                continue
            case RowGroups():
                continue  # whole groups are dropped without being read, whatever the time
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

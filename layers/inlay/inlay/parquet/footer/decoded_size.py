"""Decoded sizes: the memory of a row group, from its footer, before any page is decoded.

Promise: a row group that by its own footer is larger than this process may hold is refused by name
(`UnsupportedFile`), before the kernel kills the process. Compressed bytes say nothing: a page of zeros, or
a dictionary of one long text, is some KB for a GB.

A footer has the bytes of encoded pages; the number of values, so their width if that is fixed; and, from
writers since 2024 (`SizeStatistics`), the bytes of all texts. Texts under a dictionary without these are
counted as references alone, because the footer has nothing more: `parquet.read.page_sizes` looks at pages.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

from inlay.errors import UnsupportedFile
from inlay.parquet.footer.fields import Meta, Physical, Sizes
from inlay.parquet.footer.footer import ColumnChunk, Footer
from inlay.parquet.footer.thrift import unpack

# A value's bytes in Arrow; for texts without their characters. Types that are shorter in the file are as
# wide.
_WIDTHS = {Physical.BYTE_ARRAY: 8, Physical.INT96: 12}
_WIDTH = 8


def width_of(kind: Physical) -> int:
    return _WIDTHS.get(kind, _WIDTH)


# Share of the process's memory for one decoded row group: the rest is for the fetched bytes, and for what
# is made of the rows.
_SHARE = 0.5


def chunk_bytes(chunk: ColumnChunk) -> int:
    """The least size of a chunk's decoded values."""
    values = chunk.num_values * width_of(chunk.type)
    return max(chunk.uncompressed_size, values + _text_bytes(chunk))


def _text_bytes(chunk: ColumnChunk) -> int:
    sizes_struct = chunk.meta.get(Meta.SIZES)
    if sizes_struct is None:
        return 0
    found: int = unpack(sizes_struct).get(Sizes.TEXT_BYTES, 0)
    return max(found, 0)


def largest_group(footer: Footer) -> int:
    """The bytes of a file's largest row group once decoded; 0 without any."""
    groups = (sum(chunk_bytes(chunk) for chunk in group.columns) for group in footer.row_groups)
    return max(groups, default=0)


def check_memory(decoded_bytes: int, *, key: str | None = None) -> None:
    """Raises `UnsupportedFile` for a row group that takes more than this process may hold."""
    limit = memory_limit()
    if decoded_bytes > limit:
        raise UnsupportedFile(
            f"a row group takes {decoded_bytes >> 20} MiB of memory when decoded, and the limit is "
            f"{limit >> 20} MiB here",
            key=key,
            next_step="Read fewer of its columns, use a process with more memory, or write the file "
            "with smaller row groups",
        )


@cache
def memory_limit() -> int:
    """Bytes that one decoded row group may take: a share of the memory of the machine, the container or the
    Lambda function."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lambda_mib = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if lambda_mib.isdigit():
        found.append(int(lambda_mib) << 20)
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:  # libraries have taken their part of it
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        found.append(max(addresses - taken, 0))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups, version 2 and 1
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # not "max"
            found.append(int(text))
    return int(min(found) * _SHARE)

"""The pages of a column chunk, decompressed by one call.

Promise: `Frames.decompressed` is the chunk without compression: each page has the values that it had, or
the first of them, under a header that says so. Each page was compared with its checksum, and is as long as
its header says.

Arrow makes a decompressor for each page. Zstandard's asks each time what the processor can do, for which a
virtual machine has to be left: 8 microseconds, as long as 10 KB take to be decompressed. But frames that
are one after the other are decompressed as one, and a frame may hold bytes as they are. So each header
becomes a frame before the one of its page, and what is decompressed is what Arrow reads.
"""

from __future__ import annotations

from zlib import crc32

import pyarrow as pa

from inlay.errors import UnreadableFile
from inlay.parquet.footer.fields import Page, PageType
from inlay.parquet.footer.pages import header_within, values_in_order
from inlay.parquet.footer.thrift import encode_struct

# Zstandard's magic number, and the descriptor of one segment whose length is in the next byte.
_FRAME = b"\x28\xb5\x2f\xfd\x20"
_MOST_AS_THEY_ARE = 255
_LAST_BLOCK = 1


class Frames:
    """A chunk's pages, in order."""

    def __init__(self) -> None:
        self.size = 0  # once decompressed
        self._pieces: list[bytes | memoryview] = []
        self._headers: list[tuple[int, bytes]] = []

    def add_dictionary(self, page: memoryview) -> bool:
        """False if it has to be decompressed otherwise."""
        header, start = header_within(page, 0)
        body, size, crc = page[start:], header[Page.UNCOMPRESSED], header.pop(Page.CRC, None)
        new = encode_struct({**header, Page.COMPRESSED: size})
        if (
            header[Page.TYPE] != PageType.DICTIONARY
            or header[Page.COMPRESSED] != len(body)
            or size < 0
            or len(new) > _MOST_AS_THEY_ARE
        ):
            return False
        self._add(new, body, size, None if crc is None else crc & 0xFFFFFFFF)
        return True

    def add_values(self, page: memoryview, values: int, first: int) -> bool:
        """The `first` of a page's `values` values; False as above. Raises `UnreadableFile` where it claims
        to have other than `values`."""
        parsed = values_in_order(page, values, first)
        if parsed is None:
            return False
        self._add(parsed.header, parsed.body, parsed.size, parsed.checksum)
        return True

    def _add(self, header: bytes, body: memoryview, size: int, checksum: int | None) -> None:
        if checksum is not None and crc32(body) != checksum:
            raise UnreadableFile("a page's checksum is wrong")
        length = len(header)
        block = (length << 3 | _LAST_BLOCK).to_bytes(3, "little")
        self._pieces += (b"%b%c%b%b" % (_FRAME, length, block, header), body)
        self._headers.append((self.size, header))
        self.size += length + size

    def decompressed(self, pool: pa.MemoryPool) -> pa.Buffer:
        """Raises `UnreadableFile` or Arrow's errors where a page is not as its header says."""
        joined = b"".join(self._pieces)
        chunk = pa.Codec("zstd").decompress(joined, self.size, memory_pool=pool)
        view = memoryview(chunk).cast("B")
        if any(view[at : at + len(header)] != header for at, header in self._headers):
            raise UnreadableFile("a page has another length than its header says")
        return chunk

"""The parts of a column chunk besides its values: page headers, page locations, bloom filters.

Promise: `profile_chunk` reads the headers of one chunk and returns how its pages were written, so that an
edited chunk can be written the same way. It also checks the chunk against its footer entry: the pages must
fill the chunk exactly and their values must add up, otherwise the file contradicts itself and is refused
before any decoder runs on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from inlay.errors import UnreadableFile
from inlay.parquet.footer.fields import (
    Bloom,
    DataPage,
    DataPageV2,
    DictionaryPage,
    Encoding,
    OffsetIndex,
    Page,
    PageLocation,
    PageType,
)
from inlay.parquet.footer.footer import ColumnChunk
from inlay.parquet.footer.thrift import (
    LIST,
    STRUCT,
    Items,
    Struct,
    ThriftError,
    decode_struct,
    decode_varint,
    encode_struct,
    write_varint,
    zigzag,
)

DICTIONARY_ENCODINGS = frozenset({Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY})
# A header may claim any size up to 2 GiB, and a decoder allocates what it claims. A larger size for the
# pages of one chunk is accepted only if the footer, too, says that the chunk is as large.
MAX_DOUBTFUL_PAGE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PageProfile:
    """How the pages of one chunk were written.

    `encodings` counts the data pages by encoding; `dictionary_bytes` is the dictionary's uncompressed
    size, None without one. `page_bytes` (uncompressed) and `page_values` are the largest of the data
    pages.
    """

    encodings: Mapping[int, int]
    dictionary_bytes: int | None
    version_2: bool
    checksums: bool
    page_bytes: int
    page_values: int
    data_pages: int
    empty_pages: int


def profile_chunk(
    body: bytes, start: int, chunk: ColumnChunk, *, flat_rows: int | None
) -> PageProfile:
    """The profile of `chunk`, whose bytes begin at `start` of `body`.

    `flat_rows` is the number of rows for a column without repetition, which must have as many values.
    """
    end = start + chunk.compressed_size
    at, values, data_pages, empty_pages = start, 0, 0, 0
    encodings: Counter[int] = Counter()
    dictionary_bytes: int | None = None
    version_2 = checksums = False
    page_bytes = page_values = all_bytes = 0
    while at < end:
        header, at = page_header(body, at, end)
        kind, size = header[Page.TYPE], header[Page.COMPRESSED]
        uncompressed = header[Page.UNCOMPRESSED]
        if size < 0 or uncompressed < 0 or at + size > end:
            raise UnreadableFile("a page reaches past its column chunk")
        all_bytes += uncompressed
        if all_bytes > max(MAX_DOUBTFUL_PAGE_BYTES, chunk.uncompressed_size):
            raise UnreadableFile("pages claim to be larger than their column chunk")
        at += size
        checksums = checksums or Page.CRC in header
        if kind == PageType.DICTIONARY:
            if data_pages or dictionary_bytes is not None:
                raise UnreadableFile("a dictionary page that is not the first page of its chunk")
            dictionary_bytes = uncompressed
            continue
        if kind == PageType.DATA:
            inner, count = header.get(Page.DATA), DataPage.VALUES
            encoding = DataPage.ENCODING
        elif kind == PageType.DATA_V2:
            inner, count = header.get(Page.DATA_V2), DataPageV2.VALUES
            encoding = DataPageV2.ENCODING
            version_2 = True
        else:
            continue  # index pages, and kinds that readers must skip
        if inner is None or count not in inner or encoding not in inner or inner[count] < 0:
            raise UnreadableFile("a data page without its header")
        encodings[inner[encoding]] += 1
        values += inner[count]
        data_pages += 1
        empty_pages += inner[count] == 0
        page_bytes = max(page_bytes, uncompressed)
        page_values = max(page_values, inner[count])
    if values != chunk.num_values or flat_rows not in (None, values):
        raise UnreadableFile(
            f"column {'.'.join(chunk.path)} has {values} values in its pages, "
            f"{chunk.num_values} by the footer"
        )
    return PageProfile(
        encodings=encodings,
        dictionary_bytes=dictionary_bytes,
        version_2=version_2,
        checksums=checksums,
        page_bytes=page_bytes,
        page_values=page_values,
        data_pages=data_pages,
        empty_pages=empty_pages,
    )


def page_header(body: bytes, at: int, end: int) -> tuple[Struct, int]:
    """The page header at `at`, and where its page begins."""
    try:
        header, behind = decode_struct(body, at)
    except ThriftError as error:
        raise UnreadableFile(f"a page header is damaged: {error}") from None
    complete = Page.TYPE in header and Page.UNCOMPRESSED in header and Page.COMPRESSED in header
    if behind > end or not complete:
        raise UnreadableFile("a page header is damaged")
    dictionary = header.get(Page.DICTIONARY)
    if header[Page.TYPE] == PageType.DICTIONARY and (
        dictionary is None or DictionaryPage.VALUES not in dictionary
    ):
        raise UnreadableFile("a dictionary page without its header")
    return header, behind


# -- offset indexes -------------------------------------------------------------------------------


def page_locations(offset_index: bytes) -> list[tuple[int, int, int]]:
    """(offset, bytes, first row) of each page. Raises `ThriftError`, or what a missing field raises."""
    plain = _plain_locations(offset_index)
    if plain is not None:
        return [location[:3] for location in plain[0]]
    tree, _ = decode_struct(offset_index)
    keys = (PageLocation.OFFSET, PageLocation.SIZE, PageLocation.FIRST_ROW)
    return [(p[keys[0]], p[keys[1]], p[keys[2]]) for p in tree[OffsetIndex.PAGES]]


# The heads of the three fields of a page location, as each writer encodes them.
_PLAIN_HEADS = tuple(
    delta << 4 | key & 15
    for delta, key in (
        (1, PageLocation.OFFSET),
        (1, PageLocation.SIZE),
        (1, PageLocation.FIRST_ROW),
    )
)


# A page's offset, bytes and first row, and where in the index the offset is: start and end.
_Location = tuple[int, int, int, int, int]


def _plain_locations(index: bytes) -> tuple[list[_Location], int] | None:
    """The same in a tenth of the time, and where in the index they end, if it begins with locations of
    these fields alone."""
    found: list[_Location] = []
    try:
        if index[0] != 1 << 4 | LIST or index[1] & 15 != STRUCT:
            return None
        count, at = index[1] >> 4, 2
        if count == 15:
            count, at = decode_varint(index, at)
        for _ in range(count):
            numbers: list[int] = []
            start = end = at + 1
            for head in _PLAIN_HEADS:
                if index[at] != head:
                    return None
                number, at = decode_varint(index, at + 1)
                if number & 1:  # below 0
                    return None
                if not numbers:
                    end = at
                numbers.append(number >> 1)
            if index[at] != 0:
                return None
            at += 1
            found.append((numbers[0], numbers[1], numbers[2], start, end))
    except (IndexError, ThriftError):
        return None
    return found, at


def move_pages(offset_index: bytes, by: int, *, within: tuple[int, int] | None = None) -> bytes:
    """An offset index with every page shifted by `by` bytes. All must be `within` (start, end)."""
    first, limit = within or (0, 2**63)

    def moved(offset: int) -> int:
        if not first <= offset < limit:
            raise UnreadableFile("an offset index points outside its column chunk")
        return offset + by

    plain = _plain_locations(offset_index)
    try:
        if plain is not None:
            locations, behind = plain
            # The other fields, as they are.
            stop = (
                behind + 1 if offset_index[behind] == 0 else decode_struct(offset_index, behind)[1]
            )
            out, done = bytearray(), 0
            for offset, _, _, start, end in locations:
                out += offset_index[done:start]
                write_varint(out, zigzag(moved(offset)))
                done = end
            return bytes(out + offset_index[done:stop])
        index, _ = decode_struct(offset_index)
        key = PageLocation.OFFSET
        pages = [{**page, key: moved(page[key])} for page in index[OffsetIndex.PAGES]]
    except (ThriftError, KeyError, TypeError, IndexError):
        raise UnreadableFile("an offset index is damaged") from None
    return encode_struct({**index, OffsetIndex.PAGES: Items(STRUCT, pages)})


# -- bloom filters --------------------------------------------------------------------------------

# The header is a thrift struct of at most 19 bytes; some slack for fields of a later format.
BLOOM_HEADER_BYTES = 64


def bloom_length(start_of_filter: bytes) -> tuple[int, int]:
    """(header bytes, bitset bytes) of a bloom filter, from its first `BLOOM_HEADER_BYTES` bytes."""
    try:
        header, size = decode_struct(start_of_filter)
    except ThriftError as error:
        raise UnreadableFile(f"a bloom filter's header is damaged: {error}") from None
    bits = header.get(Bloom.BYTES)
    if bits is None or bits < 0:
        raise UnreadableFile("a bloom filter's header is damaged")
    return size, bits


def is_bloom_length(length: int) -> bool:
    """Whether exactly one bloom filter, header included, can fill `length` bytes: the header's size follows
    from the bitset's, which is a multiple of 32."""
    return bloom_bits(length) is not None


def bloom_bits(length: int) -> int | None:
    """The bitset bytes of a filter that takes `length` bytes in all, None if none does."""
    for varint in range(1, 6):
        # The field's head, the number, three unions of 4 bytes and the stop byte.
        bits = length - (1 + varint + 12 + 1)
        if (
            bits >= 32
            and bits % 32 == 0
            and (2 * bits).bit_length() in range(7 * varint - 6, 7 * varint + 1)
        ):
            return bits
    return None

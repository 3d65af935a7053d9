"""Where the bytes of a Parquet file are and how they were written: the pages and filters of a column chunk,
the layout of the whole file.

Promise: `profile_chunk` reads the headers of one chunk and returns how its pages were written, so that an
edited chunk can be written the same way. It also checks the chunk against its footer entry: the pages must
fill the chunk exactly and their values must add up, otherwise the file contradicts itself and is refused
before any decoder runs on it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, assert_never

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.parquet.footer.fields import (
    Bloom,
    Chunk,
    DataPage,
    DataPageV2,
    DictionaryPage,
    Encoding,
    Meta,
    OffsetIndex,
    Page,
    PageLocation,
    PageType,
)
from inlay.parquet.footer.footer import MAGIC, RECODE, ColumnChunk, Footer, Leaf, refuse_elsewhere
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
from inlay.parquet.footer.writers import Writer, faults_of
from inlay.record import Record
from inlay.storage.base import ByteRange


class Part(Enum):
    """What a region holds. Data and bloom filters are position-free and may be copied; the two kinds
    of index are rewritten at the end of the file."""

    DATA = "column chunk"
    BLOOM = "bloom filter"
    COLUMN_INDEX = "column index"
    OFFSET_INDEX = "offset index"


class Region(NamedTuple):
    """Bytes `start` … `end - 1`, belonging to one or more columns of row group `group`, one after the
    other."""

    start: int
    end: int
    group: int
    part: Part


class Layout(Record):
    """Every region in file order. `unsure` are the offsets of bloom filters whose length neither the footer
    nor the space up to the next region determines."""

    regions: tuple[Region, ...]
    unsure: frozenset[int]
    end: int


class Gap(NamedTuple):
    """Bytes `start` … `end - 1`, at which the footer does not point; `group` is the row group that they are
    within, None beside all."""

    start: int
    end: int
    group: int | None


def find_gaps(footer: Footer, layout: Layout) -> Iterator[Gap]:
    """The gaps that may hold anything, in file order: all but copies of column metadata where a chunk's
    `file_offset` says that they are. (The footer says the same of the chunk.) Bloom filters of unknown
    length count as well: they may end before the next region.

    Bytes that nothing points at are *gaps*. Writers leave padding there, but also copies of column metadata
    with minimum and maximum values, and appending writers leave whole old footers. So a gap beside a
    removed region is removed, too; and when erasing, so is every gap that is not between two regions of one
    unchanged row group.
    """
    copies = {
        c.end
        for g in footer.row_groups
        for c in g.columns
        if c.tree.get(Chunk.FILE_OFFSET) == c.end
    }
    end, group = len(MAGIC), None
    for region in layout.regions:
        if end < region.start and end not in copies:
            yield Gap(end, region.start, group if group == region.group else None)
        if region.start in layout.unsure:
            yield Gap(region.start, region.end, region.group)
        end, group = region.end, region.group
    if end < layout.end and end not in copies:
        yield Gap(end, layout.end, None)


def read_layout(footer: Footer, bloom_lengths: Mapping[int, int] | None = None) -> Layout:
    """The layout of the file; `bloom_lengths` has lengths read from filter headers, by offset.

    It decides which bytes a rewrite keeps, so this finds every region the footer points at, checks that
    they are within the file, do not overlap and agree with the footer's counts, and refuses the file
    otherwise.
    """
    if faults_of(Writer.of(footer.created_by), "sizes"):
        # The footer does not determine the end of a chunk.
        raise UnsupportedFile(
            f"{footer.created_by} states column sizes that are too small", next_step=RECODE
        )
    known, endless = _regions_of(footer, bloom_lengths or {})
    starts = sorted(r.start for r in [*known, *endless]) if endless else []
    starts.append(footer.start)
    unsure = set()
    for bloom in endless:
        # Up to the next region: never too short, and exact where filters are packed.
        end = starts[min(bisect_right(starts, bloom.start), len(starts) - 1)]
        known.append(bloom._replace(end=end))
        if not is_bloom_length(end - bloom.start):
            unsure.add(bloom.start)
    known.sort(key=itemgetter(0, 1))
    at_least = len(MAGIC)
    for region in known:
        if region.start < at_least:
            raise UnreadableFile(
                f"a {region.part.value} begins within other data, at {region.start}"
            )
        at_least = region.end
    if at_least > footer.start:
        raise UnreadableFile("data reaches into the footer")
    return Layout(tuple(known), frozenset(unsure), footer.start)


def _regions_of(
    footer: Footer, bloom_lengths: Mapping[int, int]
) -> tuple[list[Region], list[Region]]:
    """The regions that the footer points at; bloom filters of unknown length are separate, with an empty
    range."""
    known: list[Region] = []
    endless: list[Region] = []
    rows = 0
    leaves = [
        (leaf, [part.encode("utf-8", "surrogateescape") for part in leaf.path])
        for leaf in footer.leaves
    ]
    for group in footer.row_groups:
        rows += (group_rows := group.num_rows)
        ordinal = group.ordinal
        extents: dict[Part, list[tuple[int, int]]] = {part: [] for part in Part}
        data, blooms, column_indexes, offset_indexes = extents.values()
        for (leaf, path), chunk in zip(leaves, group.columns, strict=True):
            fault = _fault(leaf, path, chunk, group_rows)
            if fault:
                where = f"column {'.'.join(leaf.path)} of row group {ordinal}"
                raise UnreadableFile(f"{where} {fault}")
            if size := chunk.meta[Meta.COMPRESSED]:
                at = chunk.start
                data.append((at, at + size))
            if (index := chunk.column_index) is not None:
                column_indexes.append(index)
            if (index := chunk.offset_index) is not None:
                offset_indexes.append(index)
            if (offset := chunk.bloom_offset) is not None:
                length = chunk.bloom_length or bloom_lengths.get(offset)
                if length is None:
                    endless.append(Region(offset, offset, ordinal, Part.BLOOM))
                else:
                    blooms.append((offset, offset + length))
        for part, places in extents.items():
            known += (Region(start, end, ordinal, part) for start, end in _runs(places))
    if rows != footer.num_rows:
        raise UnreadableFile(f"the row groups have {rows} rows, the file {footer.num_rows}")
    return known, endless


def _runs(extents: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Each that begins where the one before it ends is joined to that; those that overlap are not."""
    start = end = -1
    for begin, behind in extents:
        if begin != end:
            if end >= 0:
                yield start, end
            start = begin
        end = behind
    if end >= 0:
        yield start, end


def _fault(leaf: Leaf, path: list[bytes], chunk: ColumnChunk, rows: int) -> str | None:
    """What is wrong with a column chunk's entry in the footer."""
    meta = chunk.meta
    refuse_elsewhere(chunk)
    if meta[Meta.PATH] != path or meta[Meta.TYPE] != leaf.type:
        return "does not match the schema"
    values = meta[Meta.VALUES]
    if leaf.repetition_level == 0 and values != rows:
        return f"has {values} values for {rows} rows"
    if values and not meta[Meta.COMPRESSED]:
        return "has values but no bytes"
    return None


# -- what is kept ---------------------------------------------------------------------------------


class GroupFate(Enum):
    """What happens to a row group."""

    STAYS = "stays"
    EDITED = "edited"
    DROPPED = "dropped"


class Place(Record):
    """The place of the new column chunks of row group `group`."""

    group: int


# Bytes of the old file, kept unchanged, or new ones.
Piece = ByteRange | Place


def keep_pieces(layout: Layout, fate: Callable[[int], GroupFate]) -> Iterator[Piece]:
    """The new file's bytes up to its index, in order: ranges of the old file, and edited groups; without
    the gaps between groups, and beside what goes.

    An edited group takes the place of its first column chunk. Column and offset indexes are left out,
    because they are written again after all this. `fate` is first called for a group at its first region,
    so groups may be decided one after the other while the pieces are consumed.
    """
    start, until = 0, len(MAGIC)  # of the kept range that is still growing
    placed: set[int] = set()
    before, was_kept = -1, True  # the group of the last region, and whether that stays
    for begin, end, group, part in layout.regions:
        fate_here = fate(group)
        match fate_here:
            case GroupFate.STAYS:
                is_kept = part is Part.DATA or part is Part.BLOOM
            case GroupFate.EDITED | GroupFate.DROPPED:
                is_kept = False
            case _:
                assert_never(fate_here)
        if not (is_kept and was_kept and (until == begin or before == group)):
            if start < until:
                yield ByteRange(start, until)
            start = begin if is_kept else end
        if fate_here is GroupFate.EDITED and part is Part.DATA and group not in placed:
            placed.add(group)
            yield Place(group)
        until, before, was_kept = end, group, is_kept
    if start < until:
        yield ByteRange(start, until)


class OffsetMap(Record):
    """Old offsets to new ones: `starts` and `ends` of the kept ranges, ascending, and the shift of each."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    shifts: tuple[int, ...]

    @classmethod
    def of(cls, kept: Sequence[tuple[ByteRange, int]]) -> OffsetMap:
        """From the kept ranges in order, each with the offset it begins at in the new file."""
        return cls(
            starts=tuple(old.start for old, _ in kept),
            ends=tuple(old.end for old, _ in kept),
            shifts=tuple(new - old.start for old, new in kept),
        )

    def shift(self, offset: int) -> int | None:
        """The shift of the byte at `offset`; None when it was not kept."""
        at = bisect_right(self.starts, offset) - 1
        if at < 0 or offset >= self.ends[at]:
            return None
        return self.shifts[at]


DICTIONARY_ENCODINGS = frozenset({Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY})
# A header may claim any size up to 2 GiB, and a decoder allocates what it claims. A larger size for the
# pages of one chunk is accepted only if the footer, too, says that the chunk is as large.
MAX_DOUBTFUL_PAGE_BYTES = 64 * 1024 * 1024


class PageProfile(Record):
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


# A page header without long bounds; where that does not suffice, all there is is looked at.
_HEADER_BYTES = 512


def header_within(pages: memoryview, at: int) -> tuple[Struct, int]:
    """The same, of bytes that are not copied for it."""
    window = bytes(pages[at : at + _HEADER_BYTES])
    try:
        header, behind = page_header(window, 0, len(window))
    except UnreadableFile:
        if len(window) < _HEADER_BYTES:
            raise
        window = bytes(pages[at:])
        header, behind = page_header(window, 0, len(window))
    return header, at + behind


def claimed_values(header: Struct) -> tuple[int, int | None]:
    """How many values a data page claims, and how they are encoded, whatever kind its header states."""
    if Page.DATA in header:
        inner = header[Page.DATA]
        return max(inner.get(DataPage.VALUES, 0), 0), inner.get(DataPage.ENCODING)
    inner = header.get(Page.DATA_V2, {})
    return max(inner.get(DataPageV2.VALUES, 0), 0), inner.get(DataPageV2.ENCODING)


_NUMBER = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
# How headers begin of data pages whose first values are there by themselves: their lengths, the checksum,
# the number of values, the encoding; of version 1, PLAIN or by a dictionary, levels in RLE. In other
# encodings, and in BIT_PACKED levels, it depends on the number of values where one part ends.
_OF_VALUES_IN_ORDER = re.compile(
    rb"\x15\x00\x15(%(n)b)\x15(%(n)b)(?:\x15(%(n)b)\x1c|\x2c)\x15(%(n)b)\x15([\x00\x04\x10])\x15\x06"
    % {b"n": _NUMBER}
)


def first_values(page: memoryview, values: int, first: int) -> tuple[int, list[bytes | memoryview]]:
    """A data page of a flat column with `values` values, NULLs among them, as one of the `first` of them
    (of all where its encoding does not allow that): how many it has then, and its bytes, header and all, in
    pieces. Only the header is another: decoders take no more values than that out of the same body, whose
    checksum stays. Raises `UnreadableFile` where the page claims other than `values`."""
    plain = _OF_VALUES_IN_ORDER.match(page)
    if plain is None:
        has_all = claimed_values(header_within(page, 0)[0])[0] == values
    else:
        has_all = plain[4] == _number(values)
    if not has_all:
        raise UnreadableFile(_OTHER_ROWS)
    if plain is None or first == values:
        return values, [page]
    start, end = plain.span(4)
    return first, [page[:start], _number(first), page[end:]]


_OTHER_ROWS = "a page has other rows than its index says"


class ValuesInOrder(NamedTuple):
    """A data page whose first values are there by themselves: its body, how long that is once decompressed,
    its checksum, and the header of the first values in a body without compression."""

    body: memoryview
    size: int
    checksum: int | None
    header: bytes


def values_in_order(page: memoryview, values: int, first: int) -> ValuesInOrder | None:
    """The same page without its header; None where its values are not such."""
    plain = _OF_VALUES_IN_ORDER.match(page)
    if plain is None:
        return None
    stated, stored, crc, count, encoding = plain.groups()
    if count != _number(values):
        raise UnreadableFile(_OTHER_ROWS)
    size, length = decode_varint(stated, 0)[0], decode_varint(stored, 0)[0]
    if size & 1 or length & 1 or len(page) < plain.end() + (length >> 1):
        raise UnreadableFile("a page header is damaged")
    return ValuesInOrder(
        page[len(page) - (length >> 1) :],
        size >> 1,
        None if crc is None else unsigned(decode_varint(crc, 0)[0]),
        b"\x15\x00\x15%b\x15%b\x2c\x15%b\x15%b\x15\x06\x15\x06\x00\x00"
        % (stated, stated, _number(first), encoding),
    )


def unsigned(zigzagged: int) -> int:
    """A checksum as it is computed; the format has it as a signed number."""
    return (zigzagged >> 1 ^ -(zigzagged & 1)) & 0xFFFFFFFF


@lru_cache(1024)  # pages mostly have as many rows
def _number(value: int) -> bytes:
    """As a header has it."""
    number = bytearray()
    write_varint(number, zigzag(value))
    return bytes(number)


# -- offset indexes -------------------------------------------------------------------------------


def page_locations(offset_index: bytes) -> list[tuple[int, int, int]]:
    """(offset, bytes, first row) of each page. Raises `ThriftError`, or what a missing field raises."""
    plain = _plain_locations(offset_index)
    if plain is not None:
        return [location[:3] for location in plain[0]]
    tree, _ = decode_struct(offset_index)
    offset, size, first_row = _LOCATION
    return [(page[offset], page[size], page[first_row]) for page in tree[OffsetIndex.PAGES]]


_LOCATION = (PageLocation.OFFSET, PageLocation.SIZE, PageLocation.FIRST_ROW)
# The heads of these fields as each writer encodes them: each id is one more than the one before.
_OFFSET_HEAD, _SIZE_HEAD, _FIRST_ROW_HEAD = (1 << 4 | key & 15 for key in _LOCATION)

# A page's offset, bytes and first row, and where in the index the offset is: start and end.
_Location = tuple[int, int, int, int, int]


def _plain_locations(index: bytes) -> tuple[list[_Location], int] | None:
    """The same in a tenth of the time, and where in the index they end, if it begins with locations of
    these fields alone."""
    locations: list[_Location] = []
    try:
        count, at = _number_of_pages(index)
        for _ in range(count):
            if index[at] != _OFFSET_HEAD:
                return None
            start = at + 1
            offset, end = decode_varint(index, start)
            if index[end] != _SIZE_HEAD:
                return None
            size, at = decode_varint(index, end + 1)
            if index[at] != _FIRST_ROW_HEAD:
                return None
            first_row, at = decode_varint(index, at + 1)
            if index[at] != 0 or (offset | size | first_row) & 1:  # odd: below 0
                return None
            at += 1
            locations.append((offset >> 1, size >> 1, first_row >> 1, start, end))
    except (IndexError, ThriftError):
        return None
    return locations, at


def number_of_pages(offset_index: bytes) -> int | None:
    """By its head alone; None if it does not begin with locations."""
    try:
        return _number_of_pages(offset_index)[0]
    except (IndexError, ThriftError):
        return None


def _number_of_pages(index: bytes) -> tuple[int, int]:
    """How many locations there are, and where they begin."""
    if index[0] != 1 << 4 | LIST or index[1] & 15 != STRUCT:
        raise ThriftError("no list of structs")
    count = index[1] >> 4
    return (count, 2) if count < 15 else decode_varint(index, 2)


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
    for varint in range(1, 6):
        # The field's head, the number, three unions of 4 bytes and the stop byte.
        bits = length - (1 + varint + 12 + 1)
        fits = (2 * bits).bit_length() in range(7 * varint - 6, 7 * varint + 1)
        if bits >= 32 and bits % 32 == 0 and fits:
            return True
    return False

"""Residue: values that a file still names although no row of it has them.

Promise: `find_residue` searches the parts of a Parquet file besides its rows (dictionary pages, bounds of
row groups and pages, Bloom filters, key-values, fields of the footer that the format does not define, bytes
that the footer does not point at) for values that a predicate selects, and returns the places with one that
no row of their row group has. pandas and Polars write dictionaries with unused entries for categories, and
DuckDB for an ENUM: the whole dictionary, in every group. One may serve several columns, so in files of
other writers each column of text, at whatever depth, is searched for the texts that the predicate names.

Nothing is concluded from the file's claims: a value counts as used only when it was read from the rows.
First the footer, dictionary pages and indexes are read, in planned ranges, fetched together; then, for the
row groups where one of them holds such a value, the column itself.

Truncated bounds are compared with as much of the literal. A Bloom filter answers "maybe": what is found
there alone is not certain (`Residue.certain`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import SchemaMismatch, UnreadableFile, UnsupportedFile
from inlay.format.predicate import TRUE, Predicate, field_ids
from inlay.format.schema import Primitive, Value
from inlay.parquet.arrow.evaluate import selected
from inlay.parquet.arrow.types import to_arrow_scalar
from inlay.parquet.footer.bloom import may_hold, plain_bytes, xxh64
from inlay.parquet.footer.fields import (
    Codec,
    ColumnIndex,
    DictionaryPage,
    File,
    KeyValue,
    Meta,
    Page,
    PageType,
    Physical,
)
from inlay.parquet.footer.footer import (
    BOUNDS,
    MAGIC,
    RECODE,
    WIDTHS,
    ColumnChunk,
    Footer,
    Leaf,
    is_text,
)
from inlay.parquet.footer.pages import (
    BLOOM_HEADER_BYTES,
    DICTIONARY_ENCODINGS,
    MAX_DOUBTFUL_PAGE_BYTES,
    Gap,
    bloom_length,
    find_gaps,
    page_header,
    read_layout,
)
from inlay.parquet.footer.thrift import (
    Struct,
    ThriftError,
    decode_struct,
    unpack,
)
from inlay.parquet.read.data_file import OpenFile
from inlay.parquet.read.deleted_rows import normalised
from inlay.parquet.read.ranges import RangeFile
from inlay.parquet.read.single_column import (
    Pages,
    check_dictionary,
    read_distinct,
    read_plain,
    write_plain,
)
from inlay.parquet.surgery.key_values import (
    free_texts,
    listed_values,
    name_one,
    named_by_file,
    naming,
    unknown_in_group,
    unknown_of_file,
)
from inlay.plan.pruning.literals import asked_of_text, condition_on, equal_values, texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.record import Mutable, Record, field
from inlay.storage.base import ByteRange

Where = Literal["dictionary", "bounds", "page index", "bloom", "key-value", "unknown field", "gap"]

# Gaps with more bytes than this are not searched but removed: padding to a block has less.
MAX_GAP_BYTES = 8 * 1024 * 1024
# If the end of a dictionary page is unknown, this much of the chunk is fetched with the rest.
LIKELY_DICTIONARY_BYTES = 64 * 1024
# Stands for each column of text that the predicate does not ask for: no field has it.
_ELSEWHERE = -1


class Residue(Record):
    """A place that names a value which no row of `row_group` has. `column` is the path, or the key of a
    key-value pair, "" for a gap and for a field of the footer or of the group itself; `row_group` None is
    the file's own footer, or a gap beside all groups. `certain` is False if only a Bloom filter has it, or
    if it is in a key-value that stays (a column's name)."""

    row_group: int | None
    column: str
    where: Where
    certain: bool = True


class Searched(Record):
    """What was found in one file, and the cost of the search, once the file was open. `rows_read` are row
    groups of which a column was read, because other parts named a value that its rows might have.
    `key_values` are the names of the pairs in its footer, of the file and of column chunks, whatever their
    content. `perhaps` is for conditions that name no value: kind and name of each pair that may have one
    which they select, and of gaps and undefined fields, unread."""

    residues: tuple[Residue, ...] = ()
    requests: int = 0
    bytes: int = 0
    rows_read: int = 0
    key_values: tuple[str, ...] = ()
    perhaps: tuple[tuple[str, str], ...] = ()

    @property
    def row_groups(self) -> frozenset[int]:
        """The row groups that must be rewritten."""
        return frozenset(r.row_group for r in self.residues if r.row_group is not None)


def find_residue(
    opened: OpenFile, predicate: Predicate, executor: Executor, *, filters: bool = True
) -> Searched:
    """Searches one file; without `filters` not its Bloom filters. Raises `UnsupportedFile` and
    `UnreadableFile` where its footer, a dictionary or an index cannot be decoded."""
    footer = opened.decoded()
    held = _Held(opened, executor)
    columns = [
        _Column(footer, footer.leaves[leaf], field_id, condition, filters)
        for field_id in sorted(field_ids(predicate))
        if (leaf := opened.columns.leaves.get(field_id)) is not None
        and (condition := condition_on(predicate, field_id)) is not None
    ]
    texts = texts_of(predicate)
    elsewhere = asked_of_text(predicate, _ELSEWHERE) if opened.task.file.is_foreign else None
    if elsewhere is not None:
        leaves = {column.leaf.index for column in columns}
        columns += [
            # The dictionary is enough: the filter has the same values, and answers only "maybe".
            _Column(footer, leaf, _ELSEWHERE, elsewhere, filters=False)
            for leaf in footer.leaves
            if leaf.index not in leaves and is_text(footer.schema[leaf.element])
        ]
    mentions = Mentions.of(predicate)
    gaps = list(find_gaps(footer, read_layout(footer))) if texts or mentions else []
    places = [ByteRange(g.start, g.end) for g in gaps if g.end - g.start <= MAX_GAP_BYTES]
    places = places if texts else []
    held.fetch([*places, *(place for column in columns for place in column.ranges())])
    plain = _telling(columns)
    residues = [
        *_in_key_values(footer, texts),
        *_in_unknown_fields(footer, texts, plain),
        *(_in_gaps(held, gaps, texts, plain) if texts else ()),
    ]
    residues += _in_lists(footer, columns)
    for column in columns:
        column.look(held)
    held.fetch([_place(column.chunk(g)) for column in columns for g in column.suspects])
    for column in columns:
        residues += column.confirm(held)
    rows_read = len({g for column in columns for g in column.suspects})
    names = {pair.get(KeyValue.KEY, b"").decode("utf-8", "replace") for pair in _pairs_of(footer)}
    kept = tuple(sorted(names))
    perhaps = tuple(_perhaps(footer, gaps, mentions)) if mentions else ()
    return Searched(tuple(residues), held.requests, held.bytes, rows_read, kept, perhaps)


def unused_entries(
    opened: OpenFile, executor: Executor, groups: Iterable[int] | None = None
) -> Iterator[tuple[int, str]]:
    """The row groups (of `groups`, or of all) with a dictionary entry that none of their rows has, each
    with the first such column. Reads all chunks with a dictionary, a row group at a time; stop after the
    first result to learn only whether there is one."""
    footer = opened.decoded()
    columns = [
        _Column(footer, leaf, 0, TRUE, filters=False)
        for leaf in footer.leaves
        if leaf.type is not Physical.BOOLEAN
    ]
    for ordinal in range(footer.num_row_groups) if groups is None else sorted(groups):
        held = _Held(opened, executor)
        coded = [c for c in columns if _dictionary_place(c.chunk(ordinal)) is not None]
        held.fetch([_place(c.chunk(ordinal)) for c in coded])
        name = next((c.name for c in coded if c.has_unused(held, ordinal)), None)
        if name is not None:
            yield ordinal, name


def dictionary_entries(
    opened: OpenFile, executor: Executor, leaves: Collection[int]
) -> Iterator[tuple[int, pa.Array]]:
    """The leaf and what its dictionary page lists, in its order, for each row group. No other page is
    fetched."""
    footer = opened.decoded()
    columns = [_Column(footer, footer.leaves[n], 0, TRUE, filters=False) for n in leaves]
    for ordinal in range(footer.num_row_groups):
        held = _Held(opened, executor)
        chunks = [(column, column.chunk(ordinal)) for column in columns]
        places = [place for _, chunk in chunks if (place := _dictionary_place(chunk)) is not None]
        held.fetch(places)
        for column, chunk in chunks:
            entries = column._entries(held, chunk)
            if entries is not None:
                yield column.leaf.index, entries


def _in_key_values(footer: Footer, texts: frozenset[str]) -> Iterator[Residue]:
    for name, goes in named_by_file(footer.tree, texts):
        yield Residue(None, name, "key-value", certain=goes)
    for group in footer.row_groups:
        for chunk in group.columns:
            for name, _ in naming(chunk.meta.get(Meta.KEY_VALUES, ()), texts):
                yield Residue(group.ordinal, name, "key-value")


def _pairs_of(footer: Footer) -> Iterator[Struct]:
    """Key-value pairs of the file, and of its column chunks."""
    yield from map(unpack, footer.tree.get(File.KEY_VALUES, ()))
    for group in footer.row_groups:
        for chunk in group.columns:
            yield from map(unpack, chunk.meta.get(Meta.KEY_VALUES, ()))


def _perhaps(footer: Footer, gaps: Sequence[Gap], mentions: Mentions) -> Iterator[tuple[str, str]]:
    for name, own_texts in free_texts(_pairs_of(footer)):
        if any(map(mentions.may_select, own_texts)):
            yield "key-value", name
    if mentions.may_select(footer.tree.get(File.CREATED_BY, b"")):
        yield "key-value", "created_by"
    unknown = (fields for group in footer.row_groups for _, fields in unknown_in_group(group))
    if unknown_of_file(footer.tree) or any(unknown):
        yield "unknown field", ""
    if gaps:
        yield "gap", ""


def _in_lists(footer: Footer, columns: Iterable[_Column]) -> Iterator[Residue]:
    """Lists of a column's values with one that a condition selects which names no text (a range, NOT). They
    go with any row group that is written again: here the smallest."""
    groups = [group for group in footer.row_groups if group.num_rows]
    conditions = {
        column.field_id: column.condition
        for column in columns
        if column.field_id != _ELSEWHERE
        and is_text(footer.schema[column.leaf.element])
        and equal_values(column.condition) is None
    }
    for name, values in listed_values(footer.tree.get(File.KEY_VALUES, ())) if groups else ():
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], ["v"])
        if any(
            pc.any(selected(condition, batch, {field_id: (0,)})).as_py()
            for field_id, condition in conditions.items()
        ):
            smallest = min(groups, key=lambda group: group.compressed_size)
            yield Residue(smallest.ordinal, name, "key-value")


def _in_unknown_fields(
    footer: Footer, texts: frozenset[str], plain: Sequence[bytes]
) -> Iterator[Residue]:
    if not texts:
        return
    if name_one(unknown_of_file(footer.tree), texts, plain):
        yield Residue(None, "", "unknown field")
    for group in footer.row_groups:
        for column, fields in unknown_in_group(group):
            if name_one(fields, texts, plain):
                yield Residue(group.ordinal, column, "unknown field")


def _telling(columns: Iterable[_Column]) -> tuple[bytes, ...]:
    """The values in PLAIN encoding that are not found by chance: a number of equal bytes, as 0 or -1, is in
    any padding."""
    return tuple(
        raw
        for column in columns
        for raw in column.plain
        if len(raw) >= MIN_CUT_BYTES and len(set(raw)) > 1
    )


def _in_gaps(
    held: _Held, gaps: Iterable[Gap], texts: frozenset[str], plain: Sequence[bytes]
) -> Iterator[Residue]:
    """Appending writers leave whole old footers. Numbers are as in bounds there."""
    for start, end, group in gaps:
        body = held.read(ByteRange(start, end)) if end - start <= MAX_GAP_BYTES else None
        if body is None or names_any(body, texts) or any(raw in body for raw in plain):
            yield Residue(group, "", "gap")


class _Held:
    """Bytes of the file, and what fetching them cost."""

    def __init__(self, opened: OpenFile, executor: Executor) -> None:
        self._file = RangeFile(opened.source, opened.task.file.size)
        self._executor = executor
        self.requests = self.bytes = 0
        if opened.body is not None:
            self._file.add([(0, opened.body)])

    def fetch(self, places: Sequence[ByteRange]) -> None:
        missing = self._file.missing(places)
        self.requests += len(missing)
        self.bytes += sum(place.length for place in missing)
        self._file.prefetch(places, self._executor)

    def read(self, place: ByteRange) -> bytes:
        self.fetch([place])
        return bytes(memoryview(self._file.slice(place)))


def _place(chunk: ColumnChunk) -> ByteRange:
    # With the four bytes before: readers take offset 0 for "none".
    return ByteRange(chunk.start - len(MAGIC), max(chunk.end, chunk.start))


def _dictionary_place(chunk: ColumnChunk) -> ByteRange | None:
    """The range of the dictionary page, or at least its beginning."""
    start, data = chunk.start, chunk.meta[Meta.DATA_PAGE]
    if not chunk.compressed_size:
        return None
    if start < data <= chunk.end:
        return ByteRange(start, data)
    if set(chunk.meta.get(Meta.ENCODINGS, ())) & DICTIONARY_ENCODINGS:
        return ByteRange(start, min(start + LIKELY_DICTIONARY_BYTES, chunk.end))
    return None


def _bloom_place(chunk: ColumnChunk) -> ByteRange | None:
    at = chunk.bloom_offset
    return None if at is None else ByteRange(at, at + (chunk.bloom_length or BLOOM_HEADER_BYTES))


class _Column(Mutable):
    """One column that is searched, in all row groups. `suspects` are row groups where another part names a
    value of `condition`, with where and which."""

    footer: Footer
    leaf: Leaf
    field_id: int
    condition: Predicate
    filters: bool  # whether Bloom filters are searched, too
    suspects: dict[int, list[tuple[Where, pa.Array | None, tuple[bytes, ...]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    # The values that the condition allows, if it lists them, in PLAIN encoding; with their hashes.
    plain: tuple[bytes, ...] = ()
    hashes: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = equal_values(self.condition) or ()
        self.plain = tuple(raw for kind, value in values for raw in self._stored(kind, value))
        offsets = (group.column(self.leaf.index).bloom_offset for group in self.footer.row_groups)
        if self.filters and any(offsets):
            self.hashes = {raw: xxh64(raw) for raw in self.plain}

    def _stored(self, kind: Primitive, value: Value) -> Iterator[bytes]:
        """How this file stores a value: once, but for zeros of floating point numbers."""
        raw = plain_bytes(self.leaf.type, kind, value)
        if raw is None and self.leaf.type not in (Physical.BOOLEAN, Physical.INT96):
            read_as = self._decode(b"", 0, Codec.UNCOMPRESSED, 0).type
            raw = write_plain(self.leaf, read_as, to_arrow_scalar(kind, value))
        if raw:
            yield raw
            if isinstance(value, float) and value == 0:
                yield raw[:-1] + bytes([raw[-1] ^ 0x80])

    @property
    def name(self) -> str:
        return ".".join(self.leaf.path)

    def chunk(self, ordinal: int) -> ColumnChunk:
        return self.footer.row_group(ordinal).column(self.leaf.index)

    def ranges(self) -> Iterator[ByteRange]:
        limit = self.footer.start
        for group in self.footer.row_groups:
            chunk = group.column(self.leaf.index)
            index = chunk.column_index
            for place in (
                _dictionary_place(chunk),
                None if index is None else ByteRange(*index),
                _bloom_place(chunk) if self.hashes else None,
            ):
                if place is not None and place.end <= limit:
                    yield place

    # -- what is beside the rows --------------------------------------------------------------

    def look(self, held: _Held) -> None:
        if self.leaf.type is Physical.BOOLEAN:
            return  # two values: neither proves anything about a row
        bounds: list[tuple[int, Where, bytes]] = []
        for group in self.footer.row_groups:
            ordinal, chunk = group.ordinal, group.column(self.leaf.index)
            entries = self._entries(held, chunk)
            hits = None if entries is None else entries.filter(self._hits(entries))
            if hits is not None and len(hits):
                self.suspects[ordinal].append(("dictionary", hits, ()))
            tree = chunk.statistics or {}
            bounds += [(ordinal, "bounds", tree[key]) for key in BOUNDS if key in tree]
            index = chunk.column_index
            if index is not None and index[1] <= self.footer.start:
                body = held.read(ByteRange(*index))
                bounds += [(ordinal, "page index", raw) for raw in _index_bounds(body)]
            self._look_at_bloom(held, ordinal, chunk)
        self._look_at_bounds(bounds)

    def has_unused(self, held: _Held, ordinal: int) -> bool:
        """Whether the dictionary of a row group has an entry that none of its rows has. An empty text
        identifies nobody: DuckDB writes it in place of each ENUM value that is not used."""
        entries = self._entries(held, self.chunk(ordinal))
        if entries is None:
            return False
        if pa.types.is_string(entries.type) or pa.types.is_binary(entries.type):
            entries = entries.filter(pc.greater(pc.binary_length(entries), 0))
        rows = normalised(self._read_rows(held, ordinal))
        return not pc.all(pc.is_in(normalised(entries), value_set=rows)).as_py()

    def _entries(self, held: _Held, chunk: ColumnChunk) -> pa.Array | None:
        page = _dictionary_page(held, chunk)
        if page is None:
            return None
        header, body = page
        count = header[Page.DICTIONARY][DictionaryPage.VALUES]
        return self._decode(body, count, chunk.codec, header[Page.UNCOMPRESSED])

    def _look_at_bounds(self, bounds: Sequence[tuple[int, Where, bytes]]) -> None:
        is_bytes = self.leaf.type is Physical.BYTE_ARRAY
        width = None if is_bytes else WIDTHS.get(self.leaf.type, self.leaf.type_length)
        cut = _Cut(() if width is not None and self.leaf.type_length is None else self.plain)
        for ordinal, where, raw in bounds:
            if width is not None and len(raw) < width and cut.is_one(raw):
                self.suspects[ordinal].append((where, None, (raw,)))
        whole = [b for b in bounds if width is None or len(b[2]) == width]
        if not whole or self.leaf.type is Physical.INT96:
            return
        page = b"".join(self._as_plain(raw) for *_, raw in whole)
        values = self._decode(page, len(whole), Codec.UNCOMPRESSED, len(page))
        hits = self._hits(values).to_pylist()
        for at, ((ordinal, where, raw), hit) in enumerate(zip(whole, hits, strict=True)):
            if hit:
                self.suspects[ordinal].append((where, values.slice(at, 1), ()))
            elif is_bytes and cut.is_one(raw):
                self.suspects[ordinal].append((where, None, (raw,)))

    def _look_at_bloom(self, held: _Held, ordinal: int, chunk: ColumnChunk) -> None:
        place = _bloom_place(chunk)
        if place is None or not self.hashes or place.end > self.footer.start:
            return
        header, bits = bloom_length(held.read(place)[:BLOOM_HEADER_BYTES])
        end = min(place.start + header + bits, self.footer.start)
        bitset = held.read(ByteRange(place.start, end))[header:]
        claimed = tuple(raw for raw, hashed in self.hashes.items() if may_hold(bitset, hashed))
        if claimed:
            self.suspects[ordinal].append(("bloom", None, claimed))

    def _hits(self, values: pa.Array) -> pa.BooleanArray:
        """Which values the condition is TRUE for; all of them if that is unknown."""
        batch = pa.RecordBatch.from_arrays([values], ["v"])
        try:
            return selected(self.condition, batch, {self.field_id: (0,)})
        except (SchemaMismatch, pa.ArrowException):
            return pa.repeat(pa.scalar(True), len(values))

    # -- what the rows have -------------------------------------------------------------------

    def confirm(self, held: _Held) -> Iterator[Residue]:
        """The suspects that no row of their group explains."""
        for ordinal, named in sorted(self.suspects.items()):
            rows = self._read_rows(held, ordinal)
            used = normalised(rows.filter(self._hits(rows)))
            known: set[Where] = set()
            for where, values, raws in named:
                if where in known:
                    continue
                if values is not None:
                    is_residue = not pc.all(pc.is_in(normalised(values), value_set=used)).as_py()
                elif where == "bloom":
                    is_residue = any(self._lacks(rows, raw) for raw in raws)
                else:
                    is_residue = any(not _cuts_some(rows, raw) for raw in raws)
                if is_residue:
                    known.add(where)
                    yield Residue(ordinal, self.name, where, certain=where != "bloom")

    def _lacks(self, rows: pa.Array, raw: bytes) -> bool:
        """Whether no row has the value with this PLAIN encoding."""
        page = self._as_plain(raw)
        value = self._decode(page, 1, Codec.UNCOMPRESSED, len(page))
        return not pc.any(pc.is_in(rows, value_set=value)).as_py()

    def _read_rows(self, held: _Held, ordinal: int) -> pa.Array:
        """The distinct values of the column in one row group, in the type its dictionary was read in."""
        chunk = self.chunk(ordinal)
        if not chunk.compressed_size:
            return self._decode(b"", 0, Codec.UNCOMPRESSED, 0)
        body = held.read(_place(chunk))
        pages = Pages(self.leaf, chunk, memoryview(body)[len(MAGIC) :])
        return read_distinct(self.footer, self.footer.row_group(ordinal).num_rows, pages)

    def _as_plain(self, raw: bytes) -> bytes:
        """A bound as a value of a page."""
        is_bytes = self.leaf.type is Physical.BYTE_ARRAY
        return len(raw).to_bytes(4, "little") + raw if is_bytes else raw

    def _decode(self, body: bytes, count: int, codec: Codec, uncompressed: int) -> pa.Array:
        return read_plain(self.footer, self.leaf, body, count, codec, uncompressed)


def _dictionary_page(held: _Held, chunk: ColumnChunk) -> tuple[Struct, bytes] | None:
    """The dictionary page's header and its (compressed) body; None without one."""
    place = _dictionary_place(chunk)
    if place is None:
        return None
    body = held.read(place)
    try:
        header, start = page_header(body, 0, len(body))
    except UnreadableFile:
        if place.end == chunk.end:
            raise
        return None  # the first page is a data page, with more statistics than were fetched
    if header[Page.TYPE] != PageType.DICTIONARY:
        return None
    end = place.start + start + header[Page.COMPRESSED]
    if header[Page.COMPRESSED] < 0 or header[Page.UNCOMPRESSED] < 0 or end > chunk.end:
        raise UnreadableFile("a page reaches past its column chunk")
    if header[Page.UNCOMPRESSED] > max(MAX_DOUBTFUL_PAGE_BYTES, chunk.uncompressed_size):
        raise UnsupportedFile("a dictionary page claims to be too large", next_step=RECODE)
    check_dictionary(header, chunk)
    if end > place.end:
        body = held.read(ByteRange(place.start, end))
    return header, body[start : start + header[Page.COMPRESSED]]


def _index_bounds(body: bytes) -> Iterator[bytes]:
    """The bounds of all pages; of a page of only nulls, which has none, what is stored instead."""
    try:
        index, _ = decode_struct(body)
        nulls = index[ColumnIndex.NULL_PAGES]
        for bounds in (index[ColumnIndex.MIN], index[ColumnIndex.MAX]):
            yield from (
                raw for raw, only_nulls in zip(bounds, nulls, strict=True) if raw or only_nulls != 1
            )
    except (ThriftError, KeyError, TypeError, ValueError):
        raise UnreadableFile("a column index is damaged") from None


def is_cut_of(bound: bytes, literal: bytes) -> bool:
    """Whether a bound may be a truncated literal: its first bytes, the last of them raised by one for an
    upper bound.

    >>> is_cut_of(b"ada@ex", b"ada@example.com"), is_cut_of(b"ada@ey", b"ada@example.com")
    (True, True)
    >>> is_cut_of(b"bob@ex", b"ada@example.com"), is_cut_of(b"", b"ada")
    (False, False)
    """
    if not MIN_CUT_BYTES <= len(bound) < len(literal):
        return False
    head, last = bound[:-1], bound[-1]
    return literal.startswith(head) and last in (literal[len(head)], literal[len(head)] + 1)


class _Cut:
    """Many literals, for testing whether a bound may be one of them truncated."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._literals = literals
        self._heads: dict[int, dict[bytes, list[bytes]]] = {}

    def is_one(self, bound: bytes) -> bool:
        size = len(bound) - 1
        if size not in self._heads:
            heads = self._heads[size] = defaultdict(list)
            for literal in self._literals:
                heads[literal[:size]].append(literal)
        return any(is_cut_of(bound, literal) for literal in self._heads[size].get(bound[:-1], ()))


# A bound of fewer bytes identifies nobody.
MIN_CUT_BYTES = 4


def _cuts_some(rows: pa.Array, bound: bytes) -> bool:
    """Whether a bound may be a truncated value of the rows."""
    # As bytes: what other writers call text need not be UTF-8.
    raws = rows.drop_null().cast(pa.large_binary()).to_pylist()
    return bound in raws or _Cut(raws).is_one(bound)

"""The footer of a Parquet file: decoded once, read through typed views, encoded back unchanged.

Promise: `decode_footer` reads any footer that follows the format, refuses by a typed error what is damaged
(`UnreadableFile`) or unsupported (`UnsupportedFile`: encrypted, signed, too large), and costs time and
memory in proportion to the footer's bytes. `end_of_file` of its tree is exactly what was decoded, unknown
fields included.

The views (`RowGroup`, `ColumnChunk`, `Leaf`) are created on access. They show what the file
states; `inlay.parquet.footer.pages` checks whether that is *true* of the file's bytes before anything is
rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.parquet.footer.fields import (
    ARROW_SCHEMA,
    Chunk,
    Codec,
    Converted,
    Element,
    File,
    Group,
    KeyValue,
    Logical,
    Meta,
    Order,
    Physical,
    Repetition,
    Stats,
)
from inlay.parquet.footer.thrift import (
    BINARY,
    STRUCT,
    Items,
    Struct,
    ThriftError,
    decode_struct,
    encode_struct,
    unpack,
    without_gc,
)
from inlay.record import Record

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
# The thrift length (4 bytes) and the magic behind the footer.
TRAILER_BYTES = 8
# A file of 500 row groups with 50 columns has a footer of 3 to 4 MiB. Decoded, a footer takes 16
# times its size in memory, and the smallest Lambda that runs this has 512 MB.
MAX_FOOTER_BYTES = 8 * 1024 * 1024
# Deeper schemas exist only by mistake or malice; recursion over the schema relies on it.
MAX_SCHEMA_DEPTH = 100

# FileMetaData, a list of row groups, a list of chunks, ColumnMetaData: statistics below stay packed.
_COLUMN_META_DEPTH = 5

RECODE = "Rewrite the file with an ordinary Parquet writer, then send it again"


def footer_length(last8: bytes) -> int:
    """The number of bytes of a file's footer, the 8-byte trailer included.

    `last8` are the last 8 bytes of the file (or more of its end). One suffix GET of the returned length
    reads what `decode_footer` needs.
    """
    trailer = last8[-TRAILER_BYTES:]
    if len(trailer) < TRAILER_BYTES:
        raise UnreadableFile("not a Parquet file: shorter than a footer")
    magic = bytes(trailer[4:])
    if magic == MAGIC_ENCRYPTED:
        raise UnsupportedFile("the footer is encrypted", next_step=RECODE)
    if magic != MAGIC:
        raise UnreadableFile("not a Parquet file: it does not end in PAR1")
    length = int.from_bytes(trailer[:4], "little")
    if length > MAX_FOOTER_BYTES:
        raise UnsupportedFile(
            f"the footer has {length} bytes, more than {MAX_FOOTER_BYTES}",
            next_step="Rewrite the file with fewer row groups or columns, then send it again",
        )
    return length + TRAILER_BYTES


class ColumnChunk(NamedTuple):
    """One column of one row group."""

    tree: Struct
    meta: Struct

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(_text(part) for part in self.meta[Meta.PATH])

    @property
    def type(self) -> Physical:
        return Physical(self.meta[Meta.TYPE])

    @property
    def codec(self) -> Codec:
        return Codec(self.meta[Meta.CODEC])

    @property
    def num_values(self) -> int:
        return int(self.meta[Meta.VALUES])

    @property
    def start(self) -> int:
        """Offset of the chunk's first page. Writers omit the dictionary's offset, leave it at 0, or set it
        to nonsense; only an offset after the magic and before the data pages is used."""
        meta = self.meta
        data_page: int = meta[Meta.DATA_PAGE]
        if Meta.INDEX_PAGE not in meta and data_page >= len(MAGIC):
            dictionary: int = meta.get(Meta.DICTIONARY_PAGE, 0)
            return dictionary if len(MAGIC) <= dictionary < data_page else data_page
        others = (meta.get(Meta.DICTIONARY_PAGE, 0), meta.get(Meta.INDEX_PAGE, 0))
        # pyarrow writes a chunk without values as a dictionary without data pages.
        return int(min((at for at in (data_page, *others) if at >= len(MAGIC)), default=data_page))

    @property
    def end(self) -> int:
        return self.start + self.compressed_size

    @property
    def compressed_size(self) -> int:
        return int(self.meta[Meta.COMPRESSED])

    @property
    def uncompressed_size(self) -> int:
        return int(self.meta[Meta.UNCOMPRESSED])

    @property
    def statistics(self) -> Struct | None:
        """As the file states them. Bounds are PLAIN values without a length; the deprecated ones, compared
        as signed numbers or bytes, may be nonsense for unsigned and binary types."""
        packed = self.meta.get(Meta.STATISTICS)
        return None if packed is None else unpack(packed)

    @property
    def offset_index(self) -> tuple[int, int] | None:
        """The range of the offset index, as (start, end)."""
        return _extent(self.tree, Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)

    @property
    def column_index(self) -> tuple[int, int] | None:
        return _extent(self.tree, Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)

    @property
    def bloom_offset(self) -> int | None:
        return self.meta.get(Meta.BLOOM) or None

    @property
    def bloom_length(self) -> int | None:
        """Header and bits; None if the writer omitted it and the header must be read."""
        return self.meta.get(Meta.BLOOM_LENGTH) or None


class RowGroup(Record):
    """One row group; `ordinal` is its place in the footer, from 0."""

    tree: Struct
    ordinal: int

    @property
    def num_rows(self) -> int:
        return int(self.tree[Group.ROWS])

    @property
    def total_byte_size(self) -> int:
        """Uncompressed bytes of all columns, as stated."""
        return int(self.tree[Group.BYTES])

    @property
    def compressed_size(self) -> int:
        return sum(chunk.compressed_size for chunk in self.columns)

    @property
    def columns(self) -> list[ColumnChunk]:
        """The chunks in the order of the schema's leaves."""
        return [ColumnChunk(tree, tree[Chunk.META]) for tree in self.tree[Group.COLUMNS]]

    def column(self, leaf: int) -> ColumnChunk:
        tree = self.tree[Group.COLUMNS][leaf]
        return ColumnChunk(tree, tree[Chunk.META])


class Leaf(Record):
    """A column of values: a node of the schema without children.

    `element` indexes the footer's schema list. Levels are the highest definition and repetition level a
    value of this column can have.
    """

    index: int
    element: int
    path: tuple[str, ...]
    type: Physical
    type_length: int | None
    definition_level: int
    repetition_level: int


class Footer(Record):
    """A decoded footer. `length` counts its bytes on disk, trailer included.

    Treat `tree` as read-only: views and other footers share it.
    """

    tree: Struct
    file_size: int
    length: int
    leaves: tuple[Leaf, ...]

    @property
    def start(self) -> int:
        """Where the footer begins in the file."""
        return self.file_size - self.length

    @property
    def num_rows(self) -> int:
        # parquet-rs before 0.4 left the total at 0.
        stated = int(self.tree[File.ROWS])
        return stated or sum(int(group[Group.ROWS]) for group in self.tree[File.GROUPS])

    @property
    def row_groups(self) -> list[RowGroup]:
        return [RowGroup(tree, at) for at, tree in enumerate(self.tree[File.GROUPS])]

    def row_group(self, ordinal: int) -> RowGroup:
        """One of `row_groups`, without making the others."""
        return RowGroup(self.tree[File.GROUPS][ordinal], ordinal)

    @property
    def num_row_groups(self) -> int:
        return len(self.tree[File.GROUPS])

    @property
    def schema(self) -> list[Struct]:
        """The schema's elements depth first, the root first; see `inlay.parquet.footer.fields.Element`."""
        elements: list[Struct] = self.tree[File.SCHEMA]
        return elements

    @property
    def created_by(self) -> str | None:
        text = self.tree.get(File.CREATED_BY)
        return None if text is None else _text(text)


def end_of_file(tree: Struct) -> bytes:
    """A footer and what follows it."""
    thrift = encode_struct(tree)
    return thrift + len(thrift).to_bytes(4, "little") + MAGIC


def view_tree(
    footer: Footer, elements: Sequence[Struct], metas: Iterable[Struct], rows: int, size: object
) -> Struct:
    """The footer of a file of one row group, of chunks of another file under the schema `elements`."""
    group: Struct = {
        Group.COLUMNS: Items(STRUCT, [{Chunk.FILE_OFFSET: 0, Chunk.META: meta} for meta in metas]),
        Group.BYTES: size,
        Group.ROWS: rows,
    }
    tree: Struct = {
        File.VERSION: footer.tree.get(File.VERSION, 1),
        File.SCHEMA: Items(STRUCT, elements),
        File.ROWS: rows,
        File.GROUPS: Items(STRUCT, [group]),
    }
    if File.CREATED_BY in footer.tree:
        # pyarrow works around faults of certain writers by their name.
        tree[File.CREATED_BY] = footer.tree[File.CREATED_BY]
    return tree


def decode_footer(tail: bytes, *, file_size: int) -> Footer:
    """The footer at the end of `tail`, the last bytes of a file of `file_size` bytes.

    `tail` must hold the whole footer: see `footer_length`. It may hold more, even the whole file.
    """
    length = footer_length(tail)
    if length + len(MAGIC) > file_size:
        raise UnreadableFile(f"a footer of {length} bytes in a file of {file_size}")
    if length > len(tail):
        raise UnreadableFile(f"{len(tail)} bytes given of a footer of {length}")
    thrift = tail[len(tail) - length : len(tail) - TRAILER_BYTES]
    try:
        with without_gc():
            tree, end = decode_struct(thrift, unpack_depth=_COLUMN_META_DEPTH)
    except ThriftError as error:
        raise UnreadableFile(f"the footer is damaged: {error}") from None
    if File.ENCRYPTION in tree or File.SIGNING_KEY in tree:
        # Encrypted columns under a plain footer. Such a footer is signed: 28 bytes of nonce and tag follow
        # the thrift, and nobody without the key can sign another.
        raise UnsupportedFile("the file is encrypted or signed", next_step=RECODE)
    if end != len(thrift):
        raise UnreadableFile(f"{len(thrift) - end} bytes too many in the footer")
    _check(tree)
    return Footer(tree=tree, file_size=file_size, length=length, leaves=tuple(_leaves(tree)))


# -- what must be there ---------------------------------------------------------------------------

_NOT_NEGATIVE = (Meta.VALUES, Meta.UNCOMPRESSED, Meta.COMPRESSED, Meta.DATA_PAGE)
_REQUIRED_IN_META = frozenset({Meta.TYPE, Meta.PATH, Meta.CODEC, *_NOT_NEGATIVE})


def refuse_elsewhere(chunk: ColumnChunk) -> None:
    """Raises `UnsupportedFile` for a chunk that is in another file. Some writers state an empty path."""
    if chunk.tree.get(Chunk.FILE_PATH):
        raise UnsupportedFile("a column chunk is in another file", next_step=RECODE)


def is_decimal(element: Struct) -> bool:
    return (
        Logical.DECIMAL in element.get(Element.LOGICAL, {})
        or element.get(Element.CONVERTED) == Converted.DECIMAL
    )


def is_text(element: Struct) -> bool:
    """Whether a schema element is a column of UTF-8."""
    return element.get(Element.CONVERTED) == Converted.UTF8 or Logical.STRING in element.get(
        Element.LOGICAL, {}
    )


def _check(tree: Struct) -> None:
    """Every field that the views read unconditionally exists, with a plausible sign."""
    for name, key in (
        ("schema", File.SCHEMA),
        ("num_rows", File.ROWS),
        ("row_groups", File.GROUPS),
    ):
        _must(key in tree, f"no {name}")
    _must(tree[File.ROWS] >= 0, "a negative number of rows")
    _must(_structs(tree[File.SCHEMA]), "a schema that is not a list of structs")
    _must(_structs(tree[File.GROUPS]), "row groups that are not structs")
    for name, pairs in (
        ("key-values", tree.get(File.KEY_VALUES)),
        ("orders", tree.get(File.ORDERS)),
    ):
        _must(pairs is None or _structs(pairs), f"{name} that are not structs")
    for group in tree[File.GROUPS]:
        for key in (Group.COLUMNS, Group.BYTES, Group.ROWS):
            _must(key in group, "a row group that lacks a required field")
        _must(group[Group.ROWS] >= 0, "a row group with a negative number of rows")
        _must(_structs(group[Group.COLUMNS]), "column chunks that are not structs")
        for chunk in group[Group.COLUMNS]:
            if Chunk.CRYPTO in chunk or Chunk.ENCRYPTED_META in chunk:
                raise UnsupportedFile("a column is encrypted", next_step=RECODE)
            meta = chunk.get(Chunk.META)
            _must(meta is not None, "a column chunk without metadata")
            assert meta is not None
            _must(meta.keys() >= _REQUIRED_IN_META, "column metadata that lacks a required field")
            _must(meta[Meta.PATH].element == BINARY, "a column path that is not text")
            _must(0 <= meta[Meta.TYPE] <= 7, "an unknown physical type")
            _must(0 <= meta[Meta.CODEC] <= 7, "an unknown codec")
            _must(all(meta[key] >= 0 for key in _NOT_NEGATIVE), "a negative size or offset")


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UnreadableFile(f"the footer is damaged: {otherwise}")


def _structs(values: Any) -> bool:
    return all(type(value) is dict for value in values)


def subtree_end(elements: Sequence[Struct], at: int) -> int:
    """The place after the last descendant of the schema element at `at`."""
    open_nodes = 1
    while open_nodes:
        open_nodes += elements[at].get(Element.CHILDREN, 0) - 1
        at += 1
    return at


def _leaves(tree: Struct) -> Iterator[Leaf]:
    """The schema's leaves in order, without trusting any count."""
    elements = tree[File.SCHEMA]
    _must(len(elements) > 0, "an empty schema")
    columns_seen = 0
    # One frame for each open group: children left, path, levels.
    open_groups: list[list[Any]] = [[elements[0].get(Element.CHILDREN, 0), (), 0, 0]]
    for at in range(1, len(elements)):
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        _must(bool(open_groups), "more schema elements than the groups have children")
        frame = open_groups[-1]
        frame[0] -= 1
        element = elements[at]
        _must(Element.NAME in element, "a column without a name")
        path = (*frame[1], _text(element[Element.NAME]))
        repetition = element.get(Element.REPETITION, Repetition.REQUIRED)
        if repetition not in (0, 1, 2):
            raise UnsupportedFile(f"repetition type {repetition}", next_step=RECODE)
        definition = frame[2] + (repetition != Repetition.REQUIRED)
        repeats = frame[3] + (repetition == Repetition.REPEATED)
        children = element.get(Element.CHILDREN, 0)
        _must(children >= 0, "a negative number of children")
        if children or Element.TYPE not in element:
            _must(len(open_groups) < MAX_SCHEMA_DEPTH, "a schema nested too deeply")
            open_groups.append([children, path, definition, repeats])
            continue
        _must(0 <= element[Element.TYPE] <= 7, f"physical type {element[Element.TYPE]}")
        yield Leaf(
            index=columns_seen,
            element=at,
            path=path,
            type=Physical(element[Element.TYPE]),
            type_length=element.get(Element.LENGTH),
            definition_level=definition,
            repetition_level=repeats,
        )
        columns_seen += 1
    while open_groups and open_groups[-1][0] == 0:
        open_groups.pop()
    _must(not open_groups, "fewer schema elements than the groups have children")
    for group in tree[File.GROUPS]:
        columns = len(group[Group.COLUMNS])
        _must(columns == columns_seen, f"{columns} chunks for {columns_seen} columns")


def _extent(tree: Struct, offset: int, length: int) -> tuple[int, int] | None:
    at, size = tree.get(offset), tree.get(length)
    if at is None or size is None or at <= 0 or size <= 0:
        return None
    return at, at + size


def _text(raw: bytes) -> str:
    # Names are UTF-8 by the specification; other names must still be distinct.
    return raw.decode("utf-8", "surrogateescape")


# Bytes of a PLAIN value, of the types whose values all have as many.
WIDTHS = {
    Physical.BOOLEAN: 1,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
}
_NOT_TO_DICTIONARIES = frozenset({"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"})
BOUNDS = (Stats.OLD_MIN, Stats.OLD_MAX, Stats.MIN, Stats.MAX)


def parse_metadata(tail: bytes, *, file_size: int, foreign: bool = True) -> pq.FileMetaData:
    """The metadata at the end of `tail`, the last bytes of an object of `file_size` bytes. Not `foreign`:
    this library wrote the whole file, with bounds of full width. Raises what pyarrow raises, and
    `UnreadableFile`.

    As pyarrow sees it, without what would abort the process or is known to be wrong: every statistic of it
    can be accessed, and none is of the deprecated kind for decimals stored as bytes: parquet-mr before 1.10
    compared those byte by byte, so that 1.00 is above 2.00 (`fixed_length_decimal.parquet` of
    apache/parquet-testing). Readers should ignore them; pyarrow does not.

    pyarrow 26 decodes a chunk's bounds when it is asked whether there are any, and if they are shorter than
    a value it does not raise but aborts. DataFusion truncates the bounds of fixed-width binary columns (at
    64 bytes by default): the statistics of such chunks are removed. Bounds of other types are never
    truncated, so a footer with such is damaged. pyarrow aborts, too, for a chunk whose type is not its
    column's, or whose histograms of levels have another length than the column has levels. `read.describe`
    refuses these when a file is added to the table.
    """
    metadata = opened(tail)
    if not foreign:
        return metadata  # decoding the footer here, too, would be half the cost of reading a small file
    is_unreadable = _is_unreadable(metadata)
    doubtful = any(_is_doubtful(metadata.schema.column(n)) for n in range(len(metadata.schema)))
    if not (is_unreadable or doubtful):
        return metadata
    footer = decode_footer(tail, file_size=file_size)
    wrong = [chunk for leaf, chunk in too_short(footer) if leaf.type not in WIDTHS]
    wrong += _compared_as_bytes(footer)
    if not (wrong or is_unreadable):
        return metadata
    for chunk in wrong:
        chunk.meta.pop(Meta.STATISTICS, None)
    if is_unreadable:
        pairs = map(unpack, footer.tree[File.KEY_VALUES])
        kept = [pair for pair in pairs if pair.get(KeyValue.KEY) != ARROW_SCHEMA]
        footer.tree[File.KEY_VALUES] = Items(STRUCT, kept)
    return opened(end_of_file(footer.tree))


def opened(tail: bytes) -> pq.FileMetaData:
    """As `pyarrow.parquet.read_metadata`, which makes a `ParquetFile` with the paths of all columns."""
    reader: Any = ParquetReader()
    reader.open(pa.BufferReader(tail))
    return reader.metadata


def _is_unreadable(metadata: pq.FileMetaData) -> bool:
    """Whether pyarrow would refuse to read a column as its Arrow schema says: as a dictionary, from pages
    of an encoding that it decodes to plain values only. It writes such files itself."""
    if ARROW_SCHEMA not in (metadata.metadata or {}):
        return False
    if not any("dictionary<" in str(f.type) for f in metadata.schema.to_arrow_schema()):
        return False
    return any(
        not _NOT_TO_DICTIONARIES.isdisjoint(metadata.row_group(g).column(n).encodings)
        for g in range(metadata.num_row_groups)
        for n in range(metadata.num_columns)
    )


def _is_doubtful(column: pq.ColumnSchema) -> bool:
    is_text = column.physical_type == "BYTE_ARRAY"
    return column.physical_type == "FIXED_LEN_BYTE_ARRAY" or (
        is_text and column.logical_type is not None and column.logical_type.type == "DECIMAL"
    )


def _compared_as_bytes(footer: Footer) -> Iterator[ColumnChunk]:
    """Chunks of decimals stored as bytes for which pyarrow would use the deprecated bounds."""
    orders = footer.tree.get(File.ORDERS, ())
    for leaf in footer.leaves:
        as_bytes = leaf.type in (Physical.FIXED_LEN_BYTE_ARRAY, Physical.BYTE_ARRAY)
        if not as_bytes or not is_decimal(footer.schema[leaf.element]):
            continue
        if leaf.index < len(orders) and Order.BY_TYPE in orders[leaf.index]:
            continue
        for group in footer.row_groups:
            chunk = group.column(leaf.index)
            if chunk.statistics is not None:
                yield chunk


def too_short(footer: Footer) -> Iterator[tuple[Leaf, ColumnChunk]]:
    """The chunks with a bound that has fewer bytes than a value of their columns."""
    widths = [(leaf, WIDTHS.get(leaf.type, leaf.type_length)) for leaf in footer.leaves]
    fixed = [(leaf, width) for leaf, width in widths if width and leaf.type is not Physical.INT96]
    for group in footer.row_groups:
        for leaf, width in fixed:
            chunk = group.column(leaf.index)
            statistics = chunk.statistics or {}
            if any(len(statistics[key]) < width for key in BOUNDS if key in statistics):
                yield leaf, chunk

"""One row group of a file, read by pyarrow under another schema.

Promise: `read_view` decodes column chunks that are already in memory as if they were a file of one row
group. The *logical* view has the meaning of the values, for evaluating a predicate. The *physical* view is
for writing the same values back: it has only their storage, so no value changes by passing through Arrow,
whatever the file's annotations claim:

- annotations are dropped, so legacy lists, maps without values, odd decimals and plain repeated fields are
just structs and
  lists; every optional or repeated node keeps its level;
- unsigned integers, FLOAT16 and fixed-length decimals keep theirs, because they order the statistics;
- INT96 is twelve bytes, stored as such;
- nodes are renamed, so dotted, empty and duplicate names do not matter.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile
from inlay.parquet.footer.decoded_size import check_memory, chunk_bytes
from inlay.parquet.footer.fields import (
    Converted,
    Element,
    Logical,
    Meta,
    Physical,
)
from inlay.parquet.footer.footer import (
    MAGIC,
    Footer,
    RowGroup,
    is_decimal,
    subtree_end,
    trailer,
)
from inlay.parquet.footer.thrift import I8, Struct, boolean, encode_struct, i32
from inlay.parquet.read.page_sizes import Pages, check_pages_fit
from inlay.parquet.read.single_column import INT96_BYTES, moved_meta, translate_errors, view_tree

# What pyarrow writes for a DECIMAL of a given precision: the fewest bytes that hold it. Inverted: the
# largest precision that takes `n` bytes, so that a fixed-length decimal keeps its length.
_PRECISION_OF_BYTES = {
    (((10**precision - 1).bit_length() + 1) + 7) // 8: precision for precision in range(1, 77)
}


def physical_footer(footer: Footer) -> tuple[list[Struct], list[Struct]]:
    """The schema elements of the physical view, and a patch of ColumnMetaData for each leaf."""
    elements: list[Struct] = []
    for at, element in enumerate(footer.schema):
        plain: Struct = {}
        if Element.TYPE in element and not element.get(Element.CHILDREN):
            is_int96 = element[Element.TYPE] == Physical.INT96
            plain[Element.TYPE] = (
                Physical.FIXED_LEN_BYTE_ARRAY if is_int96 else element[Element.TYPE]
            )
            if is_int96:
                plain[Element.LENGTH] = INT96_BYTES
            elif element[Element.TYPE] == Physical.FIXED_LEN_BYTE_ARRAY:
                plain[Element.LENGTH] = element.get(Element.LENGTH, 0)
        if Element.REPETITION in element:
            plain[Element.REPETITION] = element[Element.REPETITION]
        plain[Element.NAME] = b"f%d" % at
        if Element.CHILDREN in element:
            plain[Element.CHILDREN] = element[Element.CHILDREN]
        if Element.TYPE in plain:
            plain.update(_ordering(element))
        elements.append(plain)
    patches = []
    for leaf in footer.leaves:
        patches.append({Meta.TYPE: elements[leaf.element][Element.TYPE]})
    return elements, patches


def _ordering(element: Struct) -> Struct:
    """The annotation that makes pyarrow order this leaf's statistics as the file does."""
    if is_unsigned(element):
        bits = 64 if element[Element.TYPE] == Physical.INT64 else 32
        return {
            Element.CONVERTED: int(Converted.UINT_64 if bits == 64 else Converted.UINT_32),
            Element.LOGICAL: {Logical.INTEGER: {1 << 4 | I8: bits, boolean(2): False}},
        }
    if Logical.FLOAT16 in element.get(Element.LOGICAL, {}):
        return {Element.LOGICAL: {Logical.FLOAT16: {}}}
    length = element.get(Element.LENGTH, 0)
    is_fixed = element[Element.TYPE] == Physical.FIXED_LEN_BYTE_ARRAY
    if is_fixed and is_decimal(element) and length in _PRECISION_OF_BYTES:
        precision = _PRECISION_OF_BYTES[length]
        return {
            Element.CONVERTED: int(Converted.DECIMAL),
            Element.SCALE: 0,
            Element.PRECISION: precision,
            Element.LOGICAL: {Logical.DECIMAL: {i32(1): 0, i32(2): precision}},
        }
    return {}


def is_unsigned(element: Struct) -> bool:
    integer = element.get(Element.LOGICAL, {}).get(Logical.INTEGER)
    if integer is not None:
        return integer.get(boolean(2)) is False
    return element.get(Element.CONVERTED) in (
        Converted.UINT_8,
        Converted.UINT_16,
        Converted.UINT_32,
        Converted.UINT_64,
    )


def read_logical(
    footer: Footer,
    group: RowGroup,
    body: bytes,
    moved: Sequence[int],
    columns: Collection[str] | None,
) -> pa.Table:
    """The top-level `columns` (None: all) with the types of their Parquet annotations. The Arrow schema
    that some writers store beside them is not applied."""
    elements = footer.schema
    tops, at = [], 1
    while at < len(elements):
        end = subtree_end(elements, at)
        tops.append(range(at, end))
        at = end
    names = [
        bytes(elements[top.start][Element.NAME]).decode("utf-8", "surrogateescape") for top in tops
    ]
    wanted = [i for i, name in enumerate(names) if columns is None or name in columns]
    leaves = [leaf.index for leaf in footer.leaves if leaf.top in set(wanted)]
    root = {**elements[0], Element.CHILDREN: len(wanted)}
    kept = [root] + [elements[at] for i in wanted for at in tops[i]]
    return read_view(footer, group, body, moved, elements=kept, leaves=leaves)


def _pages(
    footer: Footer, group: RowGroup, body: bytes, moved: Sequence[int], leaves: Iterable[int]
) -> Iterator[Pages]:
    """Chunks of texts: what other pages claim was held to the footer before (`row_group.profile_group`)."""
    for leaf in leaves:
        chunk = group.column(leaf)
        if chunk.type is not Physical.BYTE_ARRAY:
            continue
        start, length = chunk.start + moved[leaf], chunk.end - chunk.start
        yield Pages(footer.leaves[leaf], chunk, memoryview(body)[start : start + length])


def read_view(
    footer: Footer,
    group: RowGroup,
    body: bytes,
    moved: Sequence[int],
    *,
    elements: Sequence[Struct],
    leaves: Sequence[int] | None = None,
    patches: Sequence[Struct] | None = None,
) -> pa.Table:
    """Decode `leaves` (all by default) of `group` under the schema `elements`.

    `body` holds the chunks after 4 other bytes; `moved[leaf]` is added to the offsets of that chunk to find
    it in `body`.
    """
    leaves = range(len(footer.leaves)) if leaves is None else leaves
    check_memory(sum(chunk_bytes(group.column(leaf)) for leaf in leaves))
    check_pages_fit(footer, group.num_rows, _pages(footer, group, body, moved, leaves))
    metas = []
    for leaf in leaves:
        meta = moved_meta(group.column(leaf), moved[leaf])
        metas.append({**meta, **patches[leaf]} if patches else meta)
    size = group.total_byte_size
    thrift = encode_struct(view_tree(footer, elements, metas, group.num_rows, size))

    def decode() -> pa.Table:
        metadata = pq.read_metadata(io.BytesIO(MAGIC + thrift + trailer(len(thrift))))
        with pq.ParquetFile(
            pa.BufferReader(body),
            metadata=metadata,
            binary_type=pa.large_binary() if patches else None,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
            pre_buffer=False,
        ) as file:
            return file.read(use_threads=False)

    table = translate_errors(decode)
    if table.num_rows != group.num_rows and table.num_columns:
        raise UnreadableFile(
            f"row group {group.ordinal} holds {table.num_rows} rows, {group.num_rows} by the footer"
        )
    return table

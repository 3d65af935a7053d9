"""Checks the bytes of a Parquet file against the format's rules, without any code under test.

`problems(data)` names every rule the file breaks, as (kind, detail). It has its own thrift reader, parses
every page header that the footer and the indexes refer to, checks every CRC, and accounts for every byte.
pyarrow silently reads files with most of these faults, which is why this exists.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)


def thrift(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A compact struct as {field id: value}."""

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def zigzag() -> int:
        number = varint()
        return (number >> 1) ^ -(number & 1)

    def value(kind: int, inside: bool) -> Any:
        nonlocal at
        if kind in (1, 2):
            if not inside:
                return kind == 1
            at += 1
            return data[at - 1] == 1
        if kind == 3:
            at += 1
            return struct.unpack("b", data[at - 1 : at])[0]
        if kind in (4, 5, 6):
            return zigzag()
        if kind == 7:
            at += 8
            return struct.unpack("<d", data[at - 8 : at])[0]
        if kind == 8:
            length = varint()
            at += length
            assert at <= len(data)
            return data[at - length : at]
        if kind in (9, 10):
            head = data[at]
            at += 1
            count = head >> 4
            if count == 15:
                count = varint()
            return [value(head & 15, True) for _ in range(count)]
        assert kind == 12, f"wire type {kind}"
        found, last = {}, 0
        while True:
            head = data[at]
            at += 1
            if head == 0:
                return found
            field_id = last + (head >> 4) if head >> 4 else zigzag()
            assert field_id > last, f"field {field_id} behind field {last}"
            last = field_id
            found[last] = value(head & 15, False)

    return value(12, False), at


@dataclass
class Report:
    found: list[tuple[str, str]] = field(default_factory=list)

    def expect(self, holds: object, kind: str, detail: object = "") -> bool:
        if not holds:
            self.found.append((kind, str(detail)))
        return bool(holds)


def problems(data: bytes) -> list[tuple[str, str]]:
    report = Report()
    try:
        _file(data, report)
    except (AssertionError, IndexError, KeyError, TypeError, struct.error) as error:
        report.found.append(("unreadable", repr(error)))
    return report.found


def kinds(data: bytes) -> set[str]:
    return {kind for kind, _ in problems(data)}


def footer_of(data: bytes) -> dict[int, Any]:
    length = int.from_bytes(data[-8:-4], "little")
    return thrift(data, len(data) - 8 - length)[0]


def _file(data: bytes, report: Report) -> None:
    report.expect(data[:4] == b"PAR1" and data[-4:] == b"PAR1", "magic")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert start >= 4
    footer, end = thrift(data, start)
    report.expect(end == len(data) - 8, "footer length", (end, len(data) - 8))
    leaves = _leaves(footer[2])
    report.expect(footer[3] == sum(group[3] for group in footer[4]), "rows of the file", footer[3])
    extents: list[tuple[int, int, str]] = [(0, 4, "magic"), (start, len(data), "footer")]
    for ordinal, group in enumerate(footer[4]):
        _group(data, ordinal, group, leaves, extents, report)
    extents = sorted(set(extents))
    for (_, end_a, a), (start_b, _, b) in itertools.pairwise(extents):
        report.expect(end_a <= start_b, "overlap", (a, b, end_a, start_b))


def gaps(data: bytes) -> list[tuple[int, int]]:
    """The bytes that nothing points at."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = thrift(data, start)
    extents: list[tuple[int, int, str]] = [(0, 4, ""), (start, len(data), "")]
    for ordinal, group in enumerate(footer[4]):
        _group(data, ordinal, group, _leaves(footer[2]), extents, Report())
    extents.sort()
    return [(a[1], b[0]) for a, b in itertools.pairwise(extents) if a[1] < b[0]]


def gaps_between_groups(data: bytes) -> list[tuple[int, int]]:
    """The gaps that are not between two column chunks of one row group."""
    spans = []
    for group in footer_of(data)[4]:
        chunks = [chunk[3] for chunk in group[1] if chunk[3][7]]
        if chunks:
            spans.append((min(map(_start, chunks)), max(_start(m) + m[7] for m in chunks)))
    return [
        (start, end)
        for start, end in gaps(data)
        if not any(low < start and end < high for low, high in spans)
    ]


def _leaves(elements: list[dict[int, Any]]) -> list[dict[str, Any]]:
    """Leaves with path, type and maximum levels, by recursion."""
    found: list[dict[str, Any]] = []
    at = 1

    def walk(path: list[bytes], definition: int, repetition: int) -> None:
        nonlocal at
        element = elements[at]
        at += 1
        definition += element.get(3, 0) != 0
        repetition += element.get(3, 0) == 2
        path = [*path, element[4]]
        if 1 in element and not element.get(5):
            found.append({"path": path, "type": element[1], "def": definition, "rep": repetition})
        for _ in range(element.get(5, 0)):
            walk(path, definition, repetition)

    for _ in range(elements[0].get(5, 0)):
        walk([], 0, 0)
    assert at == len(elements)
    return found


def _group(
    data: bytes,
    ordinal: int,
    group: dict[int, Any],
    leaves: list[dict[str, Any]],
    extents: list[tuple[int, int, str]],
    report: Report,
) -> None:
    where = f"row group {ordinal}"
    chunks = group[1]
    report.expect(len(chunks) == len(leaves), "column count", where)
    report.expect(group.get(7, ordinal) == ordinal, "ordinal", (where, group.get(7)))
    metas = [chunk[3] for chunk in chunks]
    if 6 in group:
        report.expect(group[6] == sum(m[7] for m in metas), "group compressed size", where)
    report.expect(group[2] == sum(m[6] for m in metas), "group size", where)
    if group.get(5) and chunks:
        report.expect(group[5] == _start(metas[0]), "group file offset", (where, group[5]))
    for leaf, chunk in zip(leaves, chunks, strict=True):
        name = f"{where}, {b'.'.join(leaf['path']).decode(errors='replace')}"
        _chunk(data, name, chunk, leaf, group[3], extents, report)


def _start(meta: dict[int, Any]) -> int:
    data_page = meta[9]
    others = [meta[key] for key in (10, 11) if meta.get(key, 0) >= 4]
    return min(others, default=data_page) if data_page < 4 else min([data_page, *others])


def _chunk(
    data: bytes,
    name: str,
    chunk: dict[int, Any],
    leaf: dict[str, Any],
    rows: int,
    extents: list[tuple[int, int, str]],
    report: Report,
) -> None:
    meta = chunk[3]
    report.expect(meta[1] == leaf["type"], "physical type", name)
    report.expect(meta[3] == leaf["path"], "path", name)
    start = _start(meta)
    end = start + meta[7]
    if meta[7]:
        extents.append((start, end, name))
    file_offset = chunk.get(2, 0)
    report.expect(
        file_offset == 0 or start <= file_offset <= end, "chunk file offset", (name, file_offset)
    )
    pages = _pages(data, start, end, name, report)
    data_pages = [page for page in pages if page["type"] in (DATA, DATA_V2)]
    dictionaries = [page for page in pages if page["type"] == DICTIONARY]
    if data_pages:
        first = min(page["at"] for page in data_pages)
        # Old writers give the dictionary's offset as that of the data.
        report.expect(
            meta[9] in (first, start if dictionaries else first),
            "data page offset",
            (name, meta[9]),
        )
    if meta.get(11, 0) >= 4 and (meta[11] <= meta[9] or not data_pages):
        report.expect(
            [meta[11]] == [page["at"] for page in dictionaries],
            "dictionary offset",
            (name, meta[11]),
        )
    report.expect(len(dictionaries) <= 1, "two dictionaries", name)
    values = sum(page["values"] for page in data_pages)
    report.expect(values == meta[5], "values of the chunk", (name, values, meta[5]))
    if leaf["rep"] == 0:
        report.expect(values == rows, "rows of the chunk", (name, values, rows))
    uncompressed = sum(page["uncompressed"] + page["header"] for page in pages)
    report.expect(uncompressed == meta[6], "uncompressed size", (name, uncompressed, meta[6]))
    used = {page["encoding"] for page in pages}
    report.expect(used <= set(meta[2]), "encodings", (name, used, meta[2]))
    for stat in meta.get(13, ()):
        count = sum(
            page["kind"] == stat[1] % DATA_V2 and page["encoding"] == stat[2] for page in pages
        )
        report.expect(count == stat[3], "encoding stats", (name, stat, count))
    stats = meta.get(12, {})
    report.expect(stats.get(3, 0) <= meta[5], "null count", name)
    _offset_index(data, name, chunk, data_pages, rows, extents, report)
    _column_index(data, name, chunk, data_pages, stats, extents, report)
    if meta.get(14):
        _bloom(data, name, meta, extents, report)


def _pages(data: bytes, at: int, end: int, name: str, report: Report) -> list[dict[str, Any]]:
    pages = []
    while at < end:
        header, body = thrift(data, at)
        size = header[3]
        if not report.expect(body + size <= end, "page beyond its chunk", (name, at)):
            break
        if 4 in header:
            crc = zlib.crc32(data[body : body + size])
            report.expect(crc == header[4] & 0xFFFFFFFF, "page checksum", (name, at))
        inner = header.get({DATA: 5, DICTIONARY: 7, DATA_V2: 8}.get(header[1], 6), {})
        encoding = inner.get(4 if header[1] == DATA_V2 else 2)
        pages.append(
            {
                "at": at,
                "type": header[1],
                "checksum": 4 in header,
                # pyarrow counts pages of version 2 as those of version 1.
                "kind": DATA if header[1] == DATA_V2 else header[1],
                "header": body - at,
                "size": body - at + size,
                "uncompressed": header[2],
                "values": inner.get(1, 0),
                "rows": inner.get(3) if header[1] == DATA_V2 else None,
                "encoding": encoding,
            }
        )
        at = body + size
    return pages


def _offset_index(
    data: bytes,
    name: str,
    chunk: dict[int, Any],
    pages: list[dict[str, Any]],
    rows: int,
    extents: list[tuple[int, int, str]],
    report: Report,
) -> None:
    if not chunk.get(4):
        return
    index, end = thrift(data, chunk[4])
    extents.append((chunk[4], chunk[4] + chunk[5], name + " offset index"))
    report.expect(end == chunk[4] + chunk[5], "offset index length", name)
    locations = index[1]
    report.expect(
        [location[1] for location in locations] == [page["at"] for page in pages],
        "page locations",
        name,
    )
    report.expect(
        [location[2] for location in locations] == [page["size"] for page in pages],
        "page location sizes",
        name,
    )
    firsts = [location[3] for location in locations]
    rising = all(a < b for a, b in itertools.pairwise(firsts))
    report.expect(
        not firsts or (firsts[0] == 0 and rising and firsts[-1] < rows),
        "first rows",
        (name, firsts),
    )
    lengths = [b - a for a, b in zip(firsts, [*firsts[1:], rows], strict=True)]
    for length, page in zip(lengths, pages, strict=False):
        report.expect(page["rows"] in (None, length), "rows of a page", name)


def _column_index(
    data: bytes,
    name: str,
    chunk: dict[int, Any],
    pages: list[dict[str, Any]],
    stats: dict[int, Any],
    extents: list[tuple[int, int, str]],
    report: Report,
) -> None:
    if not chunk.get(6):
        return
    report.expect(chunk.get(4), "column index alone", name)
    index, end = thrift(data, chunk[6])
    extents.append((chunk[6], chunk[6] + chunk[7], name + " column index"))
    report.expect(end == chunk[6] + chunk[7], "column index length", name)
    for key in (1, 2, 3, 5):
        if key in index:
            report.expect(len(index[key]) == len(pages), "column index pages", (name, key))
    if 5 in index and 3 in stats:
        report.expect(sum(index[5]) == stats[3], "column index nulls", (name, index[5], stats[3]))


def _bloom(
    data: bytes,
    name: str,
    meta: dict[int, Any],
    extents: list[tuple[int, int, str]],
    report: Report,
) -> None:
    header, end = thrift(data, meta[14])
    length = end - meta[14] + header[1]
    extents.append((meta[14], meta[14] + length, name + " bloom filter"))
    report.expect(set(header) == {1, 2, 3, 4}, "bloom header", (name, header))
    report.expect(header[1] % 32 == 0 and header[1] >= 32, "bloom size", (name, header[1]))
    report.expect(meta.get(15, length) == length, "bloom length", (name, meta.get(15), length))

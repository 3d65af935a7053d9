"""Thrift's compact protocol as a tree of plain values that loses nothing.

Promise: `decode_struct` turns any well-formed compact struct into a tree and `encode_struct` turns it back
into the same bytes, whatever fields it holds, known or not. Fields are always written in ascending order of
their ids, as every thrift compiler writes them: some readers (fastparquet) fail on any other order.
(Another order, or padded varints, are normalised to this form, with the same meaning.) Damaged bytes raise
`ThriftError`; time and memory stay proportional to the given bytes, by the bounds below.

The tree:

=========================== =====================================================
wire type                   Python value
=========================== =====================================================
struct                      ``dict`` from `field key` to value, in wire order;
                            ``bytes``, the stop byte included, if left packed
bool, i8, i16, i32, i64     ``bool``, ``int``
binary, string              ``bytes``
list                        `Items`, a ``list`` that knows its element type
double, uuid, set, map      ``bytes`` as they are on the wire: Parquet's metadata, as
                            far as it is read here, has none
=========================== =====================================================

A *field key* is the field's id and wire type in one number, ``id << 4 | type``, made by `i32(3)`,
`binary(4)` and so on. A lookup therefore finds a field only if it has the type the schema says: a
field of the wrong type counts as absent and survives as an unknown one.

Most bytes of a footer are statistics that are never read. Structs below a depth that the caller gives
therefore stay *packed*: one regular expression finds their bytes, at a tenth of the cost of decoding them,
and they are written back unchanged. `unpack` decodes one on demand.

Relies on nothing but the protocol: github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BOOL, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
INTEGERS = frozenset({I16, I32, I64})
# Bytes of a value, of a boolean within a list or map.
_FIXED_BYTES = {BOOL: 1, FALSE: 1, I8: 1, DOUBLE: 8, UUID: 16}
_BYTES_OF_ONE = frozenset({BOOL, FALSE, I8})

# Parquet's metadata nests 7 deep (file, row group, chunk, metadata, statistics …). Python would
# give up near 1,000; refusing here keeps the stack small and the error typed.
MAX_DEPTH = 24
# A dict costs 64 bytes where an empty struct costs one: without a bound, 8 MiB of zeros would
# become half a gigabyte. A real footer has one container for every 20 bytes or so.
MAX_CONTAINERS = 2_000_000
# Distinct short lists of one footer that are worth remembering: columns have about three each.
MAX_REMEMBERED = 20_000
# Bounds of what the pattern accepts as a plain struct; others are decoded to find their end.
MAX_PLAIN_STRING = 64
MAX_PLAIN_FIELDS = 32
# Longer lists are not shared between structs, so their encoded bytes are not kept for a second use.
MAX_SHARED_ITEMS = 9

Struct = dict[int, Any]


@contextmanager
def without_gc() -> Iterator[None]:
    """No cycle collection inside, where many objects are made that have no cycles (a footer's tree, the
    entries of a plan): to look through all of them again and again takes as long as making them, or four
    times as long. Threads may be inside at once: when the last has left, collection is as it was."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ThriftError(ValueError):
    """The bytes are not what the protocol allows, or go past a bound."""


class Items(list[Any]):
    """A thrift list: `element` is its element type."""

    __slots__ = ("element",)

    def __init__(self, element: int, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        self.element = element


# -- field keys -----------------------------------------------------------------------------------


def _keys_of(kind: int) -> Callable[[int], int]:
    """From the id of a field of this wire type to its key."""
    return lambda field_id: field_id << 4 | kind


boolean, binary, items, nested = map(_keys_of, (BOOL, BINARY, LIST, STRUCT))
i16, i32, i64 = map(_keys_of, (I16, I32, I64))


# -- decoding -------------------------------------------------------------------------------------


def decode_struct(
    data: bytes | memoryview, start: int = 0, *, unpack_depth: int = MAX_DEPTH
) -> tuple[Struct, int]:
    """The struct at `start`, and the offset just behind it. Structs deeper than `unpack_depth` stay
    packed (the whole is at 0, a field's struct one deeper, an element of a field's list two)."""
    try:
        return _Reader(bytes(data), unpack_depth).struct(start, 0)
    except IndexError:
        raise ThriftError("cut short") from None


def unpack(value: Struct | bytes) -> Struct:
    """A struct that may have been left packed. What stays packed is known to be well formed."""
    if isinstance(value, bytes):
        return decode_struct(value)[0]
    return value


def _plain_struct() -> re.Pattern[bytes]:
    """Matches whole structs of the form of statistics: numbers, booleans, short strings, short lists of
    numbers.

    It matches less than the protocol allows and nothing else, so a match is sound without decoding it.
    Time is linear, whatever the bytes: each field says where it ends, so nothing is found by going back.
    That is not said by a possessive repeat: before Python 3.11.5 those match what they should not
    (gh-106052).
    """

    def heads(*kinds: int) -> bytes:
        return _one_of(delta << 4 | kind for delta in range(1, 16) for kind in kinds)

    number = rb"[\x80-\xff]{0,8}[\x00-\x7f]"  # at most 63 bits
    numbers = heads(*INTEGERS) + number
    string = heads(BINARY) + _any_of(
        re.escape(bytes([n])) + b"[\\s\\S]{%d}" % n for n in range(MAX_PLAIN_STRING + 1)
    )
    of_numbers = heads(LIST) + _any_of(
        _one_of(n << 4 | kind for kind in INTEGERS) + b"(?:%b){%d}" % (number, n) for n in range(15)
    )
    fields = _any_of([numbers, string, heads(BOOL, FALSE), of_numbers])
    return re.compile(b"%b{0,%d}\\x00" % (fields, MAX_PLAIN_FIELDS))


def _one_of(values: Iterable[int]) -> bytes:
    return b"[" + b"".join(b"\\x%02x" % value for value in values) + b"]"


def _any_of(patterns: Iterable[bytes]) -> bytes:
    return b"(?:" + b"|".join(patterns) + b")"


_PLAIN_STRUCT = _plain_struct()


class _Reader:
    """One decoding: the bytes, how many containers they may still create, and short lists seen before.

    A footer repeats the same few lists (a column's path, its encodings and their counts) for every row
    group. A list of known bytes is not decoded again but shared, which saves a third of the time and half
    of the memory; so nobody may change a list of a decoded tree in place.
    """

    __slots__ = ("data", "left", "lists", "size", "unpack_depth")

    def __init__(self, data: bytes, unpack_depth: int = MAX_DEPTH) -> None:
        self.data = data
        self.size = len(data)
        self.unpack_depth = unpack_depth
        self.left = MAX_CONTAINERS
        self.lists: dict[bytes, Items] = {}

    def struct(self, pos: int, depth: int) -> tuple[Struct, int]:
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise _beyond_bounds(depth)
        data = self.data
        fields: Struct = {}
        field_id = 0
        while True:
            head = data[pos]
            pos += 1
            if head == 0:
                return fields, pos
            kind = head & 15
            if head > 15:
                field_id += head >> 4
            else:
                number, pos = decode_varint(data, pos)
                field_id = number >> 1 ^ -(number & 1)
            if not 0 < field_id < 1 << 15:
                raise ThriftError(f"field id {field_id}")
            value: Any
            # The shapes that make up nine tenths of a footer are decoded in line.
            if 3 < kind < 7:
                number = data[pos]
                if number < 128:
                    pos += 1
                elif (byte := data[pos + 1]) < 128:
                    number += (byte << 7) - 128
                    pos += 2
                else:
                    number, pos = decode_varint(data, pos)
                value = number >> 1 ^ -(number & 1)
            elif kind == BINARY:
                byte = data[pos]
                if byte < 128:
                    pos += 1
                else:
                    byte, pos = decode_varint(data, pos)
                end = pos + byte
                if end > self.size:
                    raise ThriftError("cut short")
                value = data[pos:end]
                pos = end
            elif kind == STRUCT:
                if depth < self.unpack_depth:
                    value, pos = self.struct(pos, depth + 1)
                else:
                    value, pos = self.packed(pos, depth + 1)
            elif kind == LIST:
                value, pos = self.items(pos, depth + 1)
            elif kind == BOOL:
                value = True
            elif kind == FALSE:
                kind = BOOL
                value = False
            else:
                value, pos = self.value(kind, pos, depth + 1)
            key = field_id << 4 | kind
            if key in fields:
                raise ThriftError(f"field {field_id} twice")
            fields[key] = value

    def packed(self, pos: int, depth: int) -> tuple[bytes, int]:
        """The bytes of a struct, which is well formed."""
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise _beyond_bounds(depth)
        plain = _PLAIN_STRUCT.match(self.data, pos)
        end = plain.end() if plain else self.struct(pos, depth)[1]
        return self.data[pos:end], end

    def value(self, kind: int, pos: int, depth: int) -> tuple[Any, int]:
        """One element of a list, or a field that `struct` does not read in line."""
        end = self.end_of(kind, pos, depth)
        if end > self.size:
            raise ThriftError("cut short")
        if kind in _BYTES_OF_ONE:
            # Writers disagree on false within a list (0 or 2), so the byte is kept; 1 is true.
            byte = self.data[pos]
            return byte - 256 if kind == I8 and byte > 127 else byte, end
        return self.data[pos:end], end

    def end_of(self, kind: int, pos: int, depth: int) -> int:
        """Where a value ends within a list, set or map, or that of such a field."""
        if kind in INTEGERS:
            return decode_varint(self.data, pos)[1]
        if kind == BINARY:
            length, pos = decode_varint(self.data, pos)
            return pos + length
        if kind == STRUCT:
            return self.struct(pos, depth)[1]
        if kind in (LIST, SET):
            return self.items(pos, depth)[1]
        if kind == MAP:
            return self.end_of_map(pos, depth)
        if kind not in _FIXED_BYTES:
            raise ThriftError(f"wire type {kind}")
        return pos + _FIXED_BYTES[kind]

    def items(self, pos: int, depth: int) -> tuple[Items, int]:
        data = self.data
        element, count = data[pos] & 15, data[pos] >> 4
        # A value's bytes determine their end. So bytes that once made a whole list make it again, whatever
        # follows; their number is a guess (of short lists as footers have them: one name, a few small
        # numbers, or structs of three small numbers), and only correct guesses are remembered.
        if element == BINARY:
            likely = 2 + data[pos + 1]
        else:
            likely = 1 + count * (7 if element == STRUCT else 1)
        guess = data[pos : pos + likely]
        known = self.lists.get(guess)
        if known is not None:
            return known, pos + len(guess)
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise _beyond_bounds(depth)
        start = pos
        pos += 1
        if count == 15:
            count, pos = decode_varint(data, pos)
        # Every element takes a byte at least, so a count beyond the rest is false: refuse it before looping
        # over it.
        if count > self.size - pos:
            raise ThriftError(f"{count} elements in {self.size - pos} bytes")
        items = Items(element)
        if element == STRUCT:
            read = self.struct if depth < self.unpack_depth else self.packed
            for _ in range(count):
                fields, pos = read(pos, depth + 1)
                items.append(fields)
        elif element in INTEGERS:
            for _ in range(count):
                number = data[pos]
                if number < 128:
                    pos += 1
                else:
                    number, pos = decode_varint(data, pos)
                items.append(number >> 1 ^ -(number & 1))
        elif element == BINARY:
            for _ in range(count):
                length, pos = decode_varint(data, pos)
                end = pos + length
                if end > self.size:
                    raise ThriftError("cut short")
                items.append(data[pos:end])
                pos = end
        else:
            for _ in range(count):
                value, pos = self.value(element, pos, depth + 1)
                items.append(value)
        if pos - start == len(guess) and len(self.lists) < MAX_REMEMBERED:
            self.lists[guess] = items
        return items, pos

    def end_of_map(self, pos: int, depth: int) -> int:
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            raise _beyond_bounds(depth)
        count, pos = decode_varint(self.data, pos)
        if count == 0:
            return pos
        kinds = divmod(self.data[pos], 16)
        pos += 1
        if count > self.size - pos:
            raise ThriftError(f"{count} elements in {self.size - pos} bytes")
        for _ in range(count):
            for kind in kinds:
                pos = self.end_of(kind, pos, depth + 1)
        return pos


def _beyond_bounds(depth: int) -> ThriftError:
    if depth > MAX_DEPTH:
        return ThriftError(f"nested deeper than {MAX_DEPTH}")
    return ThriftError(f"more than {MAX_CONTAINERS} structs and lists")


def decode_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The unsigned number at `pos`, and where it ends. Raises `ThriftError`, IndexError where it is cut."""
    number = shift = 0
    while (byte := data[pos]) > 127:
        number += byte - 128 << shift
        pos += 1
        shift += 7
        if shift > 63:
            raise ThriftError("a number of more than 64 bits")
    number += byte << shift
    if number >> 64:
        raise ThriftError("a number of more than 64 bits")
    return number, pos + 1


# -- encoding -------------------------------------------------------------------------------------


def encode_struct(fields: Struct | bytes) -> bytes:
    """The struct in compact form, its fields in ascending order of their ids, whatever the dict's."""
    out = bytearray()
    _write_structs(out, (fields,), {}, {})
    return bytes(out)


# A field's key, its wire type, and its head after the field before it; of a boolean, by its value.
_Field = tuple[int, int, bytes, bytes]


def _in_order(keys: Iterable[int]) -> list[_Field]:
    """The fields of a struct as they are written."""
    fields, last = [], 0
    for key in sorted(keys):
        kind, field_id = key & 15, key >> 4
        heads = []
        for wire_type in (kind, FALSE if kind == BOOL else kind):
            head = bytearray((wire_type,))
            if 0 < field_id - last < 16:
                head[0] |= (field_id - last) << 4
            else:
                write_varint(head, field_id << 1)
            heads.append(bytes(head))
        fields.append((key, kind, heads[0], heads[1]))
        last = field_id
    return fields


def _write_structs(
    out: bytearray,
    structs: Iterable[Struct | bytes],
    lists: dict[int, bytes],
    orders: dict[tuple[int, ...], list[_Field]],
) -> None:
    """Appends them one after the other; `lists` has the bytes of short lists by identity, because decoding
    shares them, and `orders` the fields of structs by their keys, because most structs have the same."""
    for fields in structs:
        if isinstance(fields, bytes):
            out += fields
            continue
        keys = tuple(fields)
        order = orders.get(keys)
        if order is None:
            order = orders[keys] = _in_order(keys)
        for key, kind, head, otherwise in order:
            value = fields[key]
            # The shapes that make up nine tenths of a footer are encoded in line.
            if kind in INTEGERS:
                out += head
                number = value << 1 if value >= 0 else ~(value << 1)
                while number > 127:
                    out.append(number & 127 | 128)
                    number >>= 7
                out.append(number)
            elif kind == BOOL:
                out += head if value else otherwise
            else:
                out += head
                if kind == STRUCT:
                    if type(value) is bytes:
                        out += value
                    else:
                        _write_structs(out, (value,), lists, orders)
                elif kind == BINARY:
                    length = len(value)
                    if length < 128:
                        out.append(length)
                    else:
                        write_varint(out, length)
                    out += value
                elif kind == LIST:
                    known = lists.get(id(value))
                    if known is None:
                        _write_list(out, value, lists, orders)
                    else:
                        out += known
                else:
                    _write_rare(out, kind, value)
        out.append(0)


def _write_list(
    out: bytearray,
    value: Items,
    lists: dict[int, bytes],
    orders: dict[tuple[int, ...], list[_Field]],
) -> None:
    start = len(out)
    element, count = value.element, len(value)
    if count < 15:
        out.append(count << 4 | element)
    else:
        out.append(0xF0 | element)
        write_varint(out, count)
    if element == STRUCT:
        _write_structs(out, value, lists, orders)
    elif element in INTEGERS:
        for number in value:
            if 0 <= number < 64:
                out.append(number << 1)
            else:
                write_varint(out, zigzag(number))
    elif element == BINARY:
        for text in value:
            if len(text) < 128:
                out.append(len(text))
            else:
                write_varint(out, len(text))
            out += text
    else:
        for item in value:
            _write_rare(out, element, item)
    if count < MAX_SHARED_ITEMS:
        lists[id(value)] = bytes(out[start:])


def _write_rare(out: bytearray, kind: int, value: Any) -> None:
    """Appends what `_Reader.value` has read."""
    if kind in _BYTES_OF_ONE:
        out.append(value & 255)
    else:
        out += value


def zigzag(value: int) -> int:
    """An integer of any width as an unsigned number, small where the integer is near 0."""
    return value << 1 if value >= 0 else ~(value << 1)


def write_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)

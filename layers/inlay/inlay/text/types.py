"""Values as text and as JSON, into the types of a table, and types inferred from such values.

Promise: a value is taken exactly or refused at its row; nothing is cut or guessed, and nothing rounded
but fractions, and what has an exponent, to the nearest number of a float or double column. What
`inlay.text.written` writes is read back as the same value: dates and times in ISO form, decimals in full,
binary in hex, NaN and infinities by name, maps as lists of pairs. A time without a zone is UTC where the
column is an instant. What is inferred is the narrowest of bool, int64, double, date, time and timestamp
that takes every value; what a number would lose (00123, +41 of a phone's, more than 64 bits) stays text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.exact_json import named_once
from inlay.parquet.arrow.types import is_list
from inlay.text.refused import Misread

# A fraction's trailing zeros, which Arrow refuses where the unit is coarser than they are many.
_ZEROS = r"(\.[0-9]*?)0+([Zz]|[+-][0-9:]+)?$"
_POINT = r"\.([Zz]|[+-][0-9:]+)?$"
_ZONE = r"[0-9]([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_PLUS = r"^\+[0-9]*$"
_NUMBER = (
    r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:nan|inf|infinity)$"
)
_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_OTHER_DATE = (
    r"^([0-9]{4}[./][0-9]{1,2}[./][0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}"
    r"|[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4}|[0-9]{1,2}\.? [A-Za-z]{3,9}\.? [0-9]{4})([ T].*)?$"
)
_CLOCK = r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?$"
_MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_MOMENT += r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?$"

# By the bits of a floating type: digits of a whole number that it may round, and the number up to which it
# rounds none. 1e22 names no digits.
_LONG = {
    bits: rf"^[+-]?[0-9]{{{digits},}}(\.[0-9]*)?$" for bits, digits in ((16, 4), (32, 8), (64, 16))
}
_WHOLE = {16: 2**11, 32: 2**24, 64: 2**53}

# More than any type of a table holds.
_MAX_DIGITS = 100


def column_types(
    names: Sequence[str],
    schema: pa.Schema,
    infer: Callable[[Sequence[str]], tuple[list[tuple[str, pa.DataType]], int]],
) -> pa.Schema:
    """The types in which a file's columns are read: as in `schema`, those it lacks as inferred."""
    others = [name for name in names if name not in schema.names]
    inferred = dict(infer(others)[0]) if others else {}
    return pa.schema([(n, inferred[n] if n in inferred else schema.field(n).type) for n in names])


class _Rounded(Exception):
    """A whole number that a floating type does not hold."""


def plain_json() -> json.JSONDecoder:
    """Numbers exactly as they are written; a name twice in one object is an error."""
    return json.JSONDecoder(parse_float=Decimal, parse_int=_digits, object_pairs_hook=named_once)


def _digits(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
    return int(text)


# -- texts ----------------------------------------------------------------------------------------


def from_texts(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts (null: NULL) as an array of `kind`. An empty text is NULL where the type has no empty
    value. Raises Misread."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values.cast(kind)
    if pa.types.is_binary(kind):
        return from_json(values.to_pylist(), kind)
    values = pc.utf8_trim_whitespace(values)
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    if pa.types.is_nested(kind):
        return from_json([_loaded(row, text) for row, text in enumerate(values.to_pylist())], kind)
    if pa.types.is_fixed_size_binary(kind):
        return from_json(values.to_pylist(), kind)
    try:
        return _parsed(values, kind)
    except (pa.ArrowException, _Rounded) as error:
        why = "would be rounded as" if isinstance(error, _Rounded) else "is no"
        raise Misread(_first_bad(values, kind), f"{why} {kind}") from None


def _loaded(row: int, text: str | None) -> Any:
    try:
        return None if text is None else plain_json().decode(text)
    except ValueError:
        raise Misread(row, "is no JSON, in which nested values are written") from None


def _parsed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind):
        values = pc.replace_substring_regex(values, r"^\+|\.0+$", "")
        if pc.any(pc.match_substring_regex(values, "[xX]"), min_count=0).as_py():
            raise pa.ArrowInvalid("hexadecimal")
        return values.cast(kind)
    if pa.types.is_timestamp(kind):
        return _moments(values, kind)
    if pa.types.is_time(kind):
        # Arrow reads no times of day, but those of a date.
        whole = pc.binary_join_element_wise("1970-01-01T", values, "")
        moments = _moments(whole, pa.timestamp(kind.unit))
        bits = pa.int32() if kind.bit_width == 32 else pa.int64()
        return moments.cast(pa.int64()).cast(bits).cast(kind)
    if pa.types.is_floating(kind):
        parsed = values.cast(kind)
        large = pc.and_(
            pc.is_inf(parsed.cast(pa.float64())),
            pc.invert(pc.match_substring_regex(values, _INFINITE)),
        )
        if pc.any(large, min_count=0).as_py():
            raise pa.ArrowInvalid("too large")
        long = pc.indices_nonzero(
            pc.match_substring_regex(values, _LONG[kind.bit_width])
        ).to_pylist()
        if not all(_keeps(Decimal(values[row].as_py()), parsed[row]) for row in long):
            raise _Rounded
        return parsed
    return values.cast(kind)


def _keeps(written: Decimal, read: pa.Scalar) -> bool:
    """Whether a floating value is the whole number that was written, but for a fraction, or that is the
    value's shortest text: JavaScript writes 2 ** 64 as 18446744073709552000."""
    held = Decimal(read.as_py())
    return int(held) == int(written) or Decimal(read.cast(pa.string()).as_py()) == written


def _moments(values: pa.Array, kind: pa.TimestampType) -> pa.Array:
    values = pc.replace_substring_regex(values, _ZEROS, r"\1\2")
    values = pc.replace_substring_regex(values, _POINT, r"\1")
    if kind.tz is not None:
        dated = pc.match_substring_regex(values, _DATE)
        values = pc.if_else(dated, pc.binary_join_element_wise(values, "00:00:00", " "), values)
        zoned = pc.match_substring_regex(values, _ZONE)
        values = pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", ""))
    return values.cast(kind)


def _first_bad(values: pa.Array, kind: pa.DataType) -> int:
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parsed(values.slice(low, middle - low), kind)
            low = middle
        except (pa.ArrowException, _Rounded):
            high = middle
    return low


# -- values of JSON -------------------------------------------------------------------------------


def from_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What `plain_json` gives, as an array of `kind`. Raises Misread."""
    if is_list(kind):
        return _lists(values, kind)
    if pa.types.is_map(kind):
        return _maps(values, kind)
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    take = next((take for test, take in _TAKERS if test(kind)), None)
    if take is None:  # dates and times
        return from_texts(texts_of_json(values, kind), kind)
    taken = _taken(values, take, kind)
    try:
        made = pa.array(taken, kind)
        if pa.types.is_floating(kind):
            infinite = pc.is_inf(made.cast(pa.float64()))
            for row in pc.indices_nonzero(infinite).to_pylist():
                if not isinstance(values[row], float | str):
                    raise Misread(row, f"does not fit {kind}")
            for row, value in enumerate(values):
                if _is_long(value, _WHOLE[kind.bit_width]) and not _keeps(
                    Decimal(value), made[row]
                ):
                    raise Misread(row, f"would be rounded as {kind}")
        return made
    except (pa.ArrowException, OverflowError):
        bad = (row for row, value in enumerate(taken) if not _fits(value, kind))
        raise Misread(next(bad, 0), f"does not fit {kind}") from None


def texts_of_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values that stand for some of `kind`, all of them texts. Raises Misread."""
    return pa.array(_taken(values, _text, kind), pa.string())


def _is_long(value: Any, whole: int) -> bool:
    """Whether all digits of a number beyond `whole` are written."""
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return isinstance(exponent, int) and exponent <= 0 and abs(value) > whole
    return isinstance(value, int) and abs(value) > whole


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _taken(values: Sequence[Any], take: Callable[[Any], Any], kind: pa.DataType) -> list[Any]:
    taken: list[Any] = []
    for value in values:
        try:
            taken.append(None if value is None else take(value))
        except (ValueError, InvalidOperation, OverflowError):
            raise Misread(len(taken), f"is no {kind}") from None
    return taken


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    raise ValueError


def _floating(value: Any) -> float:
    named = value in ("NaN", "Infinity", "-Infinity")
    if named or (isinstance(value, int | float | Decimal) and not isinstance(value, bool)):
        return float(value)
    raise ValueError


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    raise ValueError


def _octets(value: Any) -> bytes:
    return bytes.fromhex(_text(value))


_TAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_boolean, _flag),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_binary, _octets),
    (pa.types.is_fixed_size_binary, _octets),
)


def _within(rows: Sequence[int], values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The parts of nested values; `rows` are the values that they are parts of."""
    try:
        return from_json(values, kind)
    except Misread as error:
        raise Misread(rows[error.row], f"has within it what {error.what}") from None


def _lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    rows: list[int] = []
    parts: list[Any] = []
    offsets: list[int | None] = []
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, list):
            raise Misread(row, "is not a list")
        offsets.append(None if value is None else len(parts))
        parts += value or []
        rows += [row] * len(value or [])
    made = pa.ListArray.from_arrays(
        pa.array([*offsets, len(parts)], pa.int32()), _within(rows, parts, kind.value_type)
    )
    return made.cast(pa.list_(kind.value_field)).cast(kind)


def _maps(values: Sequence[Any], kind: pa.MapType) -> pa.Array:
    """From lists of pairs; also from objects, whose names are the keys."""
    listed = [list(map(list, v.items())) if isinstance(v, Mapping) else v for v in values]
    for row, value in enumerate(listed):
        pairs = value is None or (
            isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value)
        )
        if not pairs:
            raise Misread(row, "is not a map: a list of pairs, or an object")
    rows = [row for row, value in enumerate(listed) for _ in value or ()]
    keys = _within(rows, [pair[0] for value in listed for pair in value or ()], kind.key_type)
    items = _within(rows, [pair[1] for value in listed for pair in value or ()], kind.item_type)
    if keys.null_count:
        raise Misread(rows[pc.index(keys.is_null(), True).as_py()], "has a map key that is NULL")
    offsets, at = [], 0
    for value in listed:
        offsets.append(None if value is None else at)
        at += len(value or ())
    return pa.MapArray.from_arrays(pa.array([*offsets, at], pa.int32()), keys, items, kind)


def _structs(values: Sequence[Any], kind: pa.StructType) -> pa.Array:
    names = {kind.field(n).name for n in range(kind.num_fields)}
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, dict):
            raise Misread(row, "is not an object")
        unknown = sorted(set(value or ()) - names)
        if unknown:
            raise Misread(row, f"has a field {unknown[0][:80]!r} that the table lacks")
    rows = list(range(len(values)))
    fields = [kind.field(n) for n in range(kind.num_fields)]
    children = [
        _within(rows, [None if v is None else v.get(f.name) for v in values], f.type)
        for f in fields
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


# -- types inferred from values -----------------------------------------------------------------------


def are_other_dates(values: pa.ChunkedArray) -> bool:
    """Whether these texts are dates in another form than ISO's: nothing says which number is the month."""
    texts = pc.utf8_trim_whitespace(values)
    texts = texts.filter(pc.and_(pc.is_valid(texts), pc.not_equal(texts, "")))
    return len(texts) > 0 and _all(pc.match_substring_regex(texts, _OTHER_DATE))


def type_of_texts(values: pa.ChunkedArray) -> pa.DataType:
    """The narrowest type that takes every text."""
    texts = pc.utf8_trim_whitespace(values)
    texts = texts.filter(pc.and_(pc.is_valid(texts), pc.not_equal(texts, "")))
    if not len(texts):
        return pa.string()
    if _all(pc.is_in(pc.utf8_lower(texts), value_set=pa.array(["true", "false"]))):
        return pa.bool_()
    if _all(pc.match_substring_regex(texts, _INTEGER)):
        return pa.int64() if _takes(texts, pa.int64()) else pa.string()
    if pc.any(pc.match_substring_regex(texts, _PLUS)).as_py():
        return pa.string()
    if _all(pc.match_substring_regex(texts, _NUMBER)):
        return pa.float64() if _takes(texts, pa.float64()) else pa.string()
    return _temporal_type(texts)


def _temporal_type(texts: pa.ChunkedArray) -> pa.DataType:
    if _all(pc.match_substring_regex(texts, _DATE)):
        return pa.date32() if _takes(texts, pa.date32()) else pa.string()
    if _all(pc.match_substring_regex(texts, _CLOCK)):
        return next(
            (k for k in (pa.time64("us"), pa.time64("ns")) if _takes(texts, k)), pa.string()
        )
    dated = pc.match_substring_regex(texts, _DATE)
    if _all(pc.or_(pc.match_substring_regex(texts, _MOMENT), dated)):
        zoned = pc.and_(pc.match_substring_regex(texts, _ZONE), pc.invert(dated))
        zone = "UTC" if _all(zoned) else None
        kinds = [pa.timestamp(unit, zone) for unit in ("us", "ns")]
        if zone is not None or not pc.any(zoned).as_py():
            return next((kind for kind in kinds if _takes(texts, kind)), pa.string())
    return pa.string()


def _all(test: pa.ChunkedArray) -> bool:
    return bool(pc.all(test).as_py())


def _takes(texts: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        for chunk in texts.chunks:
            from_texts(chunk, kind)
    except Misread:
        return False
    return True


def type_of_json(values: Iterable[Any]) -> pa.DataType:
    """The narrowest type that takes every value; None is NULL. Raises ValueError for values of no common
    type."""
    present = [value for value in values if value is not None]
    kinds = {_KINDS.get(type(value)) for value in present}
    if kinds <= {"number", "integer"} and kinds:
        if kinds == {"integer"}:
            if all(-(2**63) <= value < 2**63 for value in present):
                return pa.int64()
            if all(abs(value) < 10**38 for value in present):
                return pa.decimal128(38, 0)
            raise ValueError("whole numbers of more than 38 digits")
        try:
            from_json(present, pa.float64())
        except Misread as error:
            raise ValueError(f"a number {error.what}") from None
        return pa.float64()
    match sorted(map(str, kinds)):
        case []:
            return pa.string()
        case ["boolean"]:
            return pa.bool_()
        case ["text"]:
            return _temporal_type(pa.chunked_array([pa.array(present, pa.string())]))
        case ["list"]:
            return pa.list_(type_of_json(part for value in present for part in value))
        case ["object"]:
            names = dict.fromkeys(name for value in present for name in value)
            if not names:
                raise ValueError("objects without a field")
            return pa.struct(
                [(name, type_of_json(value.get(name) for value in present)) for name in names]
            )
        case _:
            raise ValueError(f"values of several kinds: {', '.join(sorted(map(str, kinds)))}")


_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    Decimal: "number",
    str: "text",
    list: "list",
    dict: "object",
}

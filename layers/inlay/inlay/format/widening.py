"""Type widening: which types hold every value of which others.

Promise: where `widens` is true, a cast loses nothing and preserves the order of values. The rule applies to
ingested files, widened columns, old files read under a newer schema, and assignments between columns.
"""

from __future__ import annotations

from inlay.format.schema import Primitive, Value
from inlay.format.values import NANOS_PER_DAY, NANOS_PER_UNIT, integer_range, scaled

_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_UNITS = ("s", "ms", "us", "ns")


def widens(source: Primitive, target: Primitive) -> bool:
    """Whether every value of `source` is also a value of `target`.

    One case is left to the cast: a finer timestamp unit covers fewer years (`covered_range`).
    """
    if source == target:
        return True
    if target.name in _SIGNED:
        bits = _SIGNED.get(source.name) or _UNSIGNED.get(source.name, 64) + 1
        return bits <= _SIGNED[target.name]
    if target.name in _UNSIGNED:
        return _UNSIGNED.get(source.name, 65) <= _UNSIGNED[target.name]
    if target.name == "decimal" and source.name == "decimal":
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    if target.unit and source.name == target.name:
        return _UNITS.index(source.unit) <= _UNITS.index(target.unit)
    pair = (source.name, target.name)
    return pair in (("float", "double"), ("fixed", "binary"), ("date", "timestamp"))


def nanos_per_step(kind: Primitive) -> int:
    """Nanoseconds that 1 stands for in the physical form of a temporal type."""
    return NANOS_PER_DAY if kind.name == "date" else NANOS_PER_UNIT[kind.unit]


def widened(value: Value, source: Primitive, target: Primitive) -> Value:
    """A value of `source` in the physical form of `target`, where `widens(source, target)`.

    >>> widened(1, Primitive("date"), Primitive("timestamp", unit="ms"))
    86400000
    """
    if source == target:
        return value
    if source.is_temporal and isinstance(value, int):
        return value * nanos_per_step(source) // nanos_per_step(target)
    if target.name == "decimal" and not isinstance(value, bool | int | float | str | bytes):
        found = scaled(value, target.scale)
        return value if found is None else found
    return value


def covered_range(source: Primitive, target: Primitive) -> tuple[int, int] | None:
    """The least and the greatest value of `source` that `target` has, where the target covers fewer
    years; None where it has all values of `source`.

    >>> covered_range(Primitive("date"), Primitive("timestamp", unit="ns"))
    (-106751, 106751)
    >>> covered_range(Primitive("date"), Primitive("timestamp", unit="ms")) is None
    True
    """
    if not source.is_temporal or source == target:
        return None
    least, greatest = integer_range(source) or (0, 0)
    low, high = integer_range(target) or (0, 0)
    steps = nanos_per_step(source) // nanos_per_step(target)
    found = max(least, -(-low // steps)), min(greatest, high // steps)
    return None if found == (least, greatest) else found

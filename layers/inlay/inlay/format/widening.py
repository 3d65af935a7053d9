"""Which types hold every value of which others.

Promise: where `widens` says yes, a cast loses nothing and changes no value's order. It is the rule for
files at the door, for reading old files under a newer schema, and for one column assigned to another.
"""

from __future__ import annotations

from inlay.format.schema import Primitive

_SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_UNITS = ("s", "ms", "us", "ns")


def widens(source: Primitive, target: Primitive) -> bool:
    """Whether every value of `source` is also a value of `target`.

    One case is left to the cast: a finer timestamp unit reaches fewer years.
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
    return (source.name, target.name) in (("float", "double"), ("fixed", "binary"))

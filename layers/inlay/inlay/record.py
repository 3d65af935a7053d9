"""Records: values that are compared, hashed and shown by their fields, and never change.

A `Record` is what `@dataclass(frozen=True, slots=True)` makes, and `dataclasses.fields`, `asdict` and
`replace` take it for one. It is made by msgspec: the class in 9 µs instead of 360, and a process makes two
hundred before its first answer; an instance in an eighth of the time. `dict=True` where a property is
cached. `Mutable` is made likewise, and its fields may be set, as with `@dataclass(slots=True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec import NODEFAULT, Struct, field, structs

if TYPE_CHECKING:
    # Of this one, type checkers know which names and types it takes for each class.
    from dataclasses import replace
    from typing import dataclass_transform

    class _Fields:
        __struct_fields__: ClassVar[tuple[str, ...]]
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init_subclass__(
            cls, *, kw_only: bool = False, order: bool = False, eq: bool = True, dict: bool = False
        ) -> None: ...

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    class Record(_Fields): ...

    @dataclass_transform(field_specifiers=(field,))
    class Mutable(_Fields): ...

else:
    replace = structs.replace

    class _DataclassFields:
        """By these other libraries know a dataclass."""

        def __get__(self, _: object, owner: type) -> dict[str, Any]:
            return _dataclass_fields(owner)

    known = _DataclassFields()

    class Mutable(Struct):
        __dataclass_fields__ = known

    class Record(Struct, frozen=True):
        __dataclass_fields__ = known


# Sets a field of a record that nobody has seen yet, or that only keeps what follows from others.
set_anyway: Callable[[Any, str, Any], None] = structs.force_setattr

# The default of a field that is set once the others are.
LATER: Any = None

__all__ = ["LATER", "Mutable", "Record", "aside", "field", "replace", "secret", "set_anyway"]

_Class = TypeVar("_Class", bound=type)


def aside(*names: str) -> Callable[[_Class], _Class]:
    """A class whose fields `names` are no part of what makes two instances equal, nor of their text."""

    def with_others(record: Any) -> Any:
        compared = attrgetter(*(name for name in record.__struct_fields__ if name not in names))

        def equals(self: Any, other: object) -> bool:
            return compared(self) == compared(other) if type(other) is record else NotImplemented

        record.__eq__ = equals
        record.__hash__ = lambda self: hash(compared(self))
        return secret(*names)(record)

    return with_others


def secret(*names: str) -> Callable[[_Class], _Class]:
    """A class whose fields `names` are no part of the text of an instance."""

    def without(record: Any) -> Any:
        shown = [name for name in record.__struct_fields__ if name not in names]

        def text(self: Any) -> str:
            return f"{record.__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"

        if "__repr__" not in record.__dict__:
            record.__repr__ = text
        return record

    return without


@cache
def _dataclass_fields(record: Any) -> dict[str, Any]:
    from dataclasses import field, make_dataclass

    names, defaults = record.__struct_fields__, record.__struct_defaults__
    given = [NODEFAULT] * (len(names) - len(defaults)) + list(defaults)
    options = [
        {}
        if default is NODEFAULT
        else {"default_factory": default.factory}
        if hasattr(default, "factory")
        else {"default": default}
        for default in given
    ]
    members = [(n, Any, field(kw_only=True, **o)) for n, o in zip(names, options, strict=True)]
    same: Any = make_dataclass(record.__name__, members)
    return same.__dataclass_fields__  # type: ignore[no-any-return]

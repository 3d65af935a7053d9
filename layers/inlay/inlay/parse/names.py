"""Names to fields, as users write them.

Promise: an exact match wins; an unquoted name also matches in another case if exactly one column does; a
quoted name never does. A path goes through structs only. The error for an unknown name lists similar names.
"""

from __future__ import annotations

from difflib import get_close_matches

from inlay.errors import InvalidPredicate
from inlay.format.schema import Field, Schema, Struct
from inlay.parse.grammar import KEYWORDS
from inlay.parse.syntax import Name

_SHOWN = 8  # names listed in an error


def resolve(name: Name, schema: Schema, text: str, *, or_text: bool = False) -> Field:
    """The field that a name refers to. Raises InvalidPredicate, pointing at it; `or_text`: where a text
    could stand as well, it says how one is written."""
    fields, found = schema.fields, None
    for depth, (part, quoted) in enumerate(name.parts):
        found = _pick(fields, part, quoted, name, text)
        if found is None:
            break
        if isinstance(found.type, Struct):
            fields = found.type.fields
        elif depth + 1 < len(name.parts):
            raise _error(name, text, f"column {part!r} is not a struct: it has no fields to name")
    if found is not None:
        return found
    whole = schema.column(_spelled(name))  # a column whose own name contains dots
    if whole is not None:
        return whole
    raise _error(
        name, text, f"there is no column {_spelled(name)[:80]!r}", _near(name, schema, or_text)
    )


def _pick(
    fields: tuple[Field, ...], part: str, quoted: bool, name: Name, text: str
) -> Field | None:
    exact = next((f for f in fields if f.name == part), None)
    if exact is not None or quoted:
        return exact
    alike = [f for f in fields if f.name.casefold() == part.casefold()]
    if len(alike) > 1:
        names = ", ".join(f'"{f.name}"' for f in alike[:_SHOWN])
        raise _error(
            name, text, f"{part!r} is ambiguous: {names}", "Write the exact name in quotes"
        )
    return alike[0] if alike else None


def _near(name: Name, schema: Schema, or_text: bool) -> str:
    paths = {".".join(path).casefold(): path for path, _ in schema.walk()}
    near = get_close_matches(_spelled(name).casefold()[:80], paths, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(quote_path(paths[found]) for found in near)}?"
    names = schema.names
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    quotes = "; a text is in single quotes" if or_text else ""
    return f"Columns are {', '.join(names[:_SHOWN])}{more}{quotes}"


def _spelled(name: Name) -> str:
    return ".".join(part for part, _ in name.parts)


def _error(name: Name, text: str, message: str, next_step: str = "") -> InvalidPredicate:
    return InvalidPredicate(message, text=text, position=name.at, next_step=next_step)


def quote_path(path: tuple[str, ...]) -> str:
    """A path in the form that `resolve` reads."""
    return ".".join(_quote(part) for part in path)


def _quote(part: str) -> str:
    plain = part.isidentifier() and part.isascii() and part.upper() not in KEYWORDS
    return part if plain else '"' + part.replace('"', '""') + '"'

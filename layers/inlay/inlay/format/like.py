"""LIKE patterns: one definition of what they mean, for every evaluator.

Promise: `parse_like` is the only reader of the pattern text; matching in Arrow, in Python and by
statistics starts from its tokens. `%` is any run of code points, newlines included, `_` any one code
point, and `\\` makes the next character an ordinary one.
"""

from __future__ import annotations

import re
from enum import Enum

from inlay.errors import InvalidPredicate


class Wildcard(Enum):
    ANY_RUN = "%"
    ANY_ONE = "_"


Token = str | Wildcard


def parse_like(pattern: str) -> tuple[Token, ...]:
    """Runs of literal text and wildcards; adjacent `%` are merged, adjacent text is one string.

    Raises InvalidPredicate for a pattern that ends in an unpaired backslash.

    >>> parse_like("50\\\\%%")
    ('50%', <Wildcard.ANY_RUN: '%'>)
    """
    tokens: list[Token] = []
    text: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            quoted = next(characters, None)
            if quoted is None:
                raise InvalidPredicate(
                    "a LIKE pattern ends in a backslash that escapes nothing",
                    next_step=r"Write \\ for a backslash",
                )
            text.append(quoted)
        elif character in "%_":
            if text:
                tokens.append("".join(text))
                text.clear()
            wildcard = Wildcard(character)
            if not (wildcard is Wildcard.ANY_RUN and tokens and tokens[-1] is wildcard):
                tokens.append(wildcard)
        else:
            text.append(character)
    if text:
        tokens.append("".join(text))
    return tuple(tokens)


def quote_like(text: str) -> str:
    """A pattern that matches exactly `text`."""
    return re.sub(r"([%_\\])", r"\\\1", text)


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The text that every match starts with, and whether every string with that prefix matches.

    >>> like_prefix("ab%"), like_prefix("ab_%"), like_prefix("%")
    (('ab', True), ('ab', False), ('', True))
    """
    tokens = parse_like(pattern)
    prefix = tokens[0] if tokens and isinstance(tokens[0], str) else ""
    rest = tokens[1:] if prefix else tokens
    return prefix, rest == (Wildcard.ANY_RUN,)


def like_exact(pattern: str) -> str | None:
    """The only string that a pattern without wildcards matches, else None."""
    tokens = parse_like(pattern)
    if not tokens:
        return ""
    return tokens[0] if len(tokens) == 1 and isinstance(tokens[0], str) else None


def like_re2(pattern: str) -> str:
    """The pattern as an anchored regular expression for RE2, Arrow's engine: linear in the text."""
    parts = [r"(?s)\A"]
    for token in parse_like(pattern):
        if isinstance(token, str):
            # Only ASCII punctuation is escaped: RE2 refuses a backslash before most others.
            parts.append(re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", token))
        else:
            parts.append("." if token is Wildcard.ANY_ONE else ".*")
    return "".join([*parts, r"\z"])


def like_matches(pattern: str, text: str) -> bool:
    """Whether one string matches, for patterns too large for RE2. At most len(pattern) * len(text)
    steps, because only the latest `%` is ever backtracked to."""
    wanted: list[Token] = []
    for part in parse_like(pattern):
        wanted.extend(part if isinstance(part, str) else (part,))
    at = done = 0
    last_run: tuple[int, int] | None = None  # (index after the latest %, text consumed)
    while done < len(text):
        token: Token | None = wanted[at] if at < len(wanted) else None
        if token is Wildcard.ANY_RUN:
            at, last_run = at + 1, (at + 1, done)
        elif token is Wildcard.ANY_ONE or token == text[done]:
            at, done = at + 1, done + 1
        elif last_run is not None:
            last_run = (last_run[0], last_run[1] + 1)
            at, done = last_run
        else:
            return False
    return all(left is Wildcard.ANY_RUN for left in wanted[at:])

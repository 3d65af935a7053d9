"""From JSON to typed models, with errors that never repeat the input.

Promise: nothing in a message is dropped or rounded on the way: a field that occurs twice, and a number with
more digits than a double holds, are refused, because half of such a request would be carried out.
An invalid message is an `InvalidRequest` that names the fields and what is wrong with them. The
sender's text stays out, including names of unknown fields: what a delete names is personal data, wherever
in the text it is. A table's name that passes is one folder below the tables' prefix, and cannot name
anything outside of it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeVar

from aws_lambda_powertools.utilities.parser import BaseModel, ValidationError

from inlay.engine import decode_json
from inlay.errors import (
    InlayError,
    InvalidPredicate,
    InvalidRequest,
    NewerMessage,
    RequestReused,
)

# How a delete that is asked for is carried out.
Mode = Literal["tombstone", "vector", "surgery", "rewrite", "erase"]

Model = TypeVar("Model", bound=BaseModel)

# A message may be a megabyte of mistakes.
_MAX_PROBLEMS = 5
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# A key is at most 1,024 bytes; the table's name is a part of every key of the table.
_MAX_TABLE = 128


def check_table_name(name: str) -> str:
    """`name`, if it is a valid table name. Raises `InvalidRequest`."""
    good = _TABLE.fullmatch(name) and ".." not in name and len(name) <= _MAX_TABLE
    if not good:
        raise InvalidRequest(
            "this is not a valid table name",
            next_step="Use letters, digits, '_', '-' and single dots, beginning with a letter, "
            f"digit or '_', at most {_MAX_TABLE}",
        )
    return name


def parse_json(text: str) -> Any:
    """The value of a message. Raises `InvalidRequest`."""
    try:
        return decode_json(text)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f" (at character {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequest(
            f"the message is not JSON{where}", next_step="Send one JSON object"
        ) from None
    except ValueError as error:
        raise InvalidRequest(
            f"the message is not taken: {error}",
            next_step="Send each request in a message of its own, with each field once",
        ) from None


# Of the messages in the queues: it grows with a field that an older function would not heed. Such a
# message says so (`"v": 2`); one that says nothing is of version 1.
MESSAGE_VERSION = 1


def has_field(text: str, name: str) -> bool:
    """Whether the message is an object with this field. Raises `InvalidRequest`."""
    body = parse_json(text)
    return isinstance(body, dict) and name in body


def read(model: type[Model], text: str) -> Model:
    """The message of a queue, as what it should be. Raises `InvalidRequest`; `NewerMessage`, which is
    retried, for one of a later version: during an upgrade functions of both run, and its fields are no
    mistakes."""
    body = parse_json(text)
    if isinstance(body, dict) and "v" in body:
        version = body.pop("v")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidRequest(
                "v, the version of the message, is not a whole number from 1",
                next_step="Leave it out",
            )
        if version > MESSAGE_VERSION:
            raise NewerMessage(
                f"the message is of version {version}, and this function knows {MESSAGE_VERSION}"
            )
    return validated(model, body)


def validated(model: type[Model], body: Any) -> Model:
    try:
        # JSON's escapes can write half a surrogate pair, which no service accepts back.
        json.dumps(body, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest("a text of the message is not Unicode") from None
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        known = _field_names(model)
        said = "; ".join(
            f"{_place(problem['loc'], known)}: {problem['msg']}"
            for problem in problems[:_MAX_PROBLEMS]
        )
        raise InvalidRequest(
            f"the message does not fit: {said}",
            next_step=f"The fields there are: {', '.join(sorted(model.model_fields))}",
        ) from None


def _place(loc: tuple[int | str, ...], known: frozenset[str]) -> str:
    """The place of a problem, as far as the path consists of Inlay's fields and of indexes. The rest may be
    a name that the sender chose."""
    path: list[str] = []
    for part in loc:
        if isinstance(part, str) and part not in known:
            break
        path.append(str(part))
    if len(path) == len(loc):
        return ".".join(path) or "the message"
    return f"within {'.'.join(path)}" if path else "a field that is not known"


def _field_names(model: type[BaseModel]) -> frozenset[str]:
    """The field names of a model and of those inside it."""
    names: set[str] = set()
    waiting: list[Any] = [model]
    while waiting:
        kind = waiting.pop()
        waiting += getattr(kind, "__args__", ())
        for name, field in getattr(kind, "model_fields", {}).items():
            names |= {name, field.alias or name}
            waiting.append(field.annotation)
    return frozenset(names)


def without_values(error: InlayError) -> InlayError:
    """The error as logs and dead letters may contain it. A request's id, and the text that a predicate's
    parser quotes, may name a person: of the text only the position is kept."""
    if isinstance(error, RequestReused):
        return RequestReused(
            "the request's id was used before, with another content", table=error.table
        )
    if not isinstance(error, InvalidPredicate) or error.is_plain:
        return error
    place = "" if error.position is None else f", at character {error.position + 1}"
    return InvalidPredicate(
        f"the condition does not parse, or does not fit the table's columns{place}",
        next_step="Try it where its words may be shown: `inlay delete TABLE --where … --explain`",
        table=error.table,
    )

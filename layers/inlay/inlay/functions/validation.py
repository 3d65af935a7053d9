"""From JSON to typed models, with errors that never repeat the input.

Promise: a message that does not fit is an `InvalidRequest` that names the fields and what is wrong
with them. Values stay out: what a delete names is a person's data.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from aws_lambda_powertools.utilities.parser import BaseModel, ValidationError

from inlay.errors import InvalidRequest

Model = TypeVar("Model", bound=BaseModel)

# A message may be a megabyte of mistakes.
_MAX_PROBLEMS = 5


def parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (at character {error.pos})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequest(
            f"the message is not JSON{where}", next_step="Send one JSON object"
        ) from None


def validated(model: type[Model], body: Any) -> Model:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        said = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the message'}: {problem['msg']}"
            for problem in problems[:_MAX_PROBLEMS]
        )
        raise InvalidRequest(f"the message does not fit: {said}") from None

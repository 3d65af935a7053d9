"""S3's news of swapped pointers: which tables have a new version.

Promise: a notification of the bucket gives the names of the tables under `tables/` whose pointer it is
about; news of anything else, and S3's test of a queue, gives none. What is no news of S3's is refused.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_plus

from inlay.errors import InvalidRequest
from inlay.format.keys import POINTER
from inlay.functions.validation import parse_json

_POINTER = re.compile(rf"(?:.*/)?tables/(?P<table>[^/]+)/{re.escape(POINTER)}")


def swapped_tables(text: str) -> list[str]:
    """Table names, each once. Raises `InvalidRequest`.

    >>> swapped_tables('{"Records": [{"s3": {"object": {"key": "tables/people/_latest_manifest"}}}]}')
    ['people']
    """
    found: Any = parse_json(text)
    if isinstance(found, dict) and found.get("Event") == "s3:TestEvent":
        return []
    try:
        keys = [unquote_plus(record["s3"]["object"]["key"]) for record in found["Records"]]
    except (KeyError, TypeError):
        raise InvalidRequest("a message is no notification of S3") from None
    matches = [_POINTER.fullmatch(key) for key in keys]
    return list(dict.fromkeys(match["table"] for match in matches if match is not None))

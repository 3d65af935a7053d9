"""S3 event notifications of swapped pointers: which tables have a new version.

Promise: a notification of the bucket gives the names of the tables under `tables/` whose pointer it names;
other objects, and S3's test event, give none. What is not an S3 notification is refused.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

from inlay.errors import InvalidRequest
from inlay.format.keys import POINTER
from inlay.functions.table_names import check_table_name


def swapped_tables(found: Any, *, bucket: str, tables: str) -> list[str]:
    """Table names, each once, of the pointers under `tables` (a prefix of keys) in a notification. Raises
    `InvalidRequest`, also for another bucket's: its tables are not this deployment's, even under the same
    names."""
    if isinstance(found, dict) and found.get("Event") == "s3:TestEvent":
        return []
    try:
        records = [r for r in found["Records"] if r["eventSource"] == "aws:s3"]
        objects = [
            (r["s3"]["bucket"]["name"], unquote_plus(r["s3"]["object"]["key"])) for r in records
        ]
        if not records or len(records) < len(found["Records"]):
            raise KeyError
    except (KeyError, TypeError, AttributeError):
        raise InvalidRequest("a message is not an S3 notification") from None
    if any(name != bucket for name, _ in objects):
        raise InvalidRequest("the pointer is in a bucket that is not this deployment's")
    keys = [key.removeprefix(tables) for _, key in objects if key.startswith(tables)]
    named = [key.removesuffix(f"/{POINTER}") for key in keys if key.endswith(f"/{POINTER}")]
    return [check_table_name(name) for name in dict.fromkeys(named) if "/" not in name]

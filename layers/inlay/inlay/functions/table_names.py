"""Names of tables, as messages and keys of objects give them.

Promise: what passes is one folder below the tables' prefix, and cannot name anything outside of it.
"""

from __future__ import annotations

import re

from inlay.errors import InvalidRequest

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

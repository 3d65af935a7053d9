"""Arrow's messages, as an error of the library may repeat them.

Promise: no value of a row is in it. Arrow quotes what it cannot convert, store or read, and such errors go
into logs and dead letters; numbers and quoted texts are left out, whatever they are.
"""

from __future__ import annotations

import re

# Numbers that are not part of a name (int64) or a place (#2).
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|(?<![A-Za-z_\d#])[+-]?\d[\d.,:eE+-]*")
_MAX = 200


def words_of(error: BaseException) -> str:
    """The first line of what an error says, without values.

    >>> words_of(ValueError("Casting to timestamp[ns] would be out of bounds: -377705116800\\n-- stack"))
    'Casting to timestamp[ns] would be out of bounds: …'
    >>> words_of(ValueError("Failed to parse string: 'Ada L.' as a scalar of type int64"))
    'Failed to parse string: … as a scalar of type int64'
    >>> words_of(ValueError())
    'ValueError'
    """
    first = (str(error).splitlines() or [""])[0]
    return _VALUES.sub("…", first)[:_MAX] or type(error).__name__

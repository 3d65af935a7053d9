"""What bounds promise to a search for the first rows of an order.

Promise: where bounds are exact and no row is gone, at least `limit` rows are as good as the value returned.
It is a guess where they are not: whoever counts the rows that are as good knows whether it held.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inlay.format.entry import ColumnStats
from inlay.format.schema import Value
from inlay.format.values import order_key


def promised(
    spans: Iterable[tuple[ColumnStats, int]], limit: int, *, descending: bool
) -> Value | None:
    """The best value that `limit` rows of `spans` (what is known of some rows, and how many these are) are
    as good as: of each span one row at its better bound, and all that have a value at the other.

    >>> pages = [ColumnStats(0, 90, 0), ColumnStats(5, 80, 0), ColumnStats(85, 99, 0)]
    >>> promised([(page, 3) for page in pages], 2, descending=True)
    90
    >>> promised([(page, 3) for page in pages], 4, descending=True)
    85
    """
    rows_at: list[tuple[Any, Value, int]] = []
    for known, rows in spans:
        better, worse = known.upper, known.lower
        if not descending:
            better, worse = worse, better
        if better is None or worse is None or not known.exact:
            continue
        others = rows - 1 - (rows if known.null_count is None else known.null_count)
        if not descending and known.has_nan is not False:
            others = 0  # NaN is after every bound
        rows_at.append((order_key(better), better, 1))
        rows_at.append((order_key(worse), worse, max(0, others)))
    rows_at.sort(key=lambda each: each[0], reverse=descending)
    counted = 0
    for _, value, rows in rows_at:
        counted += rows
        if counted >= limit:
            return value
    return None


def may_be_as_good(known: ColumnStats, value: Value, *, descending: bool) -> bool:
    """Whether a row of which that is known may be as good as `value`."""
    if descending:
        most = known.upper
        return most is None or known.has_nan is not False or order_key(most) >= order_key(value)
    return known.lower is None or bool(order_key(known.lower) <= order_key(value))

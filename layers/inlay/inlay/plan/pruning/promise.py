"""What bounds promise to a search for the first rows of an order.

Promise: where bounds are exact and no row is gone, at least `limit` rows are as good as what is returned.
It is a guess where they are not: whoever counts the rows that are as good knows whether it held.
"""

from __future__ import annotations

from collections.abc import Iterable

from inlay.format.entry import ColumnStats
from inlay.format.schema import Value
from inlay.format.values import order_key


def promised(
    spans: Iterable[tuple[ColumnStats, int, int]], limit: int, *, descending: bool
) -> tuple[Value, int] | None:
    """The best value that `limit` rows of `spans` are better than, or equal to and in a span up to the one
    of that ordinal. A span is what is known of some rows, how many these are, and its ordinal, ascending;
    of each one row is at its better bound, and all that have a value are at the other.

    >>> pages = [ColumnStats(0, 90, 0), ColumnStats(5, 80, 0), ColumnStats(85, 99, 0)]
    >>> spans = [(page, 3, n) for n, page in enumerate(pages)]
    >>> promised(spans, 2, descending=True)
    (90, 0)
    >>> promised(spans, 4, descending=True)
    (85, 2)
    """
    rows_at: list[tuple[Value, int, int]] = []
    for known, rows, ordinal in spans:
        better, worse = known.upper, known.lower
        if not descending:
            better, worse = worse, better
        if better is None or worse is None or not known.exact:
            continue
        others = rows - 1 - (rows if known.null_count is None else known.null_count)
        if not descending and known.has_nan is not False:
            others = 0  # NaN is after every bound
        rows_at += [(better, 1, ordinal), (worse, max(0, others), ordinal)]
    # Equal ones stay in their order.
    rows_at.sort(key=lambda at: order_key(at[0]), reverse=descending)
    counted = 0
    for value, rows, ordinal in rows_at:
        counted += rows
        if counted >= limit:
            return value, ordinal
    return None


def may_be_as_good(
    known: ColumnStats, value: Value, *, descending: bool, better: bool = False
) -> bool:
    """Whether a row of which that is known may be as good as `value`, or `better`."""
    bound = known.upper if descending else known.lower
    if bound is None or (descending and known.has_nan is not False):
        return True
    high, low = order_key(bound), order_key(value)
    if not descending:
        high, low = low, high
    return bool(high > low or (high == low and not better))

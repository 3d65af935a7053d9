"""What bounds promise of the first rows: against rows written out one by one, and against real ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.entry import ColumnStats
from inlay.format.values import is_nan, order_key
from inlay.plan.pruning.promise import may_be_as_good, promised

Span = tuple[ColumnStats, int, int]


def by_rows(
    spans: Sequence[Span], limit: int, *, descending: bool
) -> tuple[float | int, int] | None:
    """Of each span one row at its better bound, and the others with a value at its worse one."""
    rows = []
    for known, count, ordinal in spans:
        if known.lower is None or known.upper is None or not known.exact:
            continue
        better, worse = (known.upper, known.lower) if descending else (known.lower, known.upper)
        with_value = 1 if known.null_count is None else count - known.null_count
        if not descending and known.has_nan is not False:
            with_value = 1  # the others may be NaN, which comes after all
        rows += [(better, ordinal)] + [(worse, ordinal)] * (with_value - 1)
    sign = -1 if descending else 1
    rows.sort(key=lambda row: (sign * row[0], row[1]))  # type: ignore[operator]
    return rows[limit - 1] if limit <= len(rows) else None  # type: ignore[return-value]


@st.composite
def some_spans(draw: st.DrawFn) -> list[Span]:
    few = st.integers(0, 4)
    spans = []
    for ordinal in range(draw(st.integers(0, 4))):
        low, high = sorted((draw(few), draw(few)))
        rows = draw(st.integers(2, 4))
        known = ColumnStats(
            draw(st.sampled_from([low, low, low, None])),
            draw(st.sampled_from([high, high, high, None])),
            draw(st.none() | st.integers(0, rows - 1)),
            exact=draw(st.sampled_from([True, True, False])),
            has_nan=draw(st.sampled_from([False, False, True, None])),
        )
        spans.append((known, rows, ordinal))
    return spans


@given(some_spans(), st.integers(1, 6), st.booleans())
@settings(deadline=None, max_examples=150)
def test_the_promise_is_that_of_the_fewest_rows_that_the_bounds_prove(
    spans: list[Span], limit: int, descending: bool
) -> None:
    assert promised(spans, limit, descending=descending) == by_rows(
        spans, limit, descending=descending
    )


@pytest.mark.parametrize(
    ("known", "up", "down"),
    [
        (ColumnStats(3, 7, 0, has_nan=False), [3, 7, 7, 7, None], [7, 3, 3, 3, None]),
        (ColumnStats(3, 7, 2, has_nan=False), [3, 7, None], [7, 3, None]),
        (ColumnStats(3, 7, 3, has_nan=False), [3, None], [7, None]),
        (ColumnStats(3, 7, None, has_nan=False), [3, None], [7, None]),
        (ColumnStats(3, 7, 0, has_nan=None), [3, None], [7, 3, 3, 3, None]),
        (ColumnStats(3, 7, 0, has_nan=True), [3, None], [7, 3, 3, 3, None]),
        (ColumnStats(3, 7, 0, exact=False, has_nan=False), [None], [None]),
        (ColumnStats(3, None, 0, has_nan=False), [None], [None]),
        (ColumnStats(None, 7, 0, has_nan=False), [None], [None]),
    ],
)
def test_four_rows_promise_what_their_bounds_say(
    known: ColumnStats, up: list[int | None], down: list[int | None]
) -> None:
    """The first, the second, … of an order; None is no promise."""
    for expected, descending in ((up, False), (down, True)):
        for limit, value in enumerate(expected, 1):
            found = promised([(known, 4, 5)], limit, descending=descending)
            assert found == (None if value is None else (value, 5)), (limit, descending)
    # Of many: the best first, equal ones in their order.
    more = ColumnStats(3, 5, 3, has_nan=False)
    if up[:2] == [3, 7]:
        spans = [(known, 4, 5), (more, 4, 6)]
        assert [promised(spans, n, descending=False) for n in (1, 2, 3)] == [(3, 5), (3, 6), (7, 5)]
        assert promised(spans[::-1], 1, descending=True) == (7, 5)
        assert promised(spans, 2, descending=True) == (5, 6)


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, math.nan, None]), min_size=1, max_size=3),
        max_size=3,
    ),
    st.integers(1, 5),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_as_many_rows_are_as_good_as_promised(
    pages: list[list[float | None]], limit: int, descending: bool
) -> None:
    spans: list[Span] = []
    for ordinal, page in enumerate(pages):
        numbers = sorted(v for v in page if v is not None and not is_nan(v))
        least, most = (numbers[0], numbers[-1]) if numbers else (None, None)
        has_nan = any(map(is_nan, page))
        known = ColumnStats(least, most, page.count(None), has_nan=has_nan)
        spans.append((known, len(page), ordinal))
    found = promised(spans, limit, descending=descending)
    if found is None:
        return
    value, upto = order_key(found[0]), found[1]
    rows = [(order_key(v), n) for n, page in enumerate(pages) for v in page if v is not None]
    as_good = [
        v
        for v, n in rows
        if ((v > value) if descending else (v < value)) or (v == value and n <= upto)
    ]
    assert len(as_good) >= limit


@pytest.mark.parametrize(
    ("known", "value", "descending", "as_good", "better"),
    [
        (ColumnStats(3, 7), 3, False, True, False),
        (ColumnStats(3, 7), 4, False, True, True),
        (ColumnStats(3, 7), 2, False, False, False),
        (ColumnStats(3, 7, has_nan=True), 2, False, False, False),
        (ColumnStats(3, 7, has_nan=False), 7, True, True, False),
        (ColumnStats(3, 7, has_nan=False), 6, True, True, True),
        (ColumnStats(3, 7, has_nan=False), 8, True, False, False),
        (ColumnStats(3, 7, has_nan=None), 8, True, True, True),
        (ColumnStats(3, 7, has_nan=True), 8, True, True, True),
        (ColumnStats(None, 7), 2, False, True, True),
        (ColumnStats(3, None, has_nan=False), 8, True, True, True),
    ],
)
def test_a_row_may_be_as_good_as_its_bounds_allow(
    known: ColumnStats, value: int, descending: bool, as_good: bool, better: bool
) -> None:
    assert may_be_as_good(known, value, descending=descending) is as_good
    assert may_be_as_good(known, value, descending=descending, better=True) is better

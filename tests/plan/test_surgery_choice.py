"""The way in which rows are removed from a file, by its counts: each choice, both sides of each bound."""

from __future__ import annotations

from typing import Any

import pytest

from inlay.format.entry import DataFile
from inlay.plan.surgery import (
    COPIED_BYTES_PER_SECOND,
    NETWORK_BYTES_PER_SECOND,
    PIECE_BYTES,
    RECODED_BYTES_PER_SECOND,
    SECONDS_PER_REQUEST,
    SMALL_FILE_BYTES,
    Choice,
    Cost,
    Touched,
    choose,
    rewrite_cost,
)

LARGE = 100 * PIECE_BYTES
CHEAP = Cost(requests=9, read_bytes=1, written_bytes=1)
DEAR = Cost(requests=9, recoded_bytes=10 * LARGE)


def entry(size: int) -> DataFile:
    return DataFile(
        key="data/a.parquet",
        size=size,
        rows=1000,
        row_groups=10,
        schema_id=0,
        spec_id=0,
        partition=(),
        stats={},
        footer_size=100,
        etag='"x"',
    )


def chosen(
    size: int = LARGE, groups: int = 2, kept: float = 0.9, surgery: Any = CHEAP, **options: Any
) -> Choice:
    return choose(entry(size), Touched(groups, 0, kept), surgery=surgery, **options)


@pytest.mark.parametrize("strategy", ["auto", "surgery", "rewrite"])
def test_what_metadata_alone_can_do_is_done_by_it(strategy: Any) -> None:
    for options, method in (({"groups": 0, "kept": 1.0}, "restamp"), ({"kept": 0.0}, "drop")):
        found = chosen(**options, strategy=strategy)
        assert (found.method, found.surgery, found.rewrite) == (method, None, None)


def test_what_is_asked_for_is_done_where_it_is_possible() -> None:
    assert chosen(strategy="rewrite").method == "rewrite"
    assert chosen(strategy="surgery", surgery=DEAR).method == "surgery"
    assert chosen(strategy="surgery", size=1).method == "surgery"
    for strategy in ("auto", "surgery"):
        impossible = chosen(strategy=strategy, surgery="it is encrypted")
        assert (impossible.method, impossible.no_surgery) == ("rewrite", "it is encrypted")
        assert "it is encrypted" in impossible.reason and impossible.surgery is None
    assert chosen().no_surgery is None


def test_where_no_row_group_would_stay_the_file_is_written_whole() -> None:
    for strategy in ("auto", "surgery"):
        choice = chosen(surgery=None, strategy=strategy)
        assert (choice.method, choice.surgery, choice.no_surgery) == ("rewrite", None, None)
        assert choice.reason.startswith("2 of ") and choice.reason.endswith("again, too")


def test_small_files_are_written_whole() -> None:
    assert chosen(SMALL_FILE_BYTES, surgery=Cost(1)).method == "rewrite"
    assert chosen(SMALL_FILE_BYTES + 1, surgery=Cost(1)).method == "surgery"


def test_what_does_not_fit_the_time_is_done_in_steps() -> None:
    whole = rewrite_cost(entry(LARGE), Touched(2, 0, 0.9)).seconds
    assert chosen(surgery=DEAR, seconds_left=None).method == "rewrite"
    assert chosen(surgery=DEAR, seconds_left=whole).method == "rewrite"
    in_steps = chosen(surgery=DEAR, seconds_left=whole - 0.1)
    assert in_steps.method == "surgery" and "as many as time allows" in in_steps.reason


def test_else_the_cheaper_one() -> None:
    """With both costs told; of two that are alike the whole file."""
    cheap, dear = chosen(), chosen(surgery=DEAR)
    assert (cheap.method, dear.method) == ("surgery", "rewrite")
    for found, first in ((cheap, CHEAP), (dear, dear.rewrite)):
        assert first is not None and f"about {first.seconds:.2f} s instead of" in found.reason
        assert found.reason.startswith("2 of 10 row groups are touched")
    assert cheap.rewrite == rewrite_cost(entry(LARGE), Touched(2, 0, 0.9))
    assert chosen(surgery=cheap.rewrite).method == "rewrite"


def test_costs_are_seconds_of_requests_and_bytes() -> None:
    assert Cost(requests=3).seconds == pytest.approx(3 * SECONDS_PER_REQUEST)
    assert Cost(0, read_bytes=NETWORK_BYTES_PER_SECOND).seconds == pytest.approx(1)
    assert Cost(0, written_bytes=NETWORK_BYTES_PER_SECOND).seconds == pytest.approx(1)
    assert Cost(0, copied_bytes=COPIED_BYTES_PER_SECOND).seconds == pytest.approx(1)
    assert Cost(0, recoded_bytes=RECODED_BYTES_PER_SECOND).seconds == pytest.approx(1)


@pytest.mark.parametrize(
    ("size", "kept", "requests"),
    [
        (1, 1.0, 1 + 1 + 1),  # a footer, a GET, a PUT
        (PIECE_BYTES, 1.0, 1 + 1 + 1),
        (PIECE_BYTES + 1, 1.0, 1 + 2 + 2 + 2),  # and the upload is begun and ended
        (4 * PIECE_BYTES, 0.25, 1 + 4 + 1),
        (4 * PIECE_BYTES, 0.5, 1 + 4 + 2 + 2),
    ],
)
def test_a_rewrite_reads_all_and_writes_what_stays(size: int, kept: float, requests: int) -> None:
    found = rewrite_cost(entry(size), Touched(1, 0, kept))
    assert found == Cost(requests, size, int(size * kept), 0, size)


@pytest.mark.parametrize("surgery", [CHEAP, None])
def test_what_writes_every_row_group_again_is_chosen_only_where_it_is_asked_for_or_has_to_be(
    surgery: Any,
) -> None:
    """Whether its cost is known (a dry run shows it) or not: the choice is the same."""
    both = chosen(surgery=surgery, everything=True)
    assert both.method == "rewrite" and both.reason.endswith("again, too")
    assert both.surgery == surgery


def test_what_writes_every_row_group_again_can_be_done_in_steps() -> None:
    assert chosen(everything=True, strategy="surgery").method == "surgery"
    assert chosen(everything=True, seconds_left=0.0).method == "surgery"
    assert chosen(everything=True, seconds_left=1e9, surgery=DEAR).method == "rewrite"

from __future__ import annotations

import pytest

from inlay.errors import InvalidRequest
from inlay.spark.options import _READ, _WRITE, INSTEAD, read_options, write_options


def test_names_of_options_know_no_case() -> None:
    found = read_options({"path": "file:///t", "ASOF": "1970-01-01T00:00:01Z"})
    assert found.as_of_us == 1_000_000


def test_columns_are_a_list_with_commas_or_json() -> None:
    assert read_options({"path": "/t", "columns": "a, b"}).columns == ("a", "b")
    assert read_options({"path": "/t", "columns": '["a, b", "c"]'}).columns == ("a, b", "c")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"path": "/t", "as_of": "2026-01-01"}, "'as_of'"),
        ({"path": "/t", "asOf": "yesterday"}, "not a time"),
        ({"path": "/t", "version": "0"}, "whole number"),
        ({"path": "/t", "version": "1", "asOf": "2026-01-01"}, "one of"),
        ({"path": "/t", "columns": '["a"'}, "JSON"),
        ({"path": "/t", "columns": ""}, "names none"),
        ({"path": "/t", "columns": "[]"}, "names none"),
        ({}, "no table"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        read_options(options)


def test_a_read_option_is_no_write_option() -> None:
    with pytest.raises(InvalidRequest, match="'version'"):
        write_options({"path": "/t", "version": "3"})


@pytest.mark.parametrize("feed", ["false", "true"])
def test_rows_and_changes_leave_no_damaged_file_out(feed: str) -> None:
    """Nobody would see what an executor leaves out."""
    asked = {"path": "/t", "changeFeed": feed, "startVersion": "1", "onDamaged": "skip"}
    with pytest.raises(InvalidRequest, match="onDamaged") as refused:
        read_options(asked)
    for way in ("scan(", "changes(", "inlay delete TABLE --where TRUE --file KEY"):
        assert way in refused.value.next_step


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_an_option_of_another_format_names_the_way_here(name: str) -> None:
    words = INSTEAD[name]
    refused = 0
    for options, known in ((read_options, _READ), (write_options, _WRITE)):
        if name in map(str.lower, known):
            continue
        with pytest.raises(InvalidRequest) as error:
            options({"path": "/t", name.title(): "1"})
        assert error.value.next_step == f"Inlay's way: {words}"
        refused += 1
    assert refused
    if " " not in words:
        assert words in (*_READ, *_WRITE)

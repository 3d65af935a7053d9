"""Wrong arguments are refused by name before anything is committed, and none is quietly ignored."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import inlay
from inlay.errors import InputError, InvalidRequest
from inlay.table import Table
from inlay.table.inspect import Inspect
from inlay.table.maintain import Maintain
from inlay.table.refs import Refs

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}, schema=SCHEMA)


def location() -> str:
    return f"memory://attacks/{uuid.uuid4().hex}"


@pytest.fixture
def table() -> Table:
    made = inlay.create(location(), SCHEMA, primary_key="id")
    made.append(ROWS)
    return made


def first_file(table: Table) -> str:
    return table.inspect.entries()[0][0].key


MISUSES: dict[str, Callable[[Table], Any]] = {
    "an erasure of one file": lambda t: t.delete("id = 1", mode="erase", file=first_file(t)),
    "an erasure of keys with other ids": lambda t: t.delete(
        keys={"id": [1]}, ids=["a", "b"], mode="erase"
    ),
    "keys in one file": lambda t: t.delete(keys={"id": [1]}, file=first_file(t)),
    "keys of an unknown mode": lambda t: t.delete(keys={"id": [1]}, mode="nonsense"),
    "keys that are no table": lambda t: t.delete(keys=5),
    "a file that is not there": lambda t: t.delete("id = 1", file="data/none", mode="vector"),
    "an expression that is no condition": lambda t: t.delete(pc.add(pc.field("id"), 1)),
    "a number to delete by": lambda t: t.delete(5),
    "a number to rewrite by": lambda t: t.maintain.rewrite(where=5),
    "a number to scan by": lambda t: t.scan(where=5),
    "a limit of text": lambda t: t.scan(limit="3"),
    "one and a half rows": lambda t: t.scan(limit=1.5),
    "columns that are a number": lambda t: t.scan(columns=5),
    "an unknown update mode": lambda t: t.update({"name": "'x'"}, mode="nonsense"),
    "assignments in one text": lambda t: t.update("name = 'x'"),
    "a value that is no SQL": lambda t: t.update({"name": 5}),
    "a value of a list": lambda t: t.update({"name": [1]}),
    "an update by an expression of no column": lambda t: t.update(
        {"name": "'x'"}, where=pc.field("none") == 1
    ),
    "upsert on a number": lambda t: t.upsert(ROWS, on=5),
    "upsert on a column twice": lambda t: t.upsert(ROWS, on=["id", "id"]),
    "a request id that is a number": lambda t: t.append(ROWS, request_id=5),
    "a request id of bytes": lambda t: t.append(ROWS, request_id=b"x"),
    "half a surrogate pair": lambda t: t.append(ROWS, request_id="\ud800"),
    "one location for many": lambda t: t.ingest("memory://attacks/x.parquet"),
    "a location that is a number": lambda t: t.ingest([5]),
    "row groups as text": lambda t: t.maintain.delete_row_groups(first_file(t), "0"),
    "row groups that are fractions": lambda t: t.maintain.delete_row_groups(first_file(t), [0.0]),
    "row groups that are booleans": lambda t: t.maintain.delete_row_groups(first_file(t), [False]),
    "no row groups": lambda t: t.maintain.delete_row_groups(first_file(t), []),
    "a grace before now": lambda t: t.maintain.collect_garbage(grace=timedelta(seconds=-1)),
    "a life before birth": lambda t: t.maintain.collect_garbage(life_seconds=-5),
    "a life without end": lambda t: t.maintain.collect_garbage(life_seconds=float("inf")),
    "a margin without end": lambda t: t.maintain.collect_garbage(clock_margin_seconds=float("inf")),
    "a margin beyond counting": lambda t: t.maintain.collect_garbage(clock_margin_seconds=1e300),
    "an HMAC key of nothing": lambda t: t.maintain.collect_garbage(hmac_key=b""),
    "a grace that is a number": lambda t: t.maintain.collect_garbage(grace=5),
    "days that are text": lambda t: t.maintain.expire(days="7"),
    "days that are no number": lambda t: t.maintain.expire(days=float("nan")),
    "a superscript": lambda t: t.set_properties(stats__columns="²"),
    "digits of another script": lambda t: t.set_properties(stats__columns="٣"),
    "a version of text": lambda t: inlay.open(t.uri, version="1"),
    "a version with a fraction": lambda t: inlay.open(t.uri, version=1.0),
    "a version that is a boolean": lambda t: inlay.open(t.uri, version=True),
    "a time that is a number": lambda t: inlay.open(t.uri, as_of=5),
    "a table at a number": lambda t: inlay.open(5),
    "a schema that is a dict": lambda t: inlay.create(location(), {"id": "int64"}),
    "a key that is a number": lambda t: inlay.create(location(), SCHEMA, primary_key=5),
    "a key of one column twice": lambda t: inlay.create(location(), SCHEMA, primary_key=["id"] * 2),
}


GROUPS: dict[str, Callable[[Table], Any]] = {
    "t": lambda t: t,
    "t.inspect": lambda t: t.inspect,
    "t.maintain": lambda t: t.maintain,
    "t.refs": lambda t: t.refs,
    "inlay": lambda t: inlay,
}
# What a text, a number, bytes or a mapping is given as by mistake.
WRONG = {
    "int": ["7", 1.5, True, b"7", [7]],
    "float": ["7", True, b"7", [7.0], float("nan")],
    "str": [7, b"text", ["text"], object()],
    "bytes": ["text", 7],
    "Mapping[str, object]": ["a=b", 7, ["a"]],
}


def plain_arguments() -> list[tuple[str, str, str]]:
    """(group, method, argument) of each that `arguments.checked` looks at."""
    groups = {"inlay": inlay.table, "t": Table}
    groups |= {"t.inspect": Inspect, "t.maintain": Maintain, "t.refs": Refs}
    return [
        (group, name, argument)
        for group, home in groups.items()
        for name, method in vars(home).items()
        if hasattr(method, "__wrapped__") and not name.startswith("_")
        for argument, note in method.__annotations__.items()
        if argument != "return" and note.removesuffix(" | None") in WRONG
    ]


def test_the_groups_are_checked_as_a_whole() -> None:
    found = plain_arguments()
    assert {group for group, _, _ in found} == set(GROUPS)
    assert ("t.maintain", "compact", "deadline_seconds") in found
    assert ("inlay", "open", "ref") in found and ("t", "apply_changes", "delete_to") in found


@pytest.mark.parametrize(("group", "name", "argument"), plain_arguments())
def test_numbers_texts_and_mappings_are_refused_by_name_where_they_are_none(
    table: Table, group: str, name: str, argument: str
) -> None:
    method = getattr(GROUPS[group](table), name)
    parameters = inspect.signature(method).parameters
    given: dict[str, Any] = {
        each.name: "x"
        for each in parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }
    fitting = {
        "data": ROWS,
        "order": "id",
        "uri": table.uri,
        "into": location(),
        "since_version": 1,
    }
    given |= {each: value for each, value in fitting.items() if each in parameters}
    note = method.__annotations__[argument].removesuffix(" | None")
    for wrong in WRONG[note]:
        asked = {**given, argument: wrong}
        first = [
            asked.pop(each.name)
            for each in parameters.values()
            if each.kind is each.POSITIONAL_ONLY and each.name in asked
        ]
        with pytest.raises(InputError) as refused:
            method(*first, **asked)
        assert argument in str(refused.value)
    after = inlay.open(table.uri)
    assert (after.version, after.count()) == (2, 3)


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES.keys())
def test_is_refused_and_changes_nothing(table: Table, misuse: Callable[[Table], Any]) -> None:
    with pytest.raises(InputError) as refused:
        misuse(table)
    assert refused.value.message
    after = inlay.open(table.uri)
    assert after.version == 2
    assert after.count() == 3


def test_one_text_is_not_its_characters(table: Table) -> None:
    assert table.inspect.search("ab").rows == ()
    [found] = table.inspect.search("b").rows
    assert (found.column, found.rows) == ("name", 1)


def test_numbers_may_be_of_numpy(table: Table) -> None:
    numpy = pytest.importorskip("numpy")
    assert table.inspect.history(limit=numpy.int64(1)).num_rows == 1
    table.maintain.compact(deadline_seconds=numpy.float32(60), small_bytes=numpy.uint16(9))
    table.maintain.expire(min_versions=numpy.int32(3))


def test_row_groups_may_be_numpy_integers(table: Table) -> None:
    numpy = pytest.importorskip("numpy")
    table.maintain.delete_row_groups(first_file(table), numpy.array([0]))
    assert inlay.open(table.uri).count() == 0


def test_a_rewrite_takes_its_condition_as_text(table: Table) -> None:
    table.delete("id = 1")
    assert table.maintain.rewrite(where="id > 100").files == 0
    assert table.maintain.rewrite(where="id < 3").files == 1


def test_a_date_is_its_midnight(table: Table) -> None:
    tomorrow = datetime.now(UTC).date() + timedelta(days=2)
    assert inlay.open(table.uri, as_of=tomorrow).version == 2
    with pytest.raises(InputError):
        inlay.open(table.uri, as_of=date(1999, 1, 1))


def test_a_path_is_a_location(tmp_path: Path) -> None:
    inlay.create(tmp_path / "t", SCHEMA).append(ROWS)
    assert inlay.open(tmp_path / "t").count() == 3


def test_a_negative_grace_names_what_is_wrong(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="grace"):
        table.maintain.collect_garbage(grace=timedelta(days=-5))

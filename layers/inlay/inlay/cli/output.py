"""What commands print: tables and sentences for people, JSON for programs.

Promise of `print_run`, which prints what a run of maintenance did: a program gets every fact of the result;
a person those that say something, and a line for each file or group of objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from inlay.cli.values import NULL, counted, size_text, to_text
from inlay.engine import json_rows, to_line
from inlay.errors import InlayError

if TYPE_CHECKING:
    import pyarrow as pa

    from inlay import Choice, Cost, Table, WriteResult


# Not a terminal: as wide as the widest row, so that nothing is cut or folded in a pipe or a log.
_UNBOUNDED = 100_000
# Spaces between columns, one of them the box's.
_GAP = 2


def console() -> Console:
    """Where people read: stdout, as wide as it is."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_UNBOUNDED, no_color=True)


def note(text: str) -> None:
    """A remark beside the output, on stderr."""
    Console(stderr=True, highlight=False).print(Text(text, "dim"), soft_wrap=True)


def print_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing with named facts."""
    if as_json:
        print(to_line(record))
        return
    out, width = console(), max(map(len, record), default=0)
    for name, value in record.items():
        out.print(
            Text.assemble((f"{name.replace('_', ' '):<{width}}", "bold"), "  ", to_text(value)),
            soft_wrap=True,
        )


def print_noted(facts: Mapping[str, Any], notes: Sequence[str], *, as_json: bool) -> None:
    """One thing with named facts, and remarks on it: beside the output, or in its JSON."""
    if as_json:
        print_record({**facts, "notes": list(notes)}, as_json=True)
        return
    print_record(facts, as_json=False)
    for text in notes:
        note(text)


def print_lines(records: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    for record in records:
        print(to_line(record))


def print_rows(
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    as_json: bool,
    columns: Sequence[str] | None = None,
    empty: str = "no rows",
    cell_width: int | None = None,
) -> None:
    """A list, of Arrow's rows or of records with the same names; `columns` are those a person is shown, a
    program gets all. Columns that do not fit the terminal beside the first are left out, and named. Longer
    cells than `cell_width` are cut."""
    records = rows if isinstance(rows, Sequence) else _records(rows)
    if as_json:
        print_lines(records)
        return
    if not records:
        note(empty)
        return
    out = console()
    names = list(records[0] if columns is None else columns)
    values = [[record[name] for record in records] for name in names]
    cells = [[to_text(value) for value in column] for column in values]
    widths = [
        min(max(len(to_text(name)), *map(len, column)), cell_width or _UNBOUNDED)
        for name, column in zip(names, cells, strict=True)
    ]
    count = _fitting(widths, out.width)
    numbers = [_are_numbers(column) for column in values]
    out.print(_grid(names[:count], numbers, cells, widths))
    if count < len(widths):
        left_out = ", ".join(map(to_text, names[count:]))
        note(f"no room for {left_out}: --json has all")


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    columns = [json_rows(column) for column in rows.columns]
    names = rows.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _are_numbers(values: Iterable[object]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return bool(kinds) and kinds <= {int, float, Decimal}


def _fitting(widths: Sequence[int], room: int) -> int:
    """How many columns fit side by side; always one."""
    used = 0
    for count, width in enumerate(widths):
        used += width + _GAP
        if used - _GAP > room:
            return max(count, 1)
    return len(widths)


def _grid(
    names: Sequence[str],
    numbers: Sequence[bool],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
) -> Grid:
    grid = Grid(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        header_style="bold",
    )
    for name, number, width in zip(names, numbers, widths, strict=False):
        grid.add_column(
            Text(to_text(name)),
            justify="right" if number else "left",
            overflow="ellipsis",
            no_wrap=True,
            max_width=width,
        )
    for row in zip(*cells[: len(names)], strict=True):
        grid.add_row(*(Text(cell, "dim" if cell == NULL else "") for cell in row))
    return grid


# -- results of writes ----------------------------------------------------------------------------


def print_write(result: WriteResult, *, as_json: bool) -> None:
    """What a write did, and what it cost."""
    if as_json:
        print(to_line(write_record(result)))
    else:
        console().print(Text(write_sentence(result)))
        if result.note:
            note(result.note)


def write_record(result: WriteResult) -> dict[str, Any]:
    """Every fact of a result, flat."""
    facts = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "usage"}
    cost = {name: getattr(result, name) for name in ("requests", "bytes_up", "bytes_down")}
    return {**facts, **cost}


def write_sentence(result: WriteResult) -> str:
    """For example "append: version 2, 3 rows added in 1 file; 3 requests, 4.1 kB up, 0 B down"."""
    cost = usage_text(result.requests, result.bytes_up, result.bytes_down)
    if not result.committed:
        why = "applied before" if result.applied_before else "nothing to do"
        return f"{result.operation}: {why}, version {result.version}; {cost}"
    done = [f"version {result.version}"]
    files = counted(result.added_files, "file")
    if result.added_rows:
        done.append(f"{counted(result.added_rows, 'row')} added in {files}")
    elif result.added_files:  # a commit that replaces what is there does not count rows
        done.append(f"{files} added")
    if result.deleted_rows:
        done.append(f"{counted(result.deleted_rows, 'row')} deleted")
    if result.added_markers:
        done.append(f"{counted(result.added_markers, 'delete marker')} added")
    if result.removed_files:
        done.append(f"{counted(result.removed_files, 'file')} dropped")
    if result.duplicates:
        done.append(f"{counted(result.duplicates, 'duplicate')} ignored")
    return f"{result.operation}: {', '.join(done)}; {cost}"


def usage_text(requests: int, bytes_up: int, bytes_down: int) -> str:
    """Requests and bytes, as the store saw them.

    >>> usage_text(3, 4100, 0)
    '3 requests, 4.1 kB up, 0 B down'
    """
    return f"{counted(requests, 'request')}, {size_text(bytes_up)} up, {size_text(bytes_down)} down"


# Lines of details for a person; a program gets all.
MAX_LINES = 40


def print_run(
    table: Table, operation: str, result: Any, *, as_json: bool, explain: bool = False
) -> None:
    """`result` is what the library's maintenance operation returned; the cost is the whole command's.
    With `explain` the table also shows what each choice was made of."""
    usage, facts = table.usage, plain(result)
    cost = {"requests": usage.total, "bytes_up": usage.bytes_up, "bytes_down": usage.bytes_down}
    if as_json:
        print_record({"operation": operation, **facts, **cost}, as_json=True)
        return
    shown = {
        name.replace("_", " "): _shown(name, value)
        for name, value in facts.items()
        if isinstance(value, int | str) and (value or name == "version") and name[-3:] != "_us"
    }
    print_record(
        {
            "operation": operation,
            **shown,
            "cost": usage_text(usage.total, usage.bytes_up, usage.bytes_down),
        },
        as_json=False,
    )
    lines = list(_explained(result.choices) if explain else _details(facts))
    out = console()
    for line in lines[:MAX_LINES]:
        out.print(Text("  " + line), soft_wrap=True)
    if len(lines) > MAX_LINES:
        out.print(f"  and {len(lines) - MAX_LINES:,} more: --json names all")


def _shown(name: str, value: int | str) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("bytes"):
        return size_text(value)
    return value


def _details(facts: dict[str, Any]) -> Iterator[str]:
    for key, choice in facts.get("choices") or ():
        yield f"{key}: {choice['reason']}"
    for unit in (facts.get("plan") or {}).get("units", ()):
        files = counted(len(unit["inputs"]), "file")
        yield f"{unit['kind']}: {files}, {size_text(unit['bytes'])}"
    for kind, tally in (facts.get("kinds") or {}).items():
        yield f"{kind}: " + ", ".join(f"{name} {value:,}" for name, value in tally.items())
    for failure in facts.get("failures") or ():
        yield f"failed: {failure}"


def _explained(choices: Iterable[tuple[str, Choice]]) -> Iterator[str]:
    for key, choice in choices:
        yield f"{key}: {choice.method}"
        yield f"    {choice.reason}"
        if choice.tombstone is not None:
            yield f"    tombstone kept  {_cost(choice.tombstone)}, at each scan of these row groups"
        if choice.surgery is not None:
            yield f"    surgery         {_cost(choice.surgery)}, {choice.surgery.seconds:.2f} s"
        elif choice.no_surgery is not None:
            yield f"    surgery         not possible: {choice.no_surgery}"
        if choice.rewrite is not None:
            yield f"    whole rewrite   {_cost(choice.rewrite)}, {choice.rewrite.seconds:.2f} s"


def _cost(cost: Cost) -> str:
    return (
        f"{counted(cost.requests, 'request')}, {size_text(cost.read_bytes)} down, "
        f"{size_text(cost.written_bytes)} up"
    )


def plain(value: Any) -> Any:
    """Dataclasses as dicts, all the way down."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, InlayError):
        return value.fields()
    if isinstance(value, tuple | list | frozenset | set):
        return [plain(item) for item in value]
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    return value

"""What a run of maintenance did, for people and for programs.

Promise: a program gets every fact of the result; a person those that say something, and a line for each
file or group of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from inlay.cli.output import console, print_record, usage_text
from inlay.cli.values import counted, size_text
from inlay.errors import InlayError

if TYPE_CHECKING:
    from inlay.plan.surgery import Choice, Cost
    from inlay.table import Table

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
        return [plain(each) for each in value]
    if hasattr(value, "items"):
        return {str(key): plain(each) for key, each in value.items()}
    return value

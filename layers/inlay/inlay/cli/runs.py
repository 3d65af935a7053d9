"""What a run of maintenance did, for people and for programs.

Promise: a program gets every fact of the result; a person those that say something, and a line for each
file or group of objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from inlay.cli.output import console, print_record, usage_text
from inlay.cli.values import counted, size_text
from inlay.errors import InlayError

if TYPE_CHECKING:
    from inlay.table import Table

# Lines of details for a person; a program gets all.
MAX_LINES = 40


def print_run(table: Table, operation: str, result: Any, *, as_json: bool) -> None:
    """`result` is what the library's maintenance operation returned; the cost is the whole command's."""
    usage, facts = table.usage, plain(result)
    cost = {"requests": usage.total, "bytes_up": usage.bytes_up, "bytes_down": usage.bytes_down}
    if as_json:
        print_record({"operation": operation, **facts, **cost}, as_json=True)
        return
    told = {
        name.replace("_", " "): _shown(name, value)
        for name, value in facts.items()
        if isinstance(value, int | str) and (value or name == "version") and name[-3:] != "_us"
    }
    print_record(
        {
            "operation": operation,
            **told,
            "cost": usage_text(usage.total, usage.bytes_up, usage.bytes_down),
        },
        as_json=False,
    )
    lines = list(_details(facts))
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

"""The core: the lines of the modules that a table loads in its life, without any guest.

    python -m tests.core_size            # modules, lines, and lines by room

Its life: create, append, upsert, delete by condition and keys, scan, refs, maintenance, verify and repair,
garbage, and an erasure. Counted are all lines of a module, as they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import pyarrow as pa

import inlay


def live(uri: str) -> None:
    """Loads what a table needs from its creation to the erasure of a row."""
    rows = pa.table({"id": [1, 2, 3], "value": ["a", "b", "c"]})
    table = inlay.create(uri, rows.schema, primary_key=["id"])
    table.append(rows)
    table.upsert(rows.slice(0, 1))
    table.update({"value": "'d'"}, where="id = 1")
    table.delete(where="id = 2")
    table.delete(keys=pa.table({"id": [3]}))
    assert table.scan(where="id > 0").to_arrow().num_rows == table.count() == 1
    table.refs.tag("kept")
    table.refs.branch("other").append(rows.slice(1))
    table.refs.merge("other")
    table.refs.drop("kept")
    for operation in (table.maintain.compact, table.maintain.rewrite, table.maintain.expire):
        operation()
    table.maintain.verify()
    table.maintain.repair()
    table.maintain.collect_garbage()
    # An erasure is opened by its queue (docs/ERASURE.md), not by a method of `Table`.
    for module in ("request", "finish", "check_receipt"):
        import_module(f"inlay.ops.erase.{module}")


def sizes() -> Counter[str]:
    """Lines by module of what this process has loaded of the package."""
    loaded = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.split(".")[0] == "inlay"
    }
    return Counter(
        {n: len(Path(file).read_text().splitlines()) for n, file in loaded.items() if file}
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        live(f"{folder}/table")
    lines = sizes()
    rooms: Counter[str] = Counter()
    for name, number in lines.items():
        rooms[".".join(name.split(".")[1:3]) or "inlay"] += number
    for room, number in rooms.most_common():
        print(f"{number:>7,}  {room}")
    print(f"{lines.total():>7,}  lines in {len(lines)} modules")


if __name__ == "__main__":
    main()

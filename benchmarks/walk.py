"""A stranger's walk: how many files of the library a call goes through, and how deep.

    python benchmarks/walk.py                # files and depth of a warm append, two deletes and a scan
    python benchmarks/walk.py append --tree  # and which file calls which, in the order of first visits

Each operation runs once before it is measured, on a table in memory, so that nothing is imported or cached
on the way. Counted are Python calls within `inlay`: a file is visited when one of its functions runs, depth
is the number of such functions that are under way at once. Tasks of other threads are run in their caller's
place.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import inlay
from inlay.engine import Context, MeteredStore
from inlay.ops.context import InlineExecutor
from inlay.storage.memory import MemoryStore

ROOT = str(Path(inlay.__file__).parent)


class Walk:
    def __init__(self) -> None:
        self.files: dict[str, int] = {}  # by file: the depth at which it was first visited
        self.calls: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.depth = 0
        self.deepest: tuple[str, ...] = ()
        self._stack: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT):
            return
        name = code.co_filename[len(ROOT) + 1 :]
        if event == "call":
            self._stack.append(f"{name}:{code.co_name}")
            self.files.setdefault(name, len(self._stack))
            self.calls[name] += 1
            self.functions.add((name, code.co_name))
            if len(self._stack) > self.depth:
                self.depth, self.deepest = len(self._stack), tuple(self._stack)
        elif self._stack:
            self._stack.pop()


def walk(run: Callable[[], Any]) -> Walk:
    found = Walk()
    sys.setprofile(found)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def rows(first: int, count: int = 1_000) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "name": pa.array([f"n{i}" for i in range(count)])})


def operations() -> dict[str, Callable[[], Any]]:
    store = MeteredStore(MemoryStore("walk"))
    ctx = Context(store=store, root="t", uri="memory://walk/t", executor=InlineExecutor())
    table = inlay.create(ctx.uri, rows(0).schema, context=ctx)
    for n in range(4):
        table.append(rows(n * 1_000))
    numbers = iter(range(1, 1_000))

    def delete(mode: str) -> None:
        table.delete(f"id = {next(numbers)}", mode=mode)

    return {
        "append": lambda: table.append(rows(100_000)),
        "delete": lambda: delete("tombstone"),
        "surgery": lambda: delete("surgery"),
        "scan": lambda: table.scan(where="id > 10").to_arrow(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[], help="of operations; all without")
    parser.add_argument(
        "--tree", action="store_true", help="print every file, and the deepest stack"
    )
    options = parser.parse_args()
    found = operations()
    print(f"{'operation':10} {'files':>6} {'functions':>10} {'depth':>6} {'calls':>7}")
    for name in options.names or found:
        found[name]()
        seen = walk(found[name])
        calls = sum(seen.calls.values())
        print(f"{name:10} {len(seen.files):6} {len(seen.functions):10} {seen.depth:6} {calls:7}")
        if options.tree:
            for file, depth in seen.files.items():
                print(f"    {'  ' * depth}{file} ({seen.calls[file]})")
            print("  deepest:", *seen.deepest, sep="\n    ")


if __name__ == "__main__":
    main()

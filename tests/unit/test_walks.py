"""How far a reader of the code walks through an operation: files visited, and depth of calls.

A file is visited when a function of it runs; the depth is of calls within the package, comprehensions
included (before Python 3.12 they are calls). Each operation has run twice before, so nothing is imported.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import threading
from pathlib import Path

import inlay
import pyarrow as pa

PACKAGE = str(Path(inlay.__file__).parent)
LAZY = PACKAGE + "/lazy.py"  # gives attributes of modules: nobody reads it on the way
files, depth, counting = set(), 0, False


def visits(frame):
    file = frame.f_code.co_filename
    return file.startswith(PACKAGE) and file != LAZY


def called(frame, event, _):
    global depth
    if not counting or event != "call" or not visits(frame):
        return
    files.add(frame.f_code.co_filename)
    above = 0
    while frame is not None:
        above += visits(frame)
        frame = frame.f_back
    depth = max(depth, above)


threading.setprofile(called)  # before the library starts a thread
sys.setprofile(called)
numbers = range(1000)
rows = pa.table({"id": numbers, "name": [f"n{i}" for i in numbers], "v": [i / 2 for i in numbers]})
table = inlay.create("memory://walks/t", rows.schema)
for first in (0, 200, 400):
    for name, operate in {
        "append": lambda: table.append(rows),
        "delete": lambda: table.delete(f"id = {first}"),
        "scan": lambda: table.scan(where=f"id = {first + 1}").to_arrow(),
        "surgery": lambda: table.delete(f"id < {first + 100}", mode="surgery"),
    }.items():
        files.clear()
        depth, counting = 0, first == 400
        operate()
        counting = False
        if first == 400:
            print(name, len(files), depth)
            if name in sys.argv:
                print(*sorted(files), sep="\\n")
"""

# Before the modules were merged and the calls flattened: 56 and 25, 49 and 24, 51 and 19, 92 and 33. In the
# version of 2026-11-21, with fewer features: 51 and 26, 46 and 25, 40 and 17, 81 and 33. Since then batches
# are cut to pieces (parquet/arrow/pieces), categories keep their order (parquet/arrow and ops/schema),
# known writers' faults and keys are compared (parquet/footer/writers, plan/pruning/compared), values are
# bound (parse/values), conditions may be expressions (ops/read/conditions). A proposal is made by one
# function for a commit of one table and of several (ops/commit/driver.proposed). A scan's plan is made
# apart from it (ops/read/plan, by parquet/footer/thrift.without_gc): a count has no other need of Arrow.
# The parts of surgery, and where rows are after it, are apart from its plan (plan/parts, plan/positions).
# What a delete uploads, and the archive of its base, are one round trip (ops/commit/group.archive_beside).
# Deletes by position are apart from those by marker (ops/write/delete_rows). A footer is encoded with its
# end (parquet/footer/footer.end_of_file).
LONGEST = {"append": (37, 17), "delete": (32, 17), "scan": (41, 15), "surgery": (59, 22)}


@pytest.fixture(scope="module")
def walks() -> dict[str, tuple[int, int]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: (int(files), int(depth)) for name, files, depth in lines}


@pytest.mark.parametrize("operation", LONGEST)
def test_a_walk_through_an_operation_is_no_longer_than_it_was(
    walks: dict[str, tuple[int, int]], operation: str
) -> None:
    (files, depth), (most_files, deepest) = walks[operation], LONGEST[operation]
    assert files <= most_files, f"{operation} visits {files} files"
    assert depth <= deepest, f"{operation} is {depth} calls deep"
    assert files > 20 and depth > 8, "this did not count"

"""Runs surgery on bytes, and says what should come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor

import pyarrow as pa

from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import Footer, decode_footer
from inlay.parquet.surgery.surgery import Emptied, Outcome, Rewritten, Untouched, rewrite_object
from inlay.storage.memory import MemoryStore

__all__ = ["Edit", "Emptied", "Rewritten", "Untouched", "operate", "patterns"]

# Which rows of the file stay, by group: a group not named is not touched, None drops it unread.
Edit = dict[int, list[bool] | None]


def operate(
    data: bytes,
    edit: Edit,
    *,
    executor: Executor | None = None,
    store: MemoryStore | None = None,
) -> tuple[Outcome, bytes]:
    """The outcome, and the new object's bytes (none if nothing was written)."""
    store = store or MemoryStore("b")
    written = store.put("old", data, metadata={"owner": "me"}, headers={"ContentType": "x/y"})
    outcome = rewrite_object(
        store,
        "old",
        "new",
        etag=written.etag,
        size=len(data),
        footer=decode_footer(data, file_size=len(data)),
        keep=lambda ordinal: pa.array(edit[ordinal], pa.bool_()),
        groups=[ordinal for ordinal, rows in edit.items() if rows is not None],
        drop_groups=[ordinal for ordinal, rows in edit.items() if rows is None],
        executor=executor or InlineExecutor(),
    )
    return outcome, store.get("new").body if isinstance(outcome, Rewritten) else b""


def kept_rows(footer: Footer, edit: Edit) -> list[int]:
    """The positions of the old rows that should be left."""
    found: list[int] = []
    start = 0
    for group in footer.row_groups:
        stays = edit.get(group.ordinal, [True] * group.num_rows)
        found += [start + at for at, keep in enumerate(stays or []) if keep]
        start += group.num_rows
    return found


def patterns(data: bytes, seed: int = 3) -> dict[str, Edit]:
    """Ways to take rows out of a file."""
    counts = [group.num_rows for group in decode_footer(data, file_size=len(data)).row_groups]
    dice = random.Random(seed)
    last = len(counts) - 1

    def rows(ordinal: int, keep: Callable[[int], bool]) -> list[bool]:
        return [keep(at) for at in range(counts[ordinal])]

    middle = len(counts) // 2
    found: dict[str, Edit] = {
        "first row": {0: rows(0, lambda at: at != 0)},
        "last row": {last: rows(last, lambda at: at != counts[last] - 1)},
        "odd rows of a middle group": {middle: rows(middle, lambda at: at % 2 == 0)},
        "all but one row of the first group": {0: rows(0, lambda at: at == 5)},
        "first group unread": {0: None},
        "last group unread": {last: None},
        "a whole group by its rows": {middle: rows(middle, lambda at: False)},
        "some rows of several groups": {
            at: rows(at, lambda _: dice.random() < 0.6) for at in range(0, len(counts), 2)
        },
        "every group, one dropped": {
            at: None if at == middle else rows(at, lambda _: dice.random() < 0.9)
            for at in range(len(counts))
        },
        "read and found clean, beside an edit": {
            0: rows(0, lambda at: True),
            last: rows(last, lambda at: at % 3 > 0),
        },
        "everything": dict.fromkeys(range(len(counts))),
        "nothing": {at: rows(at, lambda _: True) for at in range(len(counts))},
    }
    return found

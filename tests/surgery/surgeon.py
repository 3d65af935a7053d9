"""Runs surgery on bytes, and says what should come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor

from pyroaring import BitMap

from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.footer import Footer, decode_footer
from inlay.parquet.surgery.surgery import Rewritten, rewrite_object
from inlay.storage.base import Location
from inlay.storage.memory import MemoryStore

__all__ = ["OLD", "Edit", "Rewritten", "kept_by", "operate", "patterns"]

OLD = Location("memory", "b", "old")

# Which rows of the file stay, by group: a group not named is not touched, None drops it unread.
Edit = dict[int, list[bool] | None]


def kept_by(edit: Edit) -> dict[int, BitMap]:
    """What surgery is asked for: of each group that loses rows those that stay."""
    return {
        ordinal: BitMap(at for at, stays in enumerate(rows or ()) if stays)
        for ordinal, rows in edit.items()
        if rows is None or not all(rows)
    }


def operate(
    data: bytes,
    edit: Edit,
    *,
    executor: Executor | None = None,
    store: MemoryStore | None = None,
) -> tuple[Rewritten | None, bytes]:
    """The outcome, and the new object's bytes; none where every row goes, or none, which is no surgery."""
    store = store or MemoryStore("b")
    written = store.put("old", data, metadata={"owner": "me"}, headers={"ContentType": "x/y"})
    footer, kept = decode_footer(data, file_size=len(data)), kept_by(edit)
    stays = any(kept.get(g.ordinal, g.num_rows) for g in footer.row_groups)
    if not kept or not stays:
        return None, b""
    outcome = rewrite_object(
        store,
        OLD,
        "new",
        etag=written.etag,
        size=len(data),
        footer=footer,
        kept=kept,
        executor=executor or InlineExecutor(),
    )
    return outcome, store.get("new").body


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
    }
    return found

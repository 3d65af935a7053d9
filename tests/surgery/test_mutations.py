"""Each offset rule, broken on purpose, is caught by some check.

A test suite for a file format is only as good as the faults it would notice. Every mutation here is
one plausible slip in `inlay.parquet.surgery.new_object` and around it; most of them still read fine in
pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import checker
import corpus
import engines
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.footer.fields import Chunk, File, Group, Meta
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.thrift import Struct
from inlay.parquet.surgery import new_object as judge
from inlay.parquet.surgery import new_object as rebuild
from inlay.parquet.surgery import row_group as edit
from inlay.parquet.surgery import surgery
from inlay.storage.base import ByteRange

Patch = Callable[[pytest.MonkeyPatch], None]
SOURCES = ("pyarrow-v1-index-bloom-crc", "datafusion-bloom", "polars")
PATTERNS = ("first row", "odd rows of a middle group", "first group unread")


def wrap(module: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Pass the function's result, and its arguments, through `change`."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, **kw: change(original(*args, **kw), *args, **kw)
        )

    return patch


def unshifted(key: int) -> Patch:
    def change(tree: Struct, chunk: Any, *rest: object) -> Struct:
        if key in chunk.meta:
            tree[Chunk.META][key] = chunk.meta[key]
        return tree

    return wrap(rebuild, "_shifted_chunk", change)


def in_group(name: str, key: int, value: Callable[[Any, Any], object]) -> Patch:
    def change(tree: Struct, old: Any, *rest: object) -> Struct:
        if key in tree:
            tree[key] = value(tree, old)
        return tree

    return wrap(rebuild, name, change)


def of_placed(key: int, by: int) -> Patch:
    """Of each chunk of an edited group, before what its group says is made of them."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original = rebuild._group_tree

        def of_group(old: Any, ordinal: int, trees: list[Struct], edited: Any) -> Struct:
            for tree in trees if edited is not None else ():
                tree[Chunk.META][key] = tree[Chunk.META].get(key, 0) + by
            return original(old, ordinal, trees, edited)

        monkeypatch.setattr(rebuild, "_group_tree", of_group)

    return patch


def stale_rows(tree: Struct, footer: Any, *rest: object, **kw: object) -> Struct:
    return {**tree, File.ROWS: footer.num_rows}


def verbatim_index(result: object, body: bytes | None, *rest: object) -> bytes | None:
    return body


def unplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = rebuild._moved_index

    def left_alone(index: bytes | None, by: int, *within: Any) -> bytes | None:
        return moved(index, by, *within) if within else index

    monkeypatch.setattr(rebuild, "_moved_index", left_alone)


def one_longer(*args: Any) -> None:
    tree, body, length = args[3], args[4], args[6]
    if body is not None:
        tree[length] += 1


def swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rebuild._point_at

    def point(*args: Any) -> None:
        *before, offset, _length = args
        to_column = offset == Chunk.COLUMN_INDEX
        other = (
            (Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)
            if to_column
            else (Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)
        )
        original(*before, *other)

    monkeypatch.setattr(rebuild, "_point_at", point)


def keeps_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    original = surgery.keep_pieces

    def kept(layout: Any, fate: Any) -> Any:
        """With what lies between two kept ranges and belongs to no region."""
        pieces: list[Any] = []
        for piece in original(layout, fate):
            before = pieces[-1] if pieces else None
            if isinstance(piece, ByteRange) and isinstance(before, ByteRange):
                between = range(before.end, piece.start)
                if not any(
                    r.start < between.stop and between.start < r.end for r in layout.regions
                ):
                    pieces[-1] = ByteRange(before.start, piece.end)
                    continue
            pieces.append(piece)
        return iter(pieces)

    monkeypatch.setattr(surgery, "keep_pieces", kept)


def rotated_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    original = judge.edit_group

    def edited(*args: Any, **kw: Any) -> Any:
        *before, mask, profiles = args
        values = mask.to_pylist()
        return original(*before, pa.array(values[1:] + values[:1]), profiles, **kw)

    monkeypatch.setattr(judge, "edit_group", edited)


MUTATIONS: dict[str, Patch] = {
    "data pages of untouched groups not shifted": unshifted(Meta.DATA_PAGE),
    "dictionary pages of untouched groups not shifted": unshifted(Meta.DICTIONARY_PAGE),
    "bloom filters of untouched groups not shifted": unshifted(Meta.BLOOM),
    "page locations of untouched groups not shifted": wrap(rebuild, "_moved_index", verbatim_index),
    "page locations of edited groups not shifted": unplaced,
    "data pages of edited groups off by one": of_placed(Meta.DATA_PAGE, 1),
    "dictionary pages of edited groups off by one": of_placed(Meta.DICTIONARY_PAGE, 1),
    "compressed size of edited chunks off by one": of_placed(Meta.COMPRESSED, -1),
    "uncompressed size of edited chunks off by one": of_placed(Meta.UNCOMPRESSED, 1),
    "values of edited chunks off by one": of_placed(Meta.VALUES, 1),
    "ordinals not renumbered": in_group(
        "_group_tree", Group.ORDINAL, lambda tree, old: old.tree[Group.ORDINAL]
    ),
    "rows of the file not counted again": wrap(surgery, "new_tree", stale_rows),
    "rows of an edited group not counted again": in_group(
        "_group_tree", Group.ROWS, lambda tree, old: old.num_rows
    ),
    "size of an edited group not counted again": in_group(
        "_group_tree", Group.BYTES, lambda tree, old: old.total_byte_size
    ),
    "compressed size of an edited group not counted again": in_group(
        "_group_tree", Group.COMPRESSED, lambda tree, old: old.tree[Group.COMPRESSED]
    ),
    "file offset of an untouched group not shifted": in_group(
        "_group_tree", Group.FILE_OFFSET, lambda tree, old: old.tree[Group.FILE_OFFSET]
    ),
    "file offset of an edited group off by one": in_group(
        "_group_tree", Group.FILE_OFFSET, lambda tree, old: tree[Group.FILE_OFFSET] + 1
    ),
    "indexes one byte longer than they are": wrap(rebuild, "_point_at", one_longer),
    "column and offset indexes swapped": swapped,
    "gaps kept when erasing": keeps_gaps,
    "another row kept than the mask says": rotated_mask,
    "old statistics on edited chunks": wrap(edit, "_statistics", lambda new, was, now: dict(was)),
    "old chunk metadata on edited chunks": wrap(
        edit,
        "_graft",
        lambda chunk, was, *rest, **kw: edit.NewChunk(
            {**chunk.tree, Chunk.META: {**was.meta, Meta.BLOOM: 0}}, None, None, None
        ),
    ),
}


def faults(tmp_path: Path, *, all_of_them: bool = False) -> list[str]:
    """What the checks have to say about a few edits; of the first that is at fault, by default."""
    found: list[str] = []
    sources = corpus.sources()
    for name in SOURCES:
        data = sources[name]()
        table = pq.read_table(pa.BufferReader(data))
        footer = decode_footer(data, file_size=len(data))
        for pattern in PATTERNS:
            if found and not all_of_them:
                return found
            edit = surgeon.patterns(data)[pattern]
            where = f"{name}, {pattern}: "
            try:
                _, result = surgeon.operate(data, edit)
            except AssertionError as error:
                found.append(f"{where}refused by surgery itself: {error}")
                continue
            known = checker.kinds(data)
            found += [f"{where}{k} {d}" for k, d in checker.problems(result) if k not in known]
            if checker.kinds(result) & {"unreadable"}:
                continue
            kept = pa.array(surgeon.kept_rows(footer, edit))
            path = tmp_path / "new.parquet"
            path.write_bytes(result)
            try:
                if not engines.same(engines.by_pyarrow(path), table.take(kept)):
                    found.append(where + "other rows")
            except Exception as error:
                found.append(f"{where}unreadable: {error}")
                continue
            found += [where + text for text in _loose_bounds(path)]
            if gaps := checker.gaps_between_groups(result):
                found.append(f"{where}gaps {gaps}")
    return found


def _loose_bounds(path: Path) -> list[str]:
    file = pq.ParquetFile(path)
    found = []
    for group in range(file.num_row_groups):
        values = file.read_row_group(group, columns=["id"])["id"]
        ends = pc.min_max(values).as_py()
        stats = file.metadata.row_group(group).column(0).statistics
        if (stats.min, stats.max) != (ends["min"], ends["max"]):
            found.append(f"bounds of row group {group}")
    return found


def test_without_a_mutation_nothing_is_found(tmp_path: Path) -> None:
    assert faults(tmp_path, all_of_them=True) == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_broken_rule_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    MUTATIONS[name](monkeypatch)
    assert faults(tmp_path) != []

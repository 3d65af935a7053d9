"""A file whose footer contradicts itself is not cut: it is written whole, as far as readers can read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inlay.errors import UnreadableFile
from inlay.ops.cache import ObjectCache
from inlay.ops.maintain.rewrite import rewrite
from inlay.parquet.footer.fields import Chunk, File, Meta
from inlay.parquet.footer.footer import Footer, decode_footer, end_of_file
from inlay.parquet.footer.pages import read_layout

from ..maintenance.bench import Bench, id_is, new_bench


def _index_within_another(footer: Footer) -> None:
    footer.row_groups[3].columns[0].tree[Chunk.OFFSET_INDEX] += 1


def _overlapping_chunks(footer: Footer) -> None:
    footer.row_groups[2].columns[0].meta[Meta.COMPRESSED] += 8


def _wrong_total(footer: Footer) -> None:
    footer.tree[File.ROWS] += 1


LIES = [_index_within_another, _overlapping_chunks, _wrong_total]


@pytest.fixture
def bench() -> Bench:
    bench = new_bench(properties=[("write.row_group_rows", 10)])
    bench.append(60)
    return bench


def _lie(bench: Bench, change: Callable[[Footer], None]) -> None:
    """Change the footer of the table's only file in place."""
    [entry] = bench.load().state.files()
    data = bench.store.get(bench.ctx.key(entry.key)).body
    footer = decode_footer(data, file_size=len(data))
    change(footer)
    changed = data[: len(data) - footer.length] + end_of_file(footer.tree)
    assert len(changed) == len(data)
    with pytest.raises(UnreadableFile):
        read_layout(decode_footer(changed, file_size=len(changed)))
    bench.store.put(bench.ctx.key(entry.key), changed)
    bench.ctx = replace(bench.ctx, cache=ObjectCache())


@pytest.mark.parametrize("lie", LIES)
def test_it_is_written_whole_and_the_choice_says_why(bench: Bench, lie: Any) -> None:
    bench.delete(id_is(3, 34))
    _lie(bench, lie)
    before = bench.rows()
    result = rewrite(bench.ctx, strategy="surgery")
    assert (result.surgery, result.rewritten, result.failures) == (0, 1, ())
    [(_, choice)] = result.choices
    assert choice.method == "rewrite" and choice.no_surgery
    assert bench.rows() == before == [(i, f"v{i}") for i in range(60) if i not in (3, 34)]
    [entry] = bench.load().state.files()
    data = bench.store.get(bench.ctx.key(entry.key)).body
    read_layout(decode_footer(data, file_size=len(data)))


@pytest.mark.parametrize("strategy", ["surgery", "rewrite"])
def test_damaged_pages_of_a_touched_group_leave_the_file_as_it_is(
    bench: Bench, strategy: Any
) -> None:
    bench.append(60)
    bench.delete(id_is(3, 34, 63))
    entry = next(f for f in bench.load().state.files() if f.stats[1].lower == 0)
    key = bench.ctx.key(entry.key)
    data = bytearray(bench.store.get(key).body)
    column = decode_footer(bytes(data), file_size=len(data)).row_groups[3].columns[1]
    data[column.start : column.end] = bytes(column.end - column.start)
    bench.store.put(key, bytes(data))
    result = rewrite(bench.ctx, strategy=strategy)
    # Nothing is derived from it, and it keeps no other file from its turn.
    assert [failure.key for failure in result.failures] == [entry.key]
    assert result.files == 1
    assert entry in list(bench.load().state.files())

"""Files are rewritten beside one another where memory allows, and what one does harms no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import inlay.ops.maintain.rewrite as rewriting
import inlay.ops.maintain.units as units
from inlay.errors import StoreUnavailable, UnreadableFile
from inlay.ops.context import Context, InlineExecutor, Workers
from inlay.ops.maintain.rewrite import FileWork, rewrite
from inlay.plan.scan import FileTask

from .bench import Bench, id_is

MIB = 2**20
FILES = 3
Rewrite = Callable[[Context, FileTask], Any]


@pytest.fixture
def busy(bench: Bench) -> Iterator[Bench]:
    """Three files with a deleted row each, and threads to work on them."""
    for _ in range(FILES):
        bench.append(10)
    bench.delete(id_is(3, 14, 25))
    with Workers(FILES) as workers:
        yield replace(bench, ctx=replace(bench.ctx, executor=workers))


def before_each_file(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[Context, FileTask], None]
) -> None:
    real = rewriting.rewrite_task

    def watched(ctx: Context, loaded: Any, task: FileTask, **options: Any) -> Any:
        action(ctx, task)
        return real(ctx, loaded, task, **options)

    monkeypatch.setattr(rewriting, "rewrite_task", watched)


def test_small_files_are_rewritten_beside_one_another(
    busy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_there = threading.Barrier(FILES)
    before_each_file(monkeypatch, lambda ctx, task: void(all_there.wait(timeout=20)))
    result = rewrite(busy.ctx)
    assert (result.files, result.commits) == (FILES, 1)
    assert busy.ids() == [i for i in range(30) if i not in (3, 14, 25)]


def void(_: object) -> None:
    return None


def test_files_that_fill_the_memory_are_rewritten_one_by_one_with_parallel_requests(
    busy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "HELD_BYTES", 1)
    seen: list[tuple[int, bool]] = []

    def note(ctx: Context, task: FileTask) -> None:
        seen.append((threading.get_ident(), ctx.executor is busy.ctx.executor))

    before_each_file(monkeypatch, note)
    assert rewrite(busy.ctx).files == FILES
    assert seen == [(threading.get_ident(), True)] * FILES


def test_an_unreadable_file_costs_only_itself(busy: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = next(iter(busy.load().state.files())).key

    def refuse(ctx: Context, task: FileTask) -> None:
        if task.file.key == bad:
            raise UnreadableFile("broken")

    before_each_file(monkeypatch, refuse)
    result = rewrite(busy.ctx)
    assert [f.key for f in result.failures] == [bad]
    assert result.files == FILES - 1


def test_what_was_done_beside_an_outage_is_kept(
    busy: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlucky = next(iter(busy.load().state.files())).key

    def fail(ctx: Context, task: FileTask) -> None:
        if task.file.key == unlucky:
            raise StoreUnavailable("down")

    before_each_file(monkeypatch, fail)
    with pytest.raises(StoreUnavailable):
        rewrite(busy.ctx)
    assert [f.key for f in busy.load().state.files() if f.rows == 10] == [unlucky]


@pytest.mark.parametrize(
    ("size", "row_groups", "alone"),
    [(256 * MIB, 20, True), (24 * MIB, 24, False), (4 * MIB, 1, False), (16 * MIB, 1, True)],
)
def test_memory_goes_by_the_row_group_and_the_bytes_on_their_way(
    busy: Bench, size: int, row_groups: int, alone: bool
) -> None:
    entry = replace(next(iter(busy.load().state.files())), size=size, row_groups=row_groups)
    work = FileWork(FileTask(file=entry, schema=busy.load().snapshot.schema), entry)
    assert units.runs_alone(work.held_bytes) is alone
    inline = isinstance(units.own_context(busy.ctx, work.held_bytes).executor, InlineExecutor)
    assert inline is not alone

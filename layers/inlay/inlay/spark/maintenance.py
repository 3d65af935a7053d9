"""Maintenance of large tables: the driver plans and commits, executors do the work.

Promise: the operations are those of `inlay.engine`, and so are their results; only where a unit runs
differs. Work is done in waves, one commit each: a crash costs a wave, a unit that fails or conflicts with
another writer costs itself, and the next run finds what is left. Only entries go to the driver. What change
streams remember of deletes is small: the driver itself does the same for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from inlay import AdvanceResult, CompactResult, RewriteResult
from inlay.engine import advance_erasures as advance
from inlay.engine import compact as compact_table
from inlay.engine import parse_predicate
from inlay.engine import rewrite as rewrite_table
from inlay.progress import Progress, no_progress
from inlay.spark.connect import load_writable
from inlay.spark.executors import Executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    uri: str,
    *,
    target_bytes: int | None = None,
    small_bytes: int | None = None,
    task_memory_bytes: int | None = None,
    progress: Progress = no_progress,
) -> CompactResult:
    """Packs small files, sorts rows across files and applies deletes, like `t.maintain.compact`. No task
    takes a unit that needs more than `task_memory_bytes` of Python memory."""
    executors = Executors(spark, uri, "compact")
    ctx, loaded = load_writable(uri)
    return compact_table(
        replace(ctx, progress=progress),
        base=loaded,
        memory_bytes=task_memory_bytes,
        target_bytes=target_bytes,
        small_bytes=small_bytes,
        runner=executors,
    )


def materialize_deletes(
    spark: SparkSession,
    uri: str,
    *,
    where: str | None = None,
    strategy: Literal["auto", "surgery", "rewrite"] = "auto",
    progress: Progress = no_progress,
) -> RewriteResult:
    """Removes deleted rows from files, like `t.maintain.rewrite`: from all files, or from those that
    may hold a row for which `where` (SQL text) is TRUE."""
    executors = Executors(spark, uri, "materialize_deletes")
    ctx, loaded = load_writable(uri)
    predicate = None if where is None else parse_predicate(where, loaded.snapshot.schema)
    return rewrite_table(
        replace(ctx, progress=progress),
        base=loaded,
        where=predicate,
        strategy=strategy,
        runner=executors,
    )


def advance_erasures(
    spark: SparkSession, uri: str, *, progress: Progress = no_progress
) -> AdvanceResult:
    """Rewrites the files that hold rows of open erasures: main's, then those of every branch and tag. Only
    `collect_garbage` deletes what is then left of them, and writes the receipt."""
    executors = Executors(spark, uri, "advance_erasures")
    ctx, loaded = load_writable(uri)
    return advance(replace(ctx, progress=progress), base=loaded, runner=executors)

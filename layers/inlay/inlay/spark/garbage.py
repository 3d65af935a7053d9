"""Garbage collection of tables with millions of objects: executors list and delete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inlay import CollectResult
from inlay.engine import collect_garbage as collect
from inlay.progress import Progress, no_progress
from inlay.spark.connect import connect
from inlay.spark.executors import Executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def collect_garbage(
    spark: SparkSession,
    uri: str,
    *,
    grace_seconds: float | None = None,
    dry_run: bool = False,
    hmac_key: bytes | None = None,
    life_seconds: float | None = None,
    clock_margin_seconds: float | None = None,
    progress: Progress = no_progress,
) -> CollectResult:
    """Deletes what has been unneeded for the grace, like `t.maintain.collect_garbage`. The sweep of an open
    erasure runs on the driver: it lists the versions of all objects."""
    return collect(
        replace(connect(uri), progress=progress),
        runner=Executors(spark, uri, "collect_garbage"),
        grace_seconds=grace_seconds,
        dry_run=dry_run,
        hmac_key=hmac_key,
        life_seconds=life_seconds,
        clock_margin_seconds=clock_margin_seconds,
    )

"""Spark's executors as the processes that run an operation's tasks (`ops.task_runner.TaskRunner`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from inlay.spark.connect import connect
from inlay.spark.context import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Executors:
    """For an operation on the table at `uri`. Raises `InvalidRequest`, naming the verb, for a client of
    Spark Connect."""

    def __init__(self, spark: SparkSession, uri: str, verb: str) -> None:
        self._context = context_of(spark, verb)
        self._uri = uri

    @property
    def slots(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        if not tasks:
            return []
        sent = self._context.parallelize(tasks, len(tasks))
        return list(sent.map(partial(_run, self._uri)).collect())


def _run(uri: str, task: Any) -> Any:
    return task.run(connect(uri))

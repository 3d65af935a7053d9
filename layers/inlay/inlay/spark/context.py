"""What a Spark session has: a context of its own, or none (Spark Connect), and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from inlay.errors import InlayError, InvalidRequest

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def find_context(spark: SparkSession) -> SparkContext | None:
    """None for a client session of Spark Connect, which has no context."""
    # PySpark's own error for it is an AttributeError.
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    return context


def context_of(spark: SparkSession, verb: str) -> SparkContext:
    """The session's context, which runs our tasks. Raises `InvalidRequest`, naming the verb, for a client
    of Spark Connect, which has none."""
    context = find_context(spark)
    if context is None:
        raise InvalidRequest(
            f"{verb} does not run through Spark Connect: it sends tasks to executors itself",
            next_step="Run it in a session on the cluster, as the jobs in pipelines do with spark-submit",
        )
    return context


def java_class(spark: Any, name: str) -> Any:
    """A class of Spark's JVM, by its whole name. `spark._jvm.org.apache…` asks the JVM about each part of
    the name, which looks for a class there: half of what a small query costs the driver."""
    from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]

    return JavaClass(name, spark._jvm._gateway_client)


def to_seq(spark: Any, values: Iterable[Any]) -> Any:
    """Scala's sequence of these."""
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(values))


def activate(spark: SparkSession) -> None:
    """Makes the session the active one of this thread, if that has none. Spark finds sources in Python that
    are written to by the active session, and a thread that a program starts has none."""
    if getattr(spark, "_jvm", None) is None or find_context(spark) is None:
        return
    sessions = java_class(spark, "org.apache.spark.sql.classic.SparkSession")
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)


def is_set(spark: SparkSession, name: str) -> bool:
    """Whether a setting of the session is true, in any spelling that Spark takes for it."""
    return str(spark.conf.get(name, "false")).strip().lower() == "true"


class CalledBack:
    """What Spark's JVM calls in this process. What is raised within `noting`, Spark wraps into an error of
    its own; `unwrapped` raises it as it was."""

    error: Exception | None = None  # the last

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.error = error
            raise

    @contextmanager
    def unwrapped(self) -> Iterator[None]:
        try:
            yield
        except InlayError:
            raise
        except Exception:
            if self.error is None:
                raise
            raise self.error from None

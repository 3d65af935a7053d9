"""What a Spark session has: a context of its own, or none (Spark Connect), and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]

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


class _Class(JavaClass):  # type: ignore[misc]  # py4j is untyped
    """One that asks the JVM once for each of its static members: methods, and constants."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        setattr(self, name, member)
        return member


# By the connection to a JVM.
_CLASSES: WeakKeyDictionary[Any, dict[str, _Class]] = WeakKeyDictionary()


def java_class(spark: Any, name: str) -> Any:
    """A class of Spark's JVM, by its whole name. `spark._jvm.org.apache…` asks the JVM about each part of
    the name, which looks for a class there: half of what a small query costs the driver."""
    client = spark._jvm._gateway_client
    classes = _CLASSES.setdefault(client, {})
    if name not in classes:
        classes[name] = _Class(name, client)
    return classes[name]


def to_seq(spark: Any, values: Iterable[Any]) -> Any:
    """Scala's sequence of these."""
    if not (given := list(values)):
        return getattr(java_class(spark, "scala.collection.immutable.Nil$"), "MODULE$")
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(given)


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

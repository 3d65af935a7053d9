"""What Spark shows of an error that is raised in one of its Python processes.

Promise: an `InlayError` that says what its reader can do is shown by its own text. Spark writes the
traceback before the text of an error of a data source or a task, so that the reader of a notebook meets
twenty lines of this package first. That of an operator's error (`ErrorKind.PAGE`), and of an error that is
not ours, is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from inlay.errors import ErrorKind, InlayError

_Class = TypeVar("_Class", bound=type)

# PySpark's own, set by `spark.sql.execution.pyspark.udf.hideTraceback.enabled` for all errors of a session.
# It is looked at when an error is reported, and then the process ends.
_HIDES = "SPARK_HIDE_TRACEBACK"
# Where it makes a stream's reader and there is none, Spark's runner fails once more, as it stops it; that
# last error is all that would be shown.
_SHOWN = "streamReader"


def in_words(cls: _Class) -> _Class:
    """A class whose methods Spark calls in processes of its own: their errors are shown in words."""
    for name, method in list(vars(cls).items()):
        is_called = name != _SHOWN and (not name.startswith("_") or name == "__getstate__")
        if is_called and isinstance(method, FunctionType):
            setattr(cls, name, _in_words(method))
    return cls


def _in_words(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(*given: Any, **named: Any) -> Any:
        with _shown_in_words():
            result = method(*given, **named)
        return _read_in_words(result) if isinstance(result, Iterator) else result

    return called


def _read_in_words(rows: Iterator[Any]) -> Iterator[Any]:
    with _shown_in_words():
        yield from rows


@contextmanager
def _shown_in_words() -> Iterator[None]:
    try:
        yield
    except InlayError as error:
        if error.kind is not ErrorKind.PAGE and _is_spark_s():
            os.environ[_HIDES] = "1"
        raise


def _is_spark_s() -> bool:
    """Whether this process is one of Spark's, and not a driver, which goes on after an error."""
    from pyspark import SparkContext

    return SparkContext._gateway is None

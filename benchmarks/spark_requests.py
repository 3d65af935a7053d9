"""Counting what all processes of a Spark application ask stores for: driver, planners and executors.

Importing this module counts the requests of every store that the process opens from then on, so import it
before `inlay`; Python processes that find `on_path` in their path import it as they start. Each appends a
letter to a file of its own for each request, so a process that is killed loses nothing. What Spark's own
Parquet reader asks for is not seen here: it is in the JVM.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any, cast

from inlay.storage import open as opening
from inlay.storage.wrapped import Meter, MeteredStore

FOLDER = "INLAY_COUNTED_REQUESTS"


class _Counted(Meter):
    def sent(self, verb: str, bytes_up: int = 0) -> None:
        super().sent(verb, bytes_up)
        os.write(_file(os.getpid()), b".")


@cache
def _file(process: int) -> int:
    name = Path(os.environ[FOLDER]) / str(process)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


_opened = opening.open_store


def _open_counted(uri: str, *options: Any, **others: Any) -> tuple[Any, str]:
    store, root = _opened(uri, *options, **others)
    return MeteredStore(store, _Counted()), root


opening.open_store = cast(Any, _open_counted)


def on_path(folder: Path) -> str:
    """A path to look for modules in that makes Python count; requests are kept in `folder`."""
    (folder / "counted").mkdir()
    (folder / "sitecustomize.py").write_text(f"import {__name__}\n")
    os.environ[FOLDER] = str(folder / "counted")
    found = (str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(filter(None, found))


def total() -> int:
    """Requests so far, of all processes."""
    return sum(file.stat().st_size for file in Path(os.environ[FOLDER]).iterdir())

"""Counting what all processes of a Spark application ask of directories: driver, planners and executors.

Importing this module counts in this process; Python processes that find `on_path` in their path import it
as they start. Each appends a letter to a file of its own for each request, so a process that is killed
loses nothing. What Spark's own Parquet reader asks for is not seen here: it is in the JVM.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from inlay.engine import open_store
from store_requests import count_requests

FOLDER = "INLAY_COUNTED_REQUESTS"


@cache
def _file(process: int) -> int:
    name = Path(os.environ[FOLDER]) / str(process)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _sent(key: str, bytes_up: int) -> None:
    os.write(_file(os.getpid()), b".")


count_requests(open_store(f"file://{Path.cwd().as_posix()}")[0], _sent)


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

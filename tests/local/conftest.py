"""What the tests of the local AWS share: functions small enough to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inlay.local.runtime import FunctionPool
from inlay.local.template import Function

HANDLER = """
import os, time

def handler(event, context):
    if "raise" in event:
        raise ValueError(event["raise"])
    if "exit" in event:
        os._exit(event["exit"])
    time.sleep(event.get("sleep", 0))
    if "touch" in event:
        open(event["touch"], "w").close()
    return {"process": os.getpid(), "name": context.function_name, **os.environ}
"""


@pytest.fixture
def start_function(tmp_path: Path) -> Iterator[Callable[..., FunctionPool]]:
    """Start the handler above, with a timeout and a number of processes."""
    (tmp_path / "handler.py").write_text(HANDLER)
    with ExitStack() as running:

        def start(*, timeout_seconds: int = 10, size: int = 1) -> FunctionPool:
            function = Function(
                logical_id="SampleFunction",
                name="sample",
                code=tmp_path,
                handler="handler.handler",
                timeout_seconds=timeout_seconds,
                memory_mb=128,
                environment={},
            )
            return running.enter_context(
                FunctionPool(
                    function,
                    environment={"GIVEN": "by the template"},
                    log=tmp_path / "sample.log",
                    size=size,
                )
            )

        yield start

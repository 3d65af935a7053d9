"""Streaming queries that run to their end."""

from __future__ import annotations

from typing import Any

TRIES = 5


def run_to_end(writer: Any, *target: str) -> None:
    """Everything that there is now, by the query of a DataStreamWriter with a checkpoint.

    Spark gives the process of a Python source ten seconds to start (PythonWorkerFactory, not configurable).
    On a busy machine that may be too little: the query goes on from its checkpoint then, as a user's would.
    """
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(TRIES)):
        query = writer.trigger(availableNow=True).start(*target)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            return

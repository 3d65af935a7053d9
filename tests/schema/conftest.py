"""Small tables in memory, with every request in the calling thread."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.ops.context import Context, InlineExecutor
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

from ..clock import Clock

_names = itertools.count()


def memory_context(seed: int = 0) -> Context:
    name = f"schema-{next(_names)}"
    return Context(
        store=MeteredStore(MemoryStore(name)),
        root="t",
        uri=f"memory://{name}/t",
        executor=InlineExecutor(),
        clock=Clock(1_790_000_000.0),
        random=random.Random(seed),
    )


def table_of(schema: pa.Schema, **options: Any) -> inlay.Table:
    ctx = memory_context()
    return inlay.create(ctx.uri, schema, context=ctx, **options)


def again(table: inlay.Table, **options: Any) -> inlay.Table:
    """Another handle of the same table."""
    return inlay.open(table.uri, context=table._ctx, **options)


@pytest.fixture
def make() -> Callable[..., inlay.Table]:
    return table_of


def rows_of(table: inlay.Table, **options: Any) -> list[dict[str, Any]]:
    return table.scan(**options).to_arrow().to_pylist()

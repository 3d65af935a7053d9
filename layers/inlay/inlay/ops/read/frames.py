"""Rows as frames of pandas and Polars, where these are installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest, SchemaMismatch


def installed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidRequest(
            f"this needs {module}, which is not installed",
            next_step=f"pip install {module}, or use to_arrow()",
        ) from None


def as_enums(rows: pa.Table, orders: Mapping[str, Sequence[str]]) -> Any:
    """Rows as a frame of Polars; `orders` are the entries of ordered categories of texts, by column. Raises
    `SchemaMismatch` for a value that is none of them."""
    pl = installed("polars")
    frame = pl.from_arrow(rows)
    for name in orders.keys() & set(frame.columns):
        try:
            kind = pl.Enum(orders[name])
            frame = frame.with_columns(pl.col(name).cast(pl.String).cast(kind))
        except pl.exceptions.InvalidOperationError:
            raise SchemaMismatch(
                f"column {name!r} has a value that is none of its ordered categories, which Polars' Enum "
                "cannot hold",
                next_step="Append rows whose ordered category lists it in its place, or read by "
                "pl.from_arrow(t.scan())",
            ) from None
    return frame

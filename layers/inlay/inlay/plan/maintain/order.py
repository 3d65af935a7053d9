"""The order of a table's rows: what its properties say of it, and where values lie in it."""

from __future__ import annotations

from typing import Any, Literal

from inlay.errors import InvalidRequest
from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive, listed_names
from inlay.format.snapshot import Snapshot
from inlay.format.values import order_key
from inlay.record import Record

# A z-order key has 64 bits: with more columns, each has too few bits to be useful.
MAX_ZORDER_COLUMNS = 4

OrderKind = Literal["sort", "zorder"]


class Order(Record):
    """The order of rows: by columns in turn (`sort`), or interleaved (`zorder`)."""

    kind: OrderKind
    columns: tuple[int, ...]

    @property
    def interleaves(self) -> bool:
        """Whether all columns count alike, so that a file needs bounds for each."""
        match self.kind:
            case "sort":
                return False
            case "zorder":
                return True


def order_of(snapshot: Snapshot) -> Order | None:
    """The order set by the table's properties; None for no clustering.

    Raises `InvalidRequest` when they name columns that cannot be ordered by.
    """
    properties = snapshot.settings
    strategy = properties.text("compact.strategy")
    names = listed_names(properties.text("compact.columns"))
    if strategy == "pack" or (strategy == "auto" and not (names or snapshot.sort_by)):
        return None
    columns = tuple(_column(snapshot, name) for name in names) or snapshot.sort_by
    order = Order("zorder" if strategy == "zorder" else "sort", columns)
    if not columns or (order.interleaves and not 2 <= len(columns) <= MAX_ZORDER_COLUMNS):
        number = f"two to {MAX_ZORDER_COLUMNS} columns" if order.interleaves else "a column"
        raise InvalidRequest(
            f"compact.strategy={strategy} needs {number}, not {len(columns)}",
            next_step='Name them: compact.columns="country, event_time"',
        )
    return order


def _column(snapshot: Snapshot, name: str) -> int:
    field = snapshot.column_named(name)
    if field is not None and isinstance(field.type, Primitive):
        return field.id
    raise InvalidRequest(
        f"compact.columns names {name!r}, which is not a primitive column of this table",
        next_step="Set it anew (inlay set TABLE compact.columns=…). The columns are: "
        + ", ".join(snapshot.schema.names),
    )


def span_of(stats: ColumnStats | None) -> tuple[Any, Any] | None:
    if stats is None or stats.lower is None or stats.upper is None:
        return None
    return order_key(stats.lower), order_key(stats.upper)

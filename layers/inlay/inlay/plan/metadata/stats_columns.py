"""Which columns have statistics in the entries of files.

Promise: the same columns for the same schema, key, order and properties, at creation and at every change of
the property.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.format.properties import Properties
from inlay.format.schema import Primitive, Schema


def choose_stats_columns(
    schema: Schema,
    primary_key: tuple[int, ...],
    sort_by: tuple[int, ...],
    properties: Mapping[str, str],
    *,
    partitioned_by: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Field ids: the sort columns, the key, the sources of partitions, then the first columns, up to
    `stats.columns`."""
    plain = (f.id for f in schema.fields if isinstance(f.type, Primitive))
    wanted = [*sort_by, *primary_key, *partitioned_by, *plain]
    return tuple(dict.fromkeys(wanted))[: Properties(properties).stats_columns]

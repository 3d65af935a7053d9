"""Partitionings as users write them: `day(ts)`, `bucket(16, id)`, `truncate(4, name)`, or a column's name.

Promise: `partition_fields(spec_text(spec, schema), schema)` has the sources and transforms of `spec`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from inlay.errors import InvalidRequest
from inlay.format.partition import (
    CALENDAR,
    MAX_FIELDS,
    MAX_WIDTH,
    Transform,
    TransformName,
    parse_transform,
    result_type,
)
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import PartitionField, PartitionSpec

_CALL = re.compile(r"([a-z]+)\(\s*(?:([0-9]+)\s*,\s*)?(.+?)\s*\)", re.IGNORECASE | re.DOTALL)
# As in Spark's DDL.
_PLURALS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def partition_fields(texts: Sequence[str], schema: Schema) -> tuple[PartitionField, ...]:
    """The fields of a spec from texts such as `day(ts)`, `bucket(16, id)`, `truncate(4, name)` or a
    column's name. Raises `InvalidRequest`."""
    if len(texts) > MAX_FIELDS:
        raise InvalidRequest(f"a table is partitioned by at most {MAX_FIELDS} fields")
    fields: list[PartitionField] = []
    for text in texts:
        made = _field(text, schema)
        if any((f.source, f.transform) == (made.source, made.transform) for f in fields):
            raise InvalidRequest(f"the partitioning lists {text.strip()[:100]} twice")
        fields.append(made)
    return tuple(fields)


def _field(text: str, schema: Schema) -> PartitionField:
    transform, name = _parsed(text, schema)
    column = schema.column_named(name)
    if column is None or not isinstance(column.type, Primitive):
        raise InvalidRequest(
            f"the table cannot be partitioned by {name[:100]!r}, which is not a primitive column",
            next_step=schema.other_case(name)
            or f"The columns are: {', '.join(schema.names)[:500]}",
        )
    if result_type(transform, column.type) is None:
        raise InvalidRequest(
            f"{transform} does not take column {name[:100]!r} of type {column.type}",
            next_step="Choose another transform; docs/FORMAT.md lists which types each takes",
        )
    return PartitionField(column.id, str(transform), _name(transform, column.name))


def _parsed(text: str, schema: Schema) -> tuple[Transform, str]:
    match = _CALL.fullmatch(text.strip())
    # A column may have the name of a transform.
    just_a_name = match is None or (
        schema.column(match[3]) is None and schema.column(text) is not None
    )
    if match is None or just_a_name:
        return Transform("identity"), text
    name = _PLURALS.get(match[1].lower(), match[1].lower())
    width = int(match[2] or 0)
    takes_width = name in ("bucket", "truncate")
    known = takes_width or name in ("identity", *CALENDAR)
    if not known or takes_width != (match[2] is not None) or width > MAX_WIDTH:
        raise InvalidRequest(
            f"cannot partition by {text[:100]!r}",
            next_step="Write a column, or year(c), month(c), day(c), hour(c), bucket(16, c), "
            "truncate(4, c)",
        )
    if takes_width and width < 1:
        raise InvalidRequest(f"{name} needs a width of at least 1, not {width}")
    return Transform(cast(TransformName, name), width), match[3]


def _name(transform: Transform, column: str) -> str:
    if transform.name == "identity":
        return column
    short = "trunc" if transform.name == "truncate" else transform.name
    return f"{column}_{short}_{transform.width}" if transform.width else f"{column}_{short}"


def spec_text(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """The spec as users write it, with the current names of its columns in `schema`."""
    return tuple(_text(field, schema) for field in spec.fields)


def _text(field: PartitionField, schema: Schema) -> str:
    path = schema.path_of(field.source)
    name = ".".join(path) if path else f"field {field.source}"
    transform = parse_transform(field.transform)
    if transform.name == "identity" and not _CALL.fullmatch(name):
        return name
    # A column may have the name of a transform, or spaces at its ends.
    if name != name.strip() or '"' in name or not name:
        name = '"' + name.replace('"', '""') + '"'
    if transform.name == "identity":
        return f"identity({name})"
    width = f"{transform.width}, " if transform.width else ""
    return f"{transform.name}({width}{name})"

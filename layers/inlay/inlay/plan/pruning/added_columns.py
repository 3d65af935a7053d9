"""Added columns: a condition applied to rows written before its columns were added.

Promise: where a column was added later, its part of the condition has the value of the rows: the column's
default, or NULL. A column that was dropped stays in the condition: files may hold its values.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.format.predicate import And, Constant, Not, Or, Predicate, field_ids
from inlay.format.schema import Schema
from inlay.plan.pruning.absent_columns import absent
from inlay.plan.pruning.prune import Stats, all_match, may_match


def was_added_later(field_id: int, schema_id: int, schemas: Sequence[Schema]) -> bool:
    """Whether content under this schema was made before any schema had the field. For a branch with a
    schema of its own this may be false although its files never had the field."""
    return not any(s.by_id(field_id) for s in schemas if s.id <= schema_id)


def lacks_columns_of(predicate: Predicate, schema_id: int, schemas: Sequence[Schema]) -> bool:
    """Whether content under this schema has dropped a column of the condition: its files may hold values
    that no query of that content can select."""
    [schema] = (s for s in schemas if s.id == schema_id)
    return any(
        schema.by_id(i) is None and not was_added_later(i, schema_id, schemas)
        for i in field_ids(predicate)
    )


def for_content(predicate: Predicate, schema_id: int, schemas: Sequence[Schema]) -> Predicate:
    """`predicate` as it applies to the rows of content under this schema."""
    later = [i for i in field_ids(predicate) if was_added_later(i, schema_id, schemas)]
    if not later:
        return predicate
    there = {i for s in schemas if s.id <= schema_id for i in s.fields_by_id}
    stats = {}
    for field_id in later:
        newest = next((s for s in reversed(schemas) if s.by_id(field_id)), None)
        found = newest and absent(newest, field_id, lambda field: field.id in there)
        if found:
            stats[field_id] = found.stats(1)
    return _settled(predicate, stats)


def _settled(node: Predicate, stats: Stats) -> Predicate:
    """With a constant for each part that can only have one result."""
    match node:
        case And(parts):
            return And(tuple(_settled(part, stats) for part in parts))
        case Or(parts):
            return Or(tuple(_settled(part, stats) for part in parts))
        case Not(part):
            return Not(_settled(part, stats))
        case Constant():
            return node
    if not field_ids(node) <= stats.keys():
        return node
    if all_match(node, stats, 1):
        return Constant(True)
    if all_match(Not(node), stats, 1):
        return Constant(False)
    is_null = not may_match(node, stats, 1) and not may_match(Not(node), stats, 1)
    return Constant(None) if is_null else node

"""Schema conflicts: validation of a schema change, and of changes planned under another schema.

Promise: after a commit that passed here, every live file can be read under the schema, and every live
delete and open erasure names columns that it has. Checked on the base that is swapped out, so the second of
two racing commits is the one refused:

* a concurrent schema change is a conflict, unless both lead to the same columns,
* a column with a live delete or an open erasure is not dropped, and a delete planned before the drop is
  refused after it: it would delete nothing although it was reported as done,
* data written under an older schema keeps that schema, if it can be read under the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.predicate import field_ids
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct
from inlay.format.snapshot import Snapshot
from inlay.format.values import covered_range, widens
from inlay.plan.change import AlterSchema, Conflict
from inlay.plan.metadata.state import State
from inlay.plan.pruning.compared import uncompared
from inlay.plan.pruning.partitions import applies_to
from inlay.plan.scan import fields_of_marker
from inlay.plan.schema_evolution import evolve, key_after, same_columns, spell
from inlay.record import replace


def evolved(snapshot: Snapshot, edit: AlterSchema) -> Schema:
    """The snapshot's schema with the edit applied. Raises `InvalidRequest`."""
    return evolve(
        snapshot.schema,
        edit.evolution,
        schema_id=max(s.id for s in snapshot.schemas) + 1,
        next_id=snapshot.last_field_id + 1,
        version=snapshot.version + 1,
    )


def altered(snapshot: Snapshot, schema: Schema, edit: AlterSchema) -> Snapshot:
    """The snapshot with this schema, which the edit made, and the edit's key."""
    names = edit.evolution.key
    return replace(
        snapshot,
        primary_key=snapshot.primary_key if names is None else key_after(schema, names),
        schemas=(*snapshot.schemas, schema),
        schema_id=schema.id,
        last_field_id=max(snapshot.last_field_id, schema.max_id()),
    )


def is_evolved(snapshot: Snapshot, edit: AlterSchema) -> bool:
    """Whether the table already has the columns that the edit asks for: it changes none, or another commit
    made the same change."""
    planned_on = snapshot.schema_by_id(edit.planned_on)
    known = frozenset(planned_on.fields_by_id)
    evolved = evolve(planned_on, edit.evolution, schema_id=0, next_id=snapshot.last_field_id + 1)
    key = edit.evolution.key
    if key is not None and key_after(evolved, key) != snapshot.primary_key:
        return False
    return same_columns(snapshot.schema, evolved, known)


def needed_entries(snapshot: Snapshot, edit: AlterSchema) -> tuple[bool, bool]:
    """Whether the edit depends on file entries, and whether on markers; most edits depend on neither."""
    if edit.planned_on != snapshot.schema_id:
        return False, False  # a conflict, whatever they say
    after = evolved(snapshot, edit)
    files = bool(
        fields_of_shorter_range(snapshot.schema, after) or key_gains(snapshot, edit, after)
    )
    return files, bool(_dropped(snapshot.schema, after))


def key_gains(snapshot: Snapshot, edit: AlterSchema, after: Schema) -> tuple[int, ...]:
    """The columns that the edit adds to the key."""
    names = edit.evolution.key
    key = () if names is None else key_after(after, names)
    return tuple(i for i in key if i not in snapshot.primary_key)


def uncompared_files(
    state: State, edit: AlterSchema, after: Schema
) -> list[tuple[DataFile, tuple[int, ...]]]:
    """Files with statistics of the new key that have not been compared with their rows, by column. Their
    entries must be loaded."""
    gains = key_gains(state.snapshot, edit, after)
    if not gains:
        return []
    files = (f for f in state.files() if f.key not in edit.compared)
    columns_of = ((entry, uncompared(state.snapshot, entry, gains, ())) for entry in files)
    return [(entry, columns) for entry, columns in columns_of if columns]


def validate_schema(state: State, edit: AlterSchema) -> Conflict | None:
    """Why the schema cannot be altered so any more."""
    if edit.planned_on != state.snapshot.schema_id:
        return Conflict("the schema was changed by another commit")
    try:
        check_evolution(state, edit)
    except InvalidRequest as error:
        return Conflict(error.message)
    return None


# -- what stands against a change of the schema ---------------------------------------------------


def check_evolution(state: State, edit: AlterSchema) -> None:
    """Raises `InvalidRequest` for what the table still needs. Entries the edit `needed_entries` must be
    loaded."""
    snapshot = state.snapshot
    after = evolved(snapshot, edit)
    dropped = _dropped(snapshot.schema, after)
    for ids, what, next_step in (
        (
            snapshot.primary_key,
            "primary key",
            "Give the table another key first: alter(primary_key=…)",
        ),
        (snapshot.sort_by, "sort order", "Sort the table by other columns first"),
        (
            tuple(field.source for field in snapshot.spec.fields),
            "partitioning",
            "Partition the table differently first",
        ),
    ):
        _check_unused(ids, dropped, f"is part of the {what} and cannot be dropped", next_step)
    if not applies_to(snapshot.spec.fields, after):
        raise InvalidRequest(
            "the table is partitioned by a column in a way that its new type does not support",
            next_step="Partition the table differently first",
        )
    for erasure in snapshot.erasures if dropped else ():
        _check_unused(
            frozenset() if erasure.predicate is None else field_ids(erasure.predicate),
            dropped,
            f"cannot be dropped: the open erasure {erasure.id!r} uses it",
            "Wait until the erasure has its receipt",
        )
    for marker in state.markers() if dropped else ():
        _check_unused(
            fields_of_marker(marker),
            dropped,
            "cannot be dropped: a delete that is not applied yet uses it",
            "Apply it by t.maintain.rewrite() (inlay rewrite), then drop the column",
        )
    if uncompared_files(state, edit, after):
        raise InvalidRequest(
            "files of other writers came, which have not been compared for this key"
        )
    shrunk = fields_of_shorter_range(snapshot.schema, after)
    if shrunk:
        schemas = {s.id: s for s in snapshot.schemas}
        for entry in state.files():
            reason = why_unreadable(entry, schemas[entry.schema_id], after, only=shrunk)
            if reason and entry.key not in edit.proven:
                raise InvalidRequest(
                    f"{reason} ({entry.key})",
                    next_step="Choose a coarser unit, or delete the rows and t.maintain.rewrite()",
                )


def _dropped(before: Schema, after: Schema) -> dict[int, str]:
    kept = after.fields_by_id
    return {f.id: spell(path) for path, f in before.walk() if f.id not in kept}


def _check_unused(ids: Iterable[int], dropped: dict[int, str], why: str, next_step: str) -> None:
    name = next((dropped[field_id] for field_id in ids if field_id in dropped), None)
    if name is not None:
        raise InvalidRequest(f"column {name!r} {why}", next_step=next_step)


# -- whether files can be read --------------------------------------------------------------------


def fields_of_shorter_range(before: Schema, after: Schema) -> frozenset[int]:
    """Fields whose new type covers fewer years than the old one: each file must be known to hold no value
    outside them."""
    return frozenset(
        field_id
        for field_id, now in after.types.items()
        if (was := before.types.get(field_id)) is not None
        and widens(was, now)
        and covered_range(was, now) is not None
    )


def why_unreadable(
    entry: DataFile, recorded: Schema, schema: Schema, *, only: frozenset[int] | None = None
) -> str:
    """Why a file recorded under one schema may not be readable under another; empty if it certainly is.
    `only` restricts the check to those fields."""
    old = recorded.fields_by_id
    for path, field in schema.walk():
        if only is not None and field.id not in only:
            continue
        was = old.get(field.id)
        reason = _missing(path, field, schema, old) if was is None else _unlike(entry, was, field)
        if reason:
            return f"column {spell(path)!r} {reason}"
    return ""


def _missing(path: tuple[str, ...], field: Field, schema: Schema, old: Mapping[int, Field]) -> str:
    if field.nullable or field.default is not None:
        return ""
    parent = next((f for p, f in schema.walk() if p == path[:-1]), None)
    # Where the parent is missing too, the parent decides.
    is_new_within = parent is not None and parent.id not in old
    return "" if is_new_within else "is required now, and this data lacks it"


def _unlike(entry: DataFile, was: Field, field: Field) -> str:
    if was.nullable and not field.nullable:
        return "is required now, and may hold NULL here"
    match was.type, field.type:
        case Primitive() as source, Primitive() as target:
            if not widens(source, target):
                return f"is {target} now, and was written as {source}"
            limits = covered_range(source, target)
            if limits is not None and not _within(entry, field.id, limits):
                return f"may hold values outside the range of {target}"
            return ""
        case (Struct(), Struct()) | (ListOf(), ListOf()) | (MapOf(), MapOf()):
            return ""
        case _:  # of two kinds
            return "has another structure now"


def _within(entry: DataFile, field_id: int, limits: tuple[int, int]) -> bool:
    known = entry.stats.get(field_id)
    if known is None:
        return False
    if known.null_count == entry.rows:
        return True
    lower, upper = known.lower, known.upper
    if not isinstance(lower, int) or not isinstance(upper, int):
        return False
    return limits[0] <= lower and upper <= limits[1]

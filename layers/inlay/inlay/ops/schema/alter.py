"""Alter: another schema for the same files.

Promise: no data file is changed; every row reads as before, under the new names and types. Anything else is
refused with the reason before anything is written. Another writer's statistics of columns that become part
of the key are compared with the rows. The change is planned on the schema that its caller saw:
if another commit changed that meanwhile it is refused, unless both lead to the same columns; then nothing
is committed twice.

Appended and ingested data may bring columns of its own: `admit_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from inlay.errors import ConcurrentChange, InvalidRequest, SchemaMismatch, a_type
from inlay.format.entry import DataFile
from inlay.format.schema import Field, MapOf, Primitive, Schema, split_path
from inlay.format.values import is_value
from inlay.ops.commit.driver import Committed, Skipped, already_applied, commit_planned, recent_base
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.read.compare_statistics import check_key
from inlay.parquet.arrow.declared import declarations
from inlay.parquet.arrow.types import (
    Pair,
    beside,
    beside_within,
    primitive_from_arrow,
    schema_from_arrow,
    to_physical,
)
from inlay.parquet.read.selection import Projection
from inlay.plan.change import AlterSchema, Change, Request
from inlay.plan.scan import FileTask
from inlay.plan.schema_conflicts import (
    check_evolution,
    evolved,
    fields_of_shorter_range,
    is_evolved,
    needed_entries,
    uncompared_files,
    why_unreadable,
)
from inlay.plan.schema_evolution import Evolution, Path, field_at, spell
from inlay.record import replace

MAX_COMMENT = 1_000
# A field of new data, with its Arrow types beyond the format's.
_New = tuple[Field, tuple[tuple[Path, str], ...]]


def alter(
    ctx: Context,
    evolution: Evolution,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Commits the schema that `evolution` makes of that of `base`. Raises `InvalidRequest` if the format or
    the table does not allow it, `ConcurrentChange` when the schema has changed since, `UntrueStatistics`
    for files that cannot have the key as they are (`ops.write.true_statistics`)."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    edit = AlterSchema(loaded.snapshot.schema_id, evolution)

    def plan(now: LoadedTable) -> Change:
        nonlocal edit
        if is_evolved(now.snapshot, edit):
            pass  # the table already has these columns
        elif now.snapshot.schema_id != edit.planned_on:
            raise ConcurrentChange(
                "the schema was changed by another commit since this table was read",
                next_step="Call refresh(), check the schema, and alter that one",
                table=ctx.uri,
                version=now.snapshot.version,
            )
        else:
            edit = checked(ctx, now, edit)
        return Change(operation="alter", request=request, updates=(edit,))

    return commit_planned(ctx, loaded, plan)


def checked(ctx: Context, loaded: LoadedTable, edit: AlterSchema) -> AlterSchema:
    """The edit, if nothing in this base prevents it."""
    snapshot = loaded.snapshot
    files, markers = needed_entries(snapshot, edit)
    state = load_entries(ctx, loaded.state, files=files, markers=markers)
    loaded = replace(loaded, state=state)
    if files:
        after = evolved(snapshot, edit)
        edit = replace(edit, proven=edit.proven | _proven(ctx, loaded, after, edit.proven))
        new = uncompared_files(state, edit, after)
        true = check_key(ctx, new, snapshot.schemas, after) if new else frozenset()
        edit = replace(edit, compared=edit.compared | true)
    check_evolution(loaded.state, edit)
    return edit


def _proven(
    ctx: Context, loaded: LoadedTable, after: Schema, known: frozenset[str]
) -> frozenset[str]:
    """Files whose values all fit `after`, where statistics alone do not prove it: they are read. Deleted
    rows count as well, because readers convert before they drop them."""
    snapshot = loaded.snapshot
    schemas = {s.id: s for s in snapshot.schemas}
    shrunk = fields_of_shorter_range(snapshot.schema, after)

    def fits(entry: DataFile) -> bool:
        recorded = schemas[entry.schema_id]
        tops = tuple(f.id for f in after.fields if shrunk & Schema(0, (f,)).fields_by_id.keys())
        task = FileTask(file=entry, schema=recorded)
        projection = Projection(schema=after, columns=tops)
        try:
            for _ in ctx.reader.rows([task], projection):
                pass
        except SchemaMismatch:
            return False
        return True

    unsure = [
        entry
        for entry in loaded.state.files()
        if entry.key not in known
        and why_unreadable(entry, schemas[entry.schema_id], after, only=shrunk)
    ]
    return frozenset(entry.key for entry in unsure if fits(entry))


# -- what callers ask for -------------------------------------------------------------------------


def evolution_of(
    schema: Schema,
    *,
    add: Mapping[str, Any] | pa.Schema | None = None,
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    widen: Mapping[str, Any] | None = None,
    optional: Sequence[str] = (),
    order: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    comment: Mapping[str, str] | None = None,
    primary_key: Sequence[str] | None = None,
) -> Evolution:
    """Names, types (Arrow's, or text) and Python values as an `Evolution` of `schema`. Raises
    `InvalidRequest`, `UnsupportedType`."""
    given = _mapping(defaults, "defaults")
    added: list[tuple[Path, Field]] = []
    declared: list[tuple[Path, str]] = []
    columns = {f.name: f for f in add} if isinstance(add, pa.Schema) else _mapping(add, "add")
    for name, kind in columns.items():
        path = parse_path(name, schema)
        default = given.get(name)
        if isinstance(kind, str):
            kind, written = _of_text(path[-1], kind)
            default = written if default is None else default
        added.append((path[:-1], _new_field(path, kind, default)))
        declared += _declared(path, kind)
    late = [name for name in given if name not in columns]
    if late:
        field_at(schema, parse_path(late[0], schema))  # a name that is none is the other mistake
        raise InvalidRequest(
            f"column {late[0]!r} exists already: its default cannot be changed, because that would change "
            "rows written before",
            next_step="Update the rows, or add another column with that default",
        )
    renamed: list[tuple[Path, str]] = []
    for name, other in _mapping(rename, "rename").items():
        path = parse_path(name, schema)
        new = parse_path(other, schema) if isinstance(other, str) else ()
        if not new or (len(new) > 1 and new[:-1] != path[:-1]):
            raise InvalidRequest(
                f"{name!r} cannot be renamed to {str(other)[:80]!r}",
                next_step="Give the new name alone: a rename cannot move a column into another struct",
            )
        renamed.append((path, new[-1]))
    comments = {
        parse_path(name, schema): _comment(name, text)
        for name, text in _mapping(comment, "comment").items()
    }
    # A new column brings its own.
    described = [
        (parent, replace(field, doc=comments.pop((*parent, field.name), field.doc)))
        for parent, field in added
    ]
    return Evolution(
        drop=_paths(drop, "drop", schema),
        rename=tuple(renamed),
        widen=tuple(
            (parse_path(name, schema), _primitive(name, kind))
            for name, kind in _mapping(widen, "widen").items()
        ),
        optional=_paths(optional, "optional", schema),
        add=tuple(described),
        order=_paths(order, "order", schema),
        comment=tuple(comments.items()),
        key=None if primary_key is None else tuple(primary_key),
        declared=tuple(declared),
    )


def parse_path(name: str, schema: Schema) -> Path:
    """`address.city`, `"odd.name".x` → a path. A column whose own name contains dots needs no quotes."""
    if not isinstance(name, str):
        raise InvalidRequest(f"the name of a column is text, not {a_type(name)}")
    if schema.column(name) is not None:
        return (name,)
    path = split_path(name)
    if path is None or not is_value(Primitive("string"), name):
        raise InvalidRequest(
            f"{name[:80]!r} is not a name of a column",
            next_step='Write nested fields as "outer.inner", and unusual names in double quotes',
        )
    return path


def _comment(name: str, text: object) -> str:
    if not isinstance(text, str) or len(text) > MAX_COMMENT:
        raise InvalidRequest(
            f"the comment on {name!r} is not a text of at most {MAX_COMMENT:,} characters",
            next_step="It is stored in every version's metadata: keep it short, or link to a page",
        )
    return text


def _paths(names: Sequence[str], what: str, schema: Schema) -> tuple[Path, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidRequest(f"{what} takes a list of columns", next_step=f"Give [{names!r}]")
    return tuple(parse_path(name, schema) for name in names)


def _mapping(given: Mapping[str, Any] | None, what: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            f"{what} cannot be {a_type(given)}", next_step='Give a dict: {"column": …}'
        )
    return given


def _declared(path: Path, kind: pa.DataType | pa.Field) -> Iterator[tuple[Path, str]]:
    """The Arrow types of a new field and of those within it, beyond the format's types."""
    field = kind if isinstance(kind, pa.Field) else pa.field(path[-1], kind)
    arrow = pa.schema([field.with_name(path[-1])])
    made = schema_from_arrow(arrow)
    for field_id, text in declarations(arrow, made).items():
        yield (*path[:-1], *(made.path_of(field_id) or ())), text


def _new_field(path: Path, kind: Any, default: Any) -> Field:
    if isinstance(kind, pa.DataType):
        kind = pa.field(path[-1], kind)
    if not isinstance(kind, pa.Field):
        raise InvalidRequest(
            f"the type of column {spell(path)!r} cannot be {a_type(kind)}",
            next_step='Give an Arrow type: {"x": pa.int64()}, or a pa.field for a required column',
        )
    [field] = schema_from_arrow(pa.schema([kind.with_name(path[-1])])).fields
    if default is None:
        return field
    if not isinstance(field.type, Primitive):
        raise InvalidRequest(
            f"column {spell(path)!r} is nested and cannot have a default",
            next_step="Give defaults to fields that are added to it later",
        )
    try:
        return replace(field, default=to_physical(default, field.type))
    except InvalidRequest:
        raise InvalidRequest(
            f"the default of column {spell(path)!r} is not a value of type {field.type}"
        ) from None


def _of_text(name: str, kind: str) -> tuple[pa.Field, Any]:
    from inlay.ops.schema.columns_text import (
        parse_column,  # the cold start of ingestion needs no SQL
    )

    return parse_column(name, kind)


def _primitive(name: str, kind: Any) -> Primitive:
    if isinstance(kind, str):
        kind, _ = _of_text(name, kind)
    if isinstance(kind, pa.Field):
        kind = kind.type
    primitive = primitive_from_arrow(kind) if isinstance(kind, pa.DataType) else None
    if primitive is None:
        raise InvalidRequest(
            f"column {name!r} cannot be widened to {str(kind)[:80]}",
            next_step='Give an Arrow type of plain values: {"x": pa.int64()}',
        )
    return primitive


def brings_columns(arrow: pa.Schema, schema: Schema) -> bool:
    """Whether data has fields that the table lacks. Raises `UnsupportedType` for those it cannot have."""
    return next(_unknown(beside(arrow, schema.fields), ()), None) is not None


def admit_columns(ctx: Context, loaded: LoadedTable, arrow: Iterable[pa.Schema]) -> LoadedTable:
    """The table with the columns that data of these schemas has and it lacks, if its property
    `schema.evolve` is `add`: one commit, none when there is nothing to add."""
    schemas = tuple(arrow)

    def plan(now: LoadedTable) -> Change | None:
        snapshot = now.snapshot
        if not snapshot.settings.adds_columns:
            return None
        columns: dict[Path, _New] = {}
        for schema in schemas:
            for path, new in _unknown(beside(schema, snapshot.schema.fields), ()):
                columns.setdefault(path, new)
        if not columns:
            return None
        evolution = Evolution(
            add=tuple((path[:-1], field) for path, (field, _) in columns.items()),
            declared=tuple(column for _, declared in columns.values() for column in declared),
        )
        edit = checked(ctx, now, AlterSchema(snapshot.schema_id, evolution))
        return Change(operation="alter", updates=(edit,))

    return commit_planned(ctx, loaded, plan).loaded


def _unknown(pairs: Iterable[Pair], path: Path) -> Iterator[tuple[Path, _New]]:
    """Fields that data has and a table lacks, at any depth, outermost only, without those of maps' keys.
    What has another structure is refused later."""
    for column, field in pairs:
        if column is not None and field is None:
            here = (*path, column.name)
            new = column.with_nullable(True)
            yield here, (_new_field(here, new, None), tuple(_declared(here, new)))
        elif column is not None and field is not None:
            within = beside_within(column.type, field.type)
            of_key = isinstance(field.type, MapOf)
            yield from _unknown(within[1:] if of_key else within, (*path, field.name))

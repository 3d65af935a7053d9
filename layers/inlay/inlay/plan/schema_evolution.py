"""Schema evolution: how a schema becomes the next one.

Promise: `evolve` returns a schema under which every file of the table reads as before, or refuses with the
reason. A column is its field id, so a rename or a move changes no file, and a reused name gets a new id and
never reads old data. The same schema, evolution and next id give the same answer.

The steps of one evolution are applied in this order, whatever the order of the arguments: drop, rename,
widen, make optional, add, order. Paths name fields as they are *before* it, except those in `add` and
`order`, which refer to its result.

Objections from the rest of the table (keys, live deletes, open erasures) are in `plan.schema_conflicts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import count
from typing import TypeVar

from inlay.errors import InvalidRequest
from inlay.format.schema import (
    MAX_FIELD_ID,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    Value,
    with_fields,
)
from inlay.format.values import widened, widens
from inlay.record import Record, replace

Path = tuple[str, ...]
T = TypeVar("T")

# Columns that a scan or a change feed can return besides those of the table.
RESERVED = frozenset(("_pos", "_file", "_change_type", "_commit_version", "_commit_timestamp"))
# A name is stored in the pointer and in every file, and appears in every error about it.
MAX_NAME_BYTES = 255
_KEY = "key"


class Evolution(Record, kw_only=True):
    """The requested changes. `add` holds the path of each new field's parent (empty for a column) and the
    field, whose ids are ignored; `order` lists fields that come first among their siblings."""

    drop: tuple[Path, ...] = ()
    rename: tuple[tuple[Path, str], ...] = ()
    widen: tuple[tuple[Path, Primitive], ...] = ()
    optional: tuple[Path, ...] = ()
    add: tuple[tuple[Path, Field], ...] = ()
    order: tuple[Path, ...] = ()
    comment: tuple[tuple[Path, str], ...] = ()
    key: tuple[str, ...] | None = None  # the primary key by name, after the changes; None: as it is
    # Arrow types of added fields beyond the format's types (property `arrow.types`). Not part of the
    # identity of a request.
    declared: tuple[tuple[Path, str], ...] = ()


def evolve(
    schema: Schema, evolution: Evolution, *, schema_id: int, next_id: int, version: int = 1
) -> Schema:
    """The schema after `evolution`; new fields get ids from `next_id`. Raises `InvalidRequest`."""
    steps = _Steps.of(schema, evolution)
    fields = tuple(steps.apply(f) for f in schema.fields if f.id not in steps.dropped)
    evolved = Schema(schema_id, fields, version)
    ids = count(next_id)
    for parent, field in evolution.add:
        evolved = _added(evolved, parent, field, ids)
    if evolved.max_id() > MAX_FIELD_ID:
        raise InvalidRequest(
            f"the table has given out every field id up to {MAX_FIELD_ID}",
            next_step="Copy its rows to a new table, whose columns are numbered from 1",
        )
    for parent in dict.fromkeys(path[:-1] for path in evolution.order):
        names = [path[-1] for path in evolution.order if path[:-1] == parent]
        evolved = _ordered(evolved, parent, names)
    _check(schema, evolved)
    return evolved


def key_after(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """The ids of a primary key's columns. Raises `InvalidRequest`."""
    ids: list[int] = []
    for name in names:
        column = field_at(schema, schema.path_named(name) or (name,))
        if not isinstance(column.type, Primitive):
            raise InvalidRequest(
                f"the primary key names {name!r}, which is not a plain column",
                next_step="A key is of top-level columns that are not nested",
            )
        ids.append(column.id)
    return tuple(ids)


def evolution_between(before: Schema, after: Schema) -> Evolution:
    """The steps from one schema to the other, by field ids. What no step can do is left out: the result
    then differs from `after`."""
    old = {f.id: (path, f) for path, f in before.walk()}
    new = {f.id: (path, f) for path, f in after.walk()}
    drop = [path for i, (path, _) in old.items() if i not in new]
    drop = [p for p in drop if not any(p[:n] in drop for n in range(1, len(p)))]
    kept = [(path, was, new[i][1]) for i, (path, was) in old.items() if i in new]
    added = [(path, f) for i, (path, f) in sorted(new.items()) if i not in old]
    names = {path for path, _ in added}
    tops = [(p, f) for p, f in added if not any(p[:n] in names for n in range(1, len(p)))]
    return Evolution(
        drop=tuple(drop),
        rename=tuple((path, now.name) for path, was, now in kept if now.name != was.name),
        widen=tuple(
            (path, now.type)
            for path, was, now in kept
            if now.type != was.type and isinstance(now.type, Primitive)
        ),
        optional=tuple(path for path, was, now in kept if now.nullable and not was.nullable),
        add=tuple((path[:-1], field) for path, field in tops),
        order=tuple(_orders(after)),
        comment=tuple((path, now.doc) for path, was, now in kept if now.doc != was.doc),
    )


def _orders(schema: Schema) -> list[Path]:
    """Every named field, in order among its siblings."""
    kinds: dict[Path, Type] = {path: field.type for path, field in schema.walk()}
    kinds[()] = Struct(schema.fields)
    in_structs = [path for path in kinds if path and isinstance(kinds[path[:-1]], Struct)]
    return [path for path in in_structs if not _is_in_key(schema, path)]


# -- paths ----------------------------------------------------------------------------------------


def field_at(schema: Schema, path: Path) -> Field:
    """The field at a path, which may go through list elements and map entries. Raises `InvalidRequest` with
    similar names."""
    field = next((f for p, f in schema.walk() if p == path), None)
    if field is None:
        known = [spell(p) for p, _ in schema.walk()]
        near = get_close_matches(spell(path), known, n=3, cutoff=0.6)
        other_case = schema.other_case(spell(path))
        names = ", ".join(known[:20])
        raise InvalidRequest(
            f"there is no column {spell(path)!r}",
            next_step=other_case
            or (f"Did you mean {' or '.join(near)}?" if near else f"There are: {names}"),
        )
    return field


def spell(path: Path) -> str:
    return ".".join(path)


# -- steps on fields that are there ---------------------------------------------------------------


class _Steps(Record):
    """The evolution by field id."""

    dropped: frozenset[int]
    names: dict[int, str]
    types: dict[int, Primitive]
    optional: frozenset[int]
    docs: dict[int, str]

    @staticmethod
    def of(schema: Schema, evolution: Evolution) -> _Steps:
        def by_id(named: Sequence[tuple[Path, T]], what: str) -> dict[int, T]:
            values = {field_at(schema, path).id: value for path, value in named}
            if len(values) < len(named):
                raise InvalidRequest(f"a column is named twice to {what}")
            return values

        for path in (*evolution.drop, *(p for p, _ in evolution.rename)):
            _check_has_name(schema, path)
        dropped = by_id([(path, None) for path in evolution.drop], "drop")
        names = by_id(evolution.rename, "rename")
        types = by_id(evolution.widen, "widen")
        docs = by_id(evolution.comment, "comment on")
        optional = by_id([(path, None) for path in evolution.optional], "make optional")
        both = dropped.keys() & {*names, *types, *docs, *optional}
        if both:
            name = spell(schema.path_of(min(both)) or ())
            raise InvalidRequest(f"column {name!r} is both dropped and changed")
        return _Steps(frozenset(dropped), names, types, frozenset(optional), docs)

    def apply(self, field: Field) -> Field:
        kind = self._type(field.type)
        default = field.default
        wider = self.types.get(field.id)
        if wider is not None:
            kind = _wider(field, wider)
            if default is not None and isinstance(field.type, Primitive):
                default = widened(default, field.type, wider)
        return replace(
            field,
            name=self.names.get(field.id, field.name),
            type=kind,
            nullable=field.nullable or field.id in self.optional,
            doc=self.docs.get(field.id, field.doc),
            default=default,
        )

    def _type(self, kind: Type) -> Type:
        match kind:
            case Struct(fields):
                kept = tuple(self.apply(f) for f in fields if f.id not in self.dropped)
                if not kept:
                    raise InvalidRequest(
                        f"a struct would be left without fields: {', '.join(f.name for f in fields)}",
                        next_step="Drop the struct itself",
                    )
                return Struct(kept)
            case MapOf(key) if key.id in self.optional:
                raise InvalidRequest("the key of a map is never NULL: it cannot be optional")
            case Primitive() | ListOf() | MapOf():
                return with_fields(kind, self.apply)


def _check_has_name(schema: Schema, path: Path) -> None:
    """Elements and map entries have no name of their own, and the keys of a map do not change."""
    if _is_in_key(schema, path):
        raise InvalidRequest(
            f"{spell(path)!r} is part of a map's key, which cannot be changed",
            next_step="Add a column of another type, and drop this one",
        )
    if len(path) > 1 and isinstance(field_at(schema, path[:-1]).type, ListOf | MapOf):
        raise InvalidRequest(
            f"{spell(path)!r} has no name that could be dropped or changed",
            next_step=f"Drop or rename {spell(path[:-1])!r}",
        )


def _is_in_key(schema: Schema, path: Path) -> bool:
    """Whether a field is the key of a map, or within one."""
    return any(
        path[depth] == _KEY and isinstance(field_at(schema, path[:depth]).type, MapOf)
        for depth in range(1, len(path))
    )


def _wider(field: Field, wider: Primitive) -> Primitive:
    kind = field.type
    if not isinstance(kind, Primitive):
        raise InvalidRequest(
            f"column {field.name!r} is nested: only values can be widened",
            next_step=f"Name the field within it: '{field.name}.…'",
        )
    if widens(kind, wider):
        return wider
    if widens(wider, kind):
        reason = f"{wider} is narrower: values of the column may not fit"
    else:
        reason = f"{wider} cannot hold every {kind} exactly"
    raise InvalidRequest(
        f"column {field.name!r} is {kind} and cannot become {wider}: {reason}",
        next_step="Add a column of that type, fill it by an update, and drop this one",
    )


# -- new fields -----------------------------------------------------------------------------------


def _added(schema: Schema, parent: Path, field: Field, ids: Iterator[int]) -> Schema:
    here = (*parent, field.name)
    if not field.nullable and field.default is None:
        raise InvalidRequest(
            f"column {spell(here)!r} is required and has no default: existing rows have no value for "
            "it",
            next_step="Give it a default, or make it optional",
        )
    if field.default is not None and not isinstance(field.type, Primitive):
        raise InvalidRequest(
            f"column {spell(here)!r} is nested and cannot have a default",
            next_step="Give defaults to fields that are added to it later",
        )
    if not parent:
        numbered = _numbered(field, ids)
        _check_name(numbered.name, schema.fields, here)
        return replace(schema, fields=(*schema.fields, numbered))
    if schema.column(parent[0]) is None:
        raise InvalidRequest(
            f"there is no column {parent[0]!r} to add {spell(here)!r} to",
            next_step=f'A column whose own name contains a dot is written in quotes: "{spell(here)}"',
        )
    within = field_at(schema, parent)
    if _is_in_key(schema, parent):
        raise InvalidRequest(
            f"{spell(parent)!r} is part of a map's key, which cannot be changed",
            next_step="Add a column of another type",
        )
    if not isinstance(within.type, Struct):
        raise InvalidRequest(
            f"{spell(parent)!r} is not a struct: nothing can be added to it",
            next_step=f'A column whose own name contains a dot is written "{spell(here)}", in quotes',
        )
    numbered = _numbered(field, ids)
    _check_name(numbered.name, within.type.fields, here)
    return _with_members(schema, within.id, (*within.type.fields, numbered))


def _numbered(field: Field, ids: Iterator[int]) -> Field:
    """The field with new ids, depth first."""
    own = next(ids)
    return replace(field, id=own, type=with_fields(field.type, lambda f: _numbered(f, ids)))


def _with_members(schema: Schema, struct_id: int, members: tuple[Field, ...]) -> Schema:
    """The schema with other fields in the struct `struct_id`."""

    def within(field: Field) -> Field:
        if field.id == struct_id:
            return replace(field, type=Struct(members))
        return replace(field, type=with_fields(field.type, within))

    return replace(schema, fields=tuple(map(within, schema.fields)))


def _ordered(schema: Schema, parent: Path, names: Sequence[str]) -> Schema:
    fields = schema.fields
    if parent:
        within = field_at(schema, parent)
        if not isinstance(within.type, Struct):
            raise InvalidRequest(f"{spell(parent)!r} is not a struct: it has no order")
        fields = within.type.fields
    for name in names:
        field_at(schema, (*parent, name))
    if len(set(names)) < len(names):
        raise InvalidRequest("a column is named twice to order")
    by_name = {field.name: field for field in fields}
    rest = [field for field in fields if field.name not in names]
    ordered = (*(by_name[name] for name in names), *rest)
    if not parent:
        return replace(schema, fields=ordered)
    return _with_members(schema, within.id, ordered)


# -- names ----------------------------------------------------------------------------------------


def _check(before: Schema, after: Schema) -> None:
    if not after.fields:
        raise InvalidRequest(
            "the table would have no columns left", next_step="Keep one, or delete the table"
        )
    old = {field.id: field.name for _, field in before.walk()}
    structs = [(path, f.type.fields) for path, f in after.walk() if isinstance(f.type, Struct)]
    for path, siblings in [((), after.fields), *structs]:
        for field in siblings:
            if old.get(field.id) != field.name:
                others = tuple(f for f in siblings if f.id != field.id)
                _check_name(field.name, others, (*path, field.name))


def _check_name(name: str, siblings: Iterable[Field], path: Path) -> None:
    """Checks a new name: it must differ from its siblings even for readers that ignore case."""
    if not name or not _is_short_text(name):
        raise InvalidRequest(
            f"{name[:50]!r} is not a valid column name",
            next_step=f"A name has 1 to {MAX_NAME_BYTES} bytes of UTF-8",
        )
    if len(path) == 1 and name.casefold() in RESERVED:
        raise InvalidRequest(
            f"{name!r} is a column that every scan has: no other can have this name",
            next_step=f"Reserved are {', '.join(sorted(RESERVED))}",
        )
    twin = next((f.name for f in siblings if f.name.casefold() == name.casefold()), None)
    if twin is not None:
        alike = "" if twin == name else f" ({twin!r}; engines like Spark ignore case)"
        raise InvalidRequest(
            f"there is a column {spell(path)!r} already{alike}", next_step="Choose another name"
        )


def _is_short_text(name: str) -> bool:
    try:
        return len(name.encode("utf-8")) <= MAX_NAME_BYTES and name.isprintable()
    except UnicodeEncodeError:
        return False


# -- what is different ----------------------------------------------------------------------------


def differences(before: Schema, after: Schema) -> tuple[str, ...]:
    """What an evolution did, one line for each step; empty for the same columns."""
    old = {field.id: (path, field) for path, field in before.walk()}
    new = {field.id: (path, field) for path, field in after.walk()}
    steps = [
        f"drop {spell(path)}"
        for field_id, (path, _) in old.items()
        if field_id not in new and not _inside(path, old, new)
    ]
    for field_id, (path, field) in new.items():
        if field_id not in old:
            if not _inside(path, new, old):
                steps.append(f"add {spell(path)} {_called(field)}")
            continue
        was_path, was = old[field_id]
        if was.name != field.name:
            steps.append(f"rename {spell(was_path)} to {field.name}")
        if was.type != field.type and isinstance(field.type, Primitive):
            steps.append(f"widen {spell(path)} from {was.type} to {field.type}")
        if was.nullable != field.nullable:
            steps.append(f"make {spell(path)} {'optional' if field.nullable else 'required'}")
    if [i for i in old if i in new] != [i for i in new if i in old]:
        steps.append("order " + ", ".join(spell(p) for p, f in new.values() if len(p) == 1))
    return tuple(steps)


def _inside(
    path: Path, here: dict[int, tuple[Path, Field]], there: dict[int, tuple[Path, Field]]
) -> bool:
    """Whether an ancestor of a field is also only here: reporting the ancestor is enough."""
    ids = {p: field_id for field_id, (p, _) in here.items()}
    return any(ids[path[:n]] not in there for n in range(1, len(path)))


def _called(field: Field) -> str:
    kind = field.type
    shown = str(kind) if isinstance(kind, Primitive) else type(kind).__name__.lower()
    required = "" if field.nullable else " not null"
    default: Value | None = field.default
    return shown + required + ("" if default is None else f" default {default!r}")


def same_columns(a: Schema, b: Schema, known: frozenset[int]) -> bool:
    """Whether two schemas that both evolved from one with the field ids `known` are equal except for the
    ids of new fields."""

    def anonymous(field: Field) -> Field:
        own = field.id if field.id in known else 0
        return replace(field, id=own, type=with_fields(field.type, anonymous))

    return [anonymous(f) for f in a.fields] == [anonymous(f) for f in b.fields]

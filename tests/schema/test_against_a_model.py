"""Random evolutions, appends, deletes of every kind, updates and maintenance against a plain model.

Two handles write: one that is always new, and one that may be several schemas behind. After every step
the table reads as the model; at the end so does every version, and what DuckDB makes of it.
"""

from __future__ import annotations

import operator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.schema.conftest import again, rows_of, table_of
from tests.schema.model import (
    FAMILIES,
    Column,
    Group,
    Leaf,
    Model,
    arrow_field,
    day,
    items_of,
    sql,
    widened,
)

from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.ops.write import delete as delete_op

# Few, so that names are used again and again for other columns.
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
COMPARE = {"=": operator.eq, "<": operator.lt, ">=": operator.ge, "!=": operator.ne}


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Few values each, so that predicates meet them; all of them representable in every wider type."""
    match kind:
        case _ if pa.types.is_integer(kind):
            return st.integers(0, 9)
        case _ if pa.types.is_floating(kind):
            return st.integers(-4, 4).map(lambda n: n / 2)
        case _ if pa.types.is_decimal(kind):
            return (
                st.integers(-9, 9)
                .map(lambda n: Decimal(n).scaleb(-1))
                .map(lambda d: d.quantize(Decimal(1).scaleb(-kind.scale)))
            )
        case _ if pa.types.is_date(kind):
            return st.integers(-3, 6).map(day)
        case _ if pa.types.is_timestamp(kind):
            return st.integers(-3, 6).map(lambda n: datetime(1970, 1, 1) + timedelta(hours=12 * n))
        case _ if pa.types.is_boolean(kind):
            return st.booleans()
        case _:
            return st.sampled_from(["", "x", "xy", "z" * 20])


class Evolving(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.next_token = 0
        self.next_id = 0

    def token(self) -> int:
        self.next_token += 1
        return self.next_token

    # -- beginning --------------------------------------------------------------------------------

    @initialize(sort=st.booleans())
    def create(self, sort: bool) -> None:
        self.key = Leaf(self.token(), "id", pa.int32(), (pa.int64(),), nullable=False)
        first = Leaf(self.token(), "a", pa.int8(), FAMILIES[0][1:])
        moment = Leaf(self.token(), "d", pa.date32(), FAMILIES[4][1:])
        member = Leaf(self.token(), "x", pa.int32(), (pa.int64(),))
        group = Group(self.token(), "s", [member])
        items = Group(
            self.token(), "items", [Leaf(self.token(), "q", pa.float32(), (pa.float64(),))], True
        )
        self.model = Model([self.key, first, moment, group, items])
        self.table = table_of(
            self.model.schema(),
            primary_key="id",
            sort_by="id" if sort else (),
            properties={"write.row_group_rows": 3},
        )
        self.old = again(self.table)
        self.old_model = self.model.copy()
        self.history: dict[int, tuple[str, list[dict[str, Any]]]] = {}

    def behind(self) -> bool:
        return self.old.snapshot.schema_id != self.table.snapshot.schema_id

    # -- rows in ----------------------------------------------------------------------------------

    def new_rows(self, data: st.DataObject, columns: list[Column]) -> list[dict[int, Any]]:
        found = []
        for _ in range(data.draw(st.integers(1, 5))):
            row: dict[int, Any] = {}
            for column in columns:
                row[column.token] = self.new_value(data, column)
            self.next_id += 1
            row[self.key.token] = self.next_id
            found.append(row)
        return found

    def new_value(self, data: st.DataObject, column: Column) -> Any:
        if isinstance(column, Leaf):
            some = values(column.type)
            return data.draw(st.none() | some if column.nullable else some)

        def item() -> dict[int, Any] | None:
            if not column.listed and data.draw(st.integers(0, 3)) == 0:
                return None
            return {m.token: self.new_value(data, m) for m in column.members}

        if not column.listed:
            return item()
        count = data.draw(st.sampled_from([None, 0, 1, 2]))
        return None if count is None else [item() for _ in range(count)]

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        rows = self.new_rows(data, self.model.columns)
        self.table.append(
            pa.Table.from_pylist(Model(self.model.columns, rows).named(), schema=self.table.schema)
        )
        self.model.rows += rows

    @rule(data=st.data())
    def append_without_a_column(self, data: st.DataObject) -> None:
        spare = [c for c in self.model.leaves if c.token in self.defaults or c.nullable]
        assume(spare)
        left_out = data.draw(st.sampled_from(spare))
        columns = [c for c in self.model.columns if c is not left_out]
        rows = self.new_rows(data, columns)
        given = Model(columns, rows)
        self.table.append(pa.Table.from_pylist(given.named(), schema=given.schema()))
        for row in rows:
            row[left_out.token] = self.default_of(left_out)
        self.model.rows += rows

    @precondition(lambda self: self.behind())
    @rule(data=st.data())
    def append_by_who_is_behind(self, data: st.DataObject) -> None:
        columns = self.old_model.columns
        rows = self.new_rows(data, columns)
        given = pa.Table.from_pylist(Model(columns, rows).named(), schema=self.old.schema)
        try:
            self.old.append(given)
        except ConcurrentChange:
            assert self.has_finer_times_within()
        else:
            self.model.rows += [self.caught_up(row) for row in rows]
        self.after_the_other()

    def has_finer_times_within(self) -> bool:
        """Whether a nested time has a finer unit by now: its files have no bounds that show it to fit."""
        old, now = (
            {m.token: m.type for c in columns if not isinstance(c, Leaf) for m in c.members}
            for columns in (self.old_model.columns, self.model.columns)
        )
        finer = (kind for token, kind in old.items() if now.get(token, kind) != kind)
        return any(map(pa.types.is_temporal, finer))

    def caught_up(self, row: dict[int, Any]) -> dict[int, Any]:
        """A row written under an older schema, as today's schema reads it."""
        found: dict[int, Any] = {}
        for column in self.model.columns:
            if isinstance(column, Leaf):
                found[column.token] = self.today(column, row)
                continue
            value = row.get(column.token)
            items = [
                None if i is None else {m.token: self.today(m, i) for m in column.members}
                for i in (value if isinstance(value, list) else [value])
            ]
            found[column.token] = (
                (items if column.listed else items[0]) if value is not None else None
            )
        return found

    def today(self, leaf: Leaf, row: dict[int, Any]) -> Any:
        if leaf.token not in row:
            return self.default_of(leaf)
        return widened(row[leaf.token], leaf.type)

    def after_the_other(self) -> None:
        self.table.refresh()
        self.old = again(self.table)
        self.old_model = self.model.copy()

    @rule()
    def the_other_reads_again(self) -> None:
        self.old = again(self.table)
        self.old_model = self.model.copy()

    # -- the schema -------------------------------------------------------------------------------

    @property
    def defaults(self) -> dict[int, Any]:
        return self.__dict__.setdefault("_defaults", {})

    def default_of(self, leaf: Leaf) -> Any:
        return widened(self.defaults.get(leaf.token), leaf.type)

    def is_free(self, name: str, siblings: list[Any]) -> bool:
        return all(c.name.casefold() != name.casefold() for c in siblings)

    def new_leaf(self, data: st.DataObject, name: str) -> tuple[Leaf, Any]:
        family = data.draw(st.sampled_from(FAMILIES))
        at = data.draw(st.integers(0, len(family) - 1))
        default = data.draw(st.none() | values(family[at]))
        required = default is not None and data.draw(st.booleans())
        leaf = Leaf(self.token(), name, family[at], family[at + 1 :], not required)
        if default is not None:
            self.defaults[leaf.token] = default
        return leaf, default

    @rule(data=st.data(), name=NAMES)
    def add(self, data: st.DataObject, name: str) -> None:
        assume(self.is_free(name, self.model.columns))
        leaf, default = self.new_leaf(data, name)
        self.table.alter(
            add={name: arrow_field(leaf)},
            defaults={} if default is None else {name: default},
        )
        self.model.columns.append(leaf)
        for row in self.model.rows:
            row[leaf.token] = default

    @rule(data=st.data(), name=st.sampled_from(["s", "t"]))
    def add_struct(self, data: st.DataObject, name: str) -> None:
        assume(self.is_free(name, self.model.columns))
        group = Group(self.token(), name, [Leaf(self.token(), "x", pa.int32(), (pa.int64(),))])
        self.table.alter(add={name: arrow_field(group).type})
        self.model.columns.append(group)

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), name=st.sampled_from(["x", "y", "z"]))
    def add_member(self, data: st.DataObject, name: str) -> None:
        group = data.draw(st.sampled_from(self.model.groups))
        assume(self.is_free(name, group.members))
        leaf, default = self.new_leaf(data, name)
        path = f"{group.name}.{'element.' if group.listed else ''}{name}"
        self.table.alter(
            add={path: arrow_field(leaf)}, defaults={} if default is None else {path: default}
        )
        group.members.append(leaf)
        for row in self.model.rows:
            for item in items_of(row.get(group.token)):
                item[leaf.token] = default

    @precondition(lambda self: len(self.model.columns) > 3)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        column = data.draw(
            st.sampled_from([c for c in self.model.columns if c.token != self.key.token])
        )
        self.drop_it(column.name)
        self.model.columns.remove(column)

    @precondition(lambda self: any(len(g.members) > 1 for g in self.model.groups))
    @rule(data=st.data())
    def drop_member(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from([g for g in self.model.groups if len(g.members) > 1]))
        member = data.draw(st.sampled_from(group.members))
        self.drop_it(f"{group.name}.{'element.' if group.listed else ''}{member.name}")
        group.members.remove(member)

    def drop_it(self, path: str) -> None:
        try:
            self.table.alter(drop=[path])
        except InvalidRequest as error:
            assert "a delete that is not applied yet uses it" in error.message
            self.table.maintain.rewrite()
            self.table.alter(drop=[path])

    @rule(data=st.data(), name=NAMES)
    def rename(self, data: st.DataObject, name: str) -> None:
        column = data.draw(st.sampled_from(self.model.columns))
        assume(self.is_free(name, self.model.columns))
        self.table.alter(rename={column.name: name})
        column.name = name

    @precondition(lambda self: len(self.model.leaves) > 1)
    @rule(data=st.data())
    def swap_two_names(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(self.model.leaves))[:2]
        self.table.alter(rename={one.name: other.name, other.name: one.name})
        one.name, other.name = other.name, one.name

    @rule(data=st.data())
    def widen(self, data: st.DataObject) -> None:
        places = [(c.name, c, None) for c in self.model.leaves if c.wider] + [
            (f"{g.name}.{'element.' if g.listed else ''}{m.name}", m, g)
            for g in self.model.groups
            for m in g.members
            if m.wider
        ]
        assume(places)
        path, leaf, group = data.draw(st.sampled_from(places))
        at = data.draw(st.integers(0, len(leaf.wider) - 1))
        kind = leaf.wider[at]
        self.table.alter(widen={path: kind})
        leaf.type, leaf.wider = kind, leaf.wider[at + 1 :]
        for row in self.model.rows:
            for item in [row] if group is None else items_of(row.get(group.token)):
                item[leaf.token] = widened(item.get(leaf.token), kind)

    @precondition(lambda self: any(not c.nullable for c in self.model.leaves))
    @rule(data=st.data())
    def make_optional(self, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from([c for c in self.model.leaves if not c.nullable]))
        if column.token == self.key.token:
            return
        self.table.alter(optional=[column.name])
        column.nullable = True

    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        columns = data.draw(st.permutations(self.model.columns))
        self.table.alter(order=[c.name for c in columns])
        self.model.columns[:] = columns

    # -- deletes and updates ----------------------------------------------------------------------

    def condition(self, data: st.DataObject) -> tuple[str, Any]:
        """A condition on one column as SQL, and as a function of a row."""
        leaf = data.draw(st.sampled_from(self.model.leaves))
        if data.draw(st.integers(0, 4)) == 0:
            return f'"{leaf.name}" IS NULL', lambda row: row.get(leaf.token) is None
        op = data.draw(st.sampled_from(sorted(COMPARE)))
        kind = leaf.type
        wanted = data.draw(
            st.integers(1, max(self.next_id, 1)) if leaf.token == self.key.token else values(kind)
        )
        compare = COMPARE[op]
        return (
            f'"{leaf.name}" {op} {sql(wanted)}',
            lambda row: row.get(leaf.token) is not None and compare(row[leaf.token], wanted),
        )

    @rule(
        data=st.data(),
        mode=st.sampled_from(["tombstone", "tombstone", "vector", "surgery", "rewrite"]),
    )
    def delete(self, data: st.DataObject, mode: str) -> None:
        text, hits = self.condition(data)
        gone = [row for row in self.model.rows if hits(row)]
        assume(len(gone) <= max(3, len(self.model.rows) // 2))
        self.table.delete(text, mode=mode)
        self.model.rows = [row for row in self.model.rows if not hits(row)]

    @rule(data=st.data(), listed=st.booleans())
    def delete_by_keys(self, data: st.DataObject, listed: bool) -> None:
        columns = [self.key_now()]
        others = [c for c in self.model.leaves if c.token != self.key.token]
        if others and not listed:
            columns.append(data.draw(st.sampled_from(others)))
        keys = [
            tuple(row.get(c.token) for c in columns)
            for row in data.draw(st.lists(st.sampled_from(self.model.rows or [{}]), max_size=3))
            if row
        ]
        assume(keys)
        given = pa.table(
            {c.name: pa.array([k[n] for k in keys], c.type) for n, c in enumerate(columns)}
        )
        with patch.object(delete_op, "INLINE_KEYS", 64 if listed else 0):
            self.table.delete(keys=given)
        hits = {k for k in keys if None not in k}
        self.model.rows = [
            row for row in self.model.rows if tuple(row.get(c.token) for c in columns) not in hits
        ]

    def key_now(self) -> Leaf:
        return next(c for c in self.model.leaves if c.token == self.key.token)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def delete_a_row_group(self, data: st.DataObject) -> None:
        files, _ = self.table.inspect.entries()
        entry = data.draw(st.sampled_from(sorted(files, key=lambda f: f.key)))
        group = data.draw(st.integers(0, entry.row_groups - 1))
        key = self.key_now().name
        before = {row[key] for row in rows_of(self.table, columns=[key])}
        self.table.maintain.delete_row_groups(entry.key, [group])
        after = {row[key] for row in rows_of(self.table, columns=[key])}
        assert len(before - after) <= 3
        self.model.rows = [r for r in self.model.rows if r[self.key.token] in after]

    @precondition(lambda self: self.behind())
    @rule(data=st.data())
    def delete_by_who_is_behind(self, data: st.DataObject) -> None:
        leaf = data.draw(st.sampled_from(self.old_model.leaves))
        wanted = data.draw(values(leaf.type))
        now = next((c for c in self.model.leaves if c.token == leaf.token), None)
        try:
            self.old.delete(f'"{leaf.name}" = {sql(wanted)}', mode="tombstone")
        except ConcurrentChange:
            assert now is None
        else:
            if now is not None:
                wide = widened(wanted, now.type)
                self.model.rows = [r for r in self.model.rows if r.get(leaf.token) != wide]
        self.after_the_other()

    @precondition(lambda self: self.behind())
    @rule()
    def a_change_by_who_is_behind_is_refused(self) -> None:
        with pytest.raises(ConcurrentChange):
            self.old.alter(add={"late": pa.int8()})
        self.after_the_other()

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data(), mode=st.sampled_from(["tombstone", "vector", "rewrite"]))
    def update(self, data: st.DataObject, mode: str) -> None:
        others = [c for c in self.model.leaves if c.token != self.key.token]
        assume(others)
        column = data.draw(st.sampled_from(others))
        value = self.new_value(data, column)
        text, hits = self.condition(data)
        self.table.update(
            {column.name: "NULL" if value is None else sql(value)}, where=text, mode=mode
        )
        for row in [row for row in self.model.rows if hits(row)]:
            row[column.token] = value

    # -- maintenance ------------------------------------------------------------------------------

    @rule()
    def rewrite(self) -> None:
        self.table.maintain.rewrite()

    @rule()
    def compact(self) -> None:
        self.table.maintain.compact()

    @rule()
    def verify(self) -> None:
        assert self.table.maintain.verify(depth="pages").findings == ()

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def reads_as_the_model(self) -> None:
        assert self.table.schema == self.model.schema()
        key = self.key_now().name
        # From the bytes in the store, not from what the writer still knows.
        found = sorted(rows_of(again(self.table)), key=lambda row: row[key])
        expected = sorted(self.model.named(), key=lambda row: row[key])
        assert found == expected
        self.history[self.table.version] = key, expected

    @rule(data=st.data())
    def finds_what_is_asked_for(self, data: st.DataObject) -> None:
        text, hits = self.condition(data)
        key = self.key_now()
        found = {row[key.name] for row in rows_of(self.table, where=text)}
        assert found == {row[key.token] for row in self.model.rows if hits(row)}
        assert self.table.count(where=text) == len(found)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for version, (key, expected) in self.history.items():
            found = rows_of(again(self.table, version=version))
            assert sorted(found, key=lambda row: row[key]) == expected
        key = self.key_now().name
        with duckdb.connect() as engine:
            engine.register("rows", self.table.scan().to_arrow())
            found = engine.sql(f'SELECT * FROM rows ORDER BY "{key}"').fetchall()
        expected = [tuple(row.values()) for row in sorted(self.model.named(), key=lambda r: r[key])]
        assert found == expected


@pytest.mark.parametrize("examples", [5, pytest.param(15, marks=pytest.mark.wide)])
def test_any_history_of_changes_reads_as_the_model(examples: int) -> None:
    run_state_machine_as_test(
        Evolving,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_many_long_histories_of_changes_read_as_the_model() -> None:
    run_state_machine_as_test(
        Evolving,
        settings=settings(
            max_examples=400,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

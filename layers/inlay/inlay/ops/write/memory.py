"""The memory of deletes: key and order of what change streams deleted, in a table beside the table.

Promise: whoever finds the table finds its memory, at `changes` under the table's root; nobody has to name
it. A delete is remembered before the commit that applies it: an entry of a delete that was never committed
only hides records that are older than a delete which is about to be repeated. The table's property
`changes.remembered` is the id of a commit of the memory, and its meaning: whoever has read the memory after
that commit knows every delete that is committed in the table. A change that was planned with the memory
requires that the property is the same when it is committed (`plan.change.SameProperty`), or that nobody
has added an entry for its keys meanwhile (`is_known`): then only the property is set anew.

The memory is an Inlay table whose columns are named by the table's field ids, so that the table's columns
may be renamed: `f<id>` of the key (its primary key) and of the order, and `at`, when it was remembered.
Entries live for `changes.remember_days`; `collect_garbage` of the table removes older ones, `compact` and
`rewrite` of the table do the same to the memory. It has no history, no branches, and is not restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pyarrow as pa

from inlay.errors import CorruptTable, InvalidRequest, TableExists, TableNotFound
from inlay.format.predicate import TRUE
from inlay.format.schema import Field, Schema
from inlay.ops.commit.driver import Committed, already_applied
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer
from inlay.ops.metadata.memory import AT, column_of, memory_context
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.keyed_rows import Keys, NullKeys
from inlay.ops.write.old_rows import keys_predicate, read_matching
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Request
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan
from inlay.record import replace

# The ids of the order's fields, from the first: a property of the memory.
ORDER = "order.fields"
# It is never read in the past.
_PROPERTIES = {"history.days": "0", "stats.columns": "20"}


class Memory:
    """The memory of one table, for one key and one order of it. `head` is the commit that was read last.

    Spark reads and writes its rows itself, between `open` and `open` or `make`: at `uri`, by `columns`.
    """

    AT: ClassVar = AT

    def __init__(self, ctx: Context, keys: Sequence[Field], order: Sequence[Field]) -> None:
        self._ctx = memory_context(ctx)
        self._keys = keys
        self._order = order
        self._loaded: LoadedTable | None = None
        self._read_at = 0  # the version of the memory by which records were judged
        self._added_at: int | None = None  # the version that this process added

    @property
    def head(self) -> str:
        assert self._loaded is not None
        return self._loaded.snapshot.commit.id

    @property
    def uri(self) -> str:
        return self._ctx.uri

    @property
    def version(self) -> int:
        """That of `head`."""
        assert self._loaded is not None
        return self._loaded.snapshot.version

    @property
    def columns(self) -> list[str]:
        """Of the key, then of the order."""
        return [column_of(field.id) for field in (*self._keys, *self._order)]

    def open(self) -> None:
        """Learns its newest state, by which records are judged. Raises `CorruptTable` where it was taken
        away."""
        self._loaded = self._opened()
        self._read_at = self.version

    def added(self, request: Request) -> None:
        """Learns its newest state, and which of its commits is this process's own."""
        ctx, loaded = self._ctx, self._opened()
        self._loaded, before = already_applied(ctx, loaded, request)
        self._added_at = None if before is None else before.version

    def is_known(self, where: str | None) -> bool:
        """Learns its newest state: whether nobody else has added an entry since it was read for which
        `where`, on `columns`, may hold (None: any)."""
        self._loaded = self._opened()
        state = load_entries(self._ctx, self._loaded.state)
        snapshot = state.snapshot
        # What compaction wrote may have rows of others, whatever else it has.
        new = [
            file
            for file in state.files()
            if file.newest_rows > self._read_at
            and not (file.data_change and file.sequence == self._added_at)
        ]
        predicate = TRUE if where is None else parse_predicate(where, snapshot.schema)
        evidence = Evidence.of_snapshot(snapshot)
        return not plan_scan(new, (), predicate, evidence=evidence).tasks

    def make(self) -> None:
        """As `open`; it is created where there is none."""
        self._loaded = self._open(self._create())

    def _opened(self) -> LoadedTable:
        try:
            return self._open(load_pointer(self._ctx))
        except TableNotFound as error:
            raise CorruptTable(
                "the deletes that change streams remembered are gone",
                next_step=f"Bring {self._ctx.uri}/ back, or begin anew by "
                "t.set_properties(changes__remembered=None): records older than a delete then count",
                table=self._ctx.uri,
            ) from error

    def read(self, keys: pa.Table, codes: Keys, nulls: NullKeys) -> pa.Table:
        """What is remembered of these keys: a column `code`, then the columns of the order. `keys` has the
        key's columns, in the types of the table."""
        loaded = self._opened()
        schema = loaded.snapshot.schema
        names = self.columns[: len(self._keys)]
        predicate = keys_predicate(keys.rename_columns(names), names, schema, nulls)
        ids = [field.id for name in self.columns for field in schema.fields if field.name == name]
        self._loaded, batches = read_matching(self._ctx, loaded, predicate, ids)
        kinds = schema_to_arrow(Schema(0, tuple(self._order)), with_ids=False)
        result = pa.schema([pa.field("code", pa.int64()), *_numbered(kinds)])
        made: list[pa.RecordBatch] = []
        for batch in batches:
            at = len(self._keys)
            places = codes.find(batch.columns[:at])
            columns = [places, *batch.columns[at : at + len(self._order)]]
            known = pa.RecordBatch.from_arrays(columns, schema=result)
            made.append(known.filter(places.is_valid()))
        return pa.Table.from_batches(made, schema=result)

    def add(self, deletes: pa.Table, at_us: int) -> None:
        """Remember deletes: their key, then their order. The memory is created with its first entry."""
        if self._loaded is None:
            self.make()
        at = pa.repeat(pa.scalar(at_us, pa.timestamp("us", "UTC")), deletes.num_rows)
        columns = dict(zip(self.columns, deletes.columns, strict=True))
        outcome = append(self._ctx, pa.table({**columns, AT: at}), base=self._loaded)
        self._loaded = outcome.loaded
        # A version that was shared has entries of others.
        is_alone = isinstance(outcome, Committed) and outcome.share is None
        self._added_at = self.version if is_alone else None

    def _create(self) -> LoadedTable:
        fields = {column_of(field.id): field for field in (*self._keys, *self._order)}
        key_columns = tuple(
            replace(field, name=name, nullable=True, default=None) for name, field in fields.items()
        )
        schema = schema_to_arrow(Schema(0, key_columns), with_ids=False)
        keys = [column_of(field.id) for field in self._keys]
        with suppress(TableExists):
            return create(
                self._ctx,
                schema.append(pa.field(AT, pa.timestamp("us", "UTC"), nullable=False)),
                primary_key=keys,
                sort_by=keys,
                properties={**_PROPERTIES, ORDER: _ids(self._order)},
            )
        return load_pointer(self._ctx)

    def _open(self, loaded: LoadedTable) -> LoadedTable:
        """Checked to be of this key and this order, with columns as wide as the table's."""
        snapshot = loaded.snapshot
        columns = {column_of(field.id) for field in self._keys}
        if set(snapshot.key_names) != columns or snapshot.properties.get(ORDER) != _ids(
            self._order
        ):
            raise InvalidRequest(
                "deletes of this table are remembered by another key, or another order",
                next_step="Give the on= and order= of the table's first change stream. To begin anew, "
                f"apply nothing for `changes.remember_days`, then delete what is under {self._ctx.uri}/",
                table=self._ctx.uri,
            )
        narrow = {
            column_of(field.id): schema_to_arrow(Schema(0, (field,)), with_ids=False).field(0).type
            for field in (*self._keys, *self._order)
            if _kind(snapshot.schema, field) != field.type
        }
        if not narrow:
            return loaded
        evolution = evolution_of(snapshot.schema, widen=narrow)
        return alter(self._ctx, evolution, base=loaded).loaded


def _kind(schema: Schema, field: Field) -> Any:
    column = schema.column(column_of(field.id))
    return None if column is None else column.type


def _ids(fields: Sequence[Field]) -> str:
    return ",".join(str(field.id) for field in fields)


def _numbered(schema: pa.Schema) -> list[pa.Field]:
    return [pa.field(f"order{place}", field.type) for place, field in enumerate(schema)]

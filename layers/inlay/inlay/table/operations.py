"""Operations of a transaction that are written as data: JSON of a file, of standard input, of a message.

::

    [{"append": "./orders", "rows": [{"id": 1, "sku": "A-1"}]},
     {"delete": "./carts", "where": "id = :id", "params": {"id": 7}}]

Promise: all of a plan is read before anything is done. A name that is not known, and a value that is not
what its name asks for, are refused by their place; values are never repeated in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.errors import InvalidRequest, a_type
from inlay.ops.read.scan import ArrowStream
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.record import Record

if TYPE_CHECKING:
    from inlay.ops.commit.driver import WriteResult
    from inlay.ops.local_files import LocalFiles
    from inlay.table import Table
    from inlay.table.transaction import Transaction

# What a field may be, as JSON, in words.
_TEXT, _TEXTS, _FLAG, _NUMBER = "a text", "a list of texts", "true or false", "a whole number"
_OBJECT, _OBJECTS, _VALUES = "an object", "a list of objects", "a list or an object"
_ROWS = {"rows": _OBJECTS, "files": _TEXTS}
_WHERE = {"where": _TEXT, "params": _VALUES}
_NOTE = {"message": _TEXT, "metadata": _OBJECT}
# The verbs of a transaction, and their fields: options of the verb, but for `_ROWS` and `_GIVEN`.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "append": _ROWS,
    "ingest": {"objects": _TEXTS, "adopt": _FLAG},
    "delete": {**_WHERE, "keys": _OBJECTS, "mode": _TEXT},
    "update": {"set": _OBJECT, **_WHERE, "mode": _TEXT},
    "upsert": {**_ROWS, "on": _TEXTS, "on_duplicate": _TEXT, "order": _TEXT, "when": _TEXT, "nulls": _TEXT},
    "overwrite": {**_ROWS, **_WHERE},
    "apply_changes": {
        **_ROWS,
        "order": _TEXTS, "op": _TEXT, "operations": _TEXT, "delete_when": _TEXT,
        "delete_to": _TEXT, "on": _TEXTS, "nulls": _TEXT,
    },
    "alter": {
        "add": _OBJECT, "drop": _TEXTS, "rename": _OBJECT, "widen": _OBJECT, "optional": _TEXTS,
        "order": _TEXTS, "defaults": _OBJECT, "comment": _OBJECT, "primary_key": _TEXTS,
    },
    "merge": {"branch": _TEXT},
    "restore": {"version": _NUMBER, "as_of": _TEXT, "ref": _TEXT},
    "tag": {"name": _TEXT},
    "set_properties": {"properties": _OBJECT},
    "move": {"to": _TEXT, **_WHERE},
    "read": {},
}  # fmt: skip
# The field that a verb is given in its place, and cannot do without.
_GIVEN = {
    "ingest": "objects",
    "update": "set",
    "merge": "branch",
    "tag": "name",
    "set_properties": "properties",
}
_OF_ROWS = frozenset(verb for verb, fields in FIELDS.items() if "rows" in fields)
_NOTED = frozenset(FIELDS) - {"read", "tag", "set_properties", "move"}
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    _TEXT: lambda v: isinstance(v, str),
    _TEXTS: lambda v: isinstance(v, list) and all(isinstance(item, str) for item in v),
    _FLAG: lambda v: isinstance(v, bool),
    _NUMBER: lambda v: isinstance(v, int) and not isinstance(v, bool),
    _OBJECT: lambda v: isinstance(v, dict),
    _OBJECTS: lambda v: isinstance(v, list) and all(isinstance(item, dict) for item in v),
    _VALUES: lambda v: isinstance(v, list | dict),
}


class Operation(Record):
    verb: str
    table: str
    fields: Mapping[str, Any]


def read_operations(plan: Any) -> list[Operation]:
    """The operations of a plan, or of the one under `operations` in an object. Raises `InvalidRequest`."""
    if isinstance(plan, Mapping) and plan.keys() == {"operations"}:
        plan = plan["operations"]
    if not isinstance(plan, list | tuple) or not plan:
        passed = "an empty one" if isinstance(plan, list | tuple) else a_type(plan)
        raise InvalidRequest(
            f"a plan is a list of operations, not {passed}",
            next_step='[{"append": "./orders", "rows": [{"id": 1}]}, …]; `inlay commit --help`',
        )
    return [_operation(item, f"operation {n}") for n, item in enumerate(plan, 1)]


def _operation(item: Any, place: str) -> Operation:
    if not isinstance(item, Mapping):
        raise InvalidRequest(
            f"{place} is no object", next_step='{"append": "./orders", "rows": […]}'
        )
    verbs = [verb for verb in FIELDS if verb in item]
    if len(verbs) != 1 or not isinstance(item[verbs[0]], str):
        raise InvalidRequest(
            f"{place} does not say what it does, once, and on which table",
            next_step=f"Name the table by one of {', '.join(FIELDS)}",
        )
    [verb] = verbs
    known = {**FIELDS[verb], **(_NOTE if verb in _NOTED else {})}
    fields = {name: value for name, value in item.items() if name != verb}
    for name, value in fields.items():
        if name not in known:
            raise InvalidRequest(
                f"{place} ({verb}) has a field that it does not take",
                next_step=f"The fields of {verb}: {', '.join(known) or 'none'}",
            )
        if not _KINDS[known[name]](value):
            raise InvalidRequest(f"{place} ({verb}): {name} is not {known[name]}")
    if verb in _OF_ROWS and ("rows" in fields) == ("files" in fields):
        raise InvalidRequest(f"{place} ({verb}) takes either rows or files")
    if verb in _GIVEN and _GIVEN[verb] not in fields:
        raise InvalidRequest(f"{place} ({verb}) lacks {_GIVEN[verb]}")
    return Operation(verb, item[verb], fields)


def run_operation(
    tx: Transaction,
    operation: Operation,
    open: Callable[[str], Table],
    files: Callable[[Sequence[str]], LocalFiles] | None,
) -> WriteResult | None:
    table = open(operation.table)
    if operation.verb == "read":
        tx.read(table)
        return None
    if operation.verb == "move":
        return _move(tx, table, open(operation.fields["to"]), operation.fields)
    options = dict(operation.fields)
    positional = [options.pop(_GIVEN[operation.verb])] if operation.verb in _GIVEN else []
    if operation.verb in _OF_ROWS:
        positional = [_rows(table, operation, options, files)]
    if "keys" in options:
        options["keys"] = _keys(table, options["keys"])
    done = getattr(tx, operation.verb)(table, *positional, **options)
    result: WriteResult = getattr(done, "write", done)
    return result


def _move(tx: Transaction, source: Table, into: Table, fields: Mapping[str, Any]) -> WriteResult:
    """The rows that `source` has when all is committed: it must still be what was read."""
    if "where" not in fields:
        raise InvalidRequest("a move says which rows: where", table=source.uri)
    where, params = fields["where"], fields.get("params")
    rows = tx.read(source).scan(where=where, params=params)
    tx.delete(source, where, params=params)
    return tx.append(into, rows)


class _Rows(ArrowStream):
    """Of files, which are read again whenever they are asked for: no more than some batches are held."""

    def __init__(self, read: Callable[[], pa.RecordBatchReader]) -> None:
        self.to_reader = read  # type: ignore[method-assign]

    @property
    def schema(self) -> pa.Schema:
        return self.to_reader().schema

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_reader())


def _keys(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    from inlay.ops.local_files import rows_of_objects

    columns = schema_to_arrow(table.snapshot.schema, with_ids=False)
    return rows_of_objects(rows, columns, even=True).read_all()


def _rows(
    table: Table,
    operation: Operation,
    options: dict[str, Any],
    files: Callable[[Sequence[str]], LocalFiles] | None,
) -> pa.Table | pa.RecordBatchReader | ArrowStream:
    from inlay.ops.local_files import STANDARD, change_columns, rows_of_objects

    paths, rows = options.pop("files", None), options.pop("rows", None)
    schema, even = table.snapshot.schema, operation.verb == "upsert"
    columns, records = schema_to_arrow(schema, with_ids=False), None
    named = options.get("op"), options.get("operations")
    if operation.verb == "apply_changes":
        columns, records = change_columns(table.snapshot, *named)
    if paths is None:
        return rows_of_objects(rows, columns, even=even, records=records).read_all()
    if files is None:
        raise InvalidRequest(
            "files of rows are not read here", next_step="Give rows", table=table.uri
        )
    local = files(paths)

    def read() -> pa.RecordBatchReader:
        if records:
            return local.change_records(table.snapshot, *named)
        return local.rows(schema, even=even)

    return read() if STANDARD in paths else _Rows(read)

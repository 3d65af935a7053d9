"""The messages of the delete and rewrite queues, and the events of schedules.

Promise: a request is checked whole before anything is done. An unknown field is refused: a misspelt
`where` must not become a request without one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pyarrow as pa
from aws_lambda_powertools.utilities.parser import BaseModel, Field
from pydantic import AfterValidator, ConfigDict, model_validator

from inlay.engine import Request
from inlay.errors import InvalidRequest
from inlay.functions.validation import Mode, check_table_name

# The ledger keeps a digest; the bound keeps log lines and receipts readable.
_MAX_ID = 256

# How often rewriting may notify itself to continue with a table. A table with more work than a day of
# invocations can do needs the Spark jobs. The schedule starts again at none.
MAX_HOPS = 96

# AWS: events are delivered within seconds, sometimes a minute or longer. Younger files are left to them.
SETTLE_SECONDS = 15 * 60


def _utc(at: datetime) -> datetime:
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("not a time of the years 1 to 9999 in UTC") from None


TableName = Annotated[str, AfterValidator(check_table_name)]
Scalar = str | int | float | bool | None


class _Dated(BaseModel):
    """A request that is applied once by its id. `requested_at` is ISO 8601; without a zone it is UTC."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, min_length=1, max_length=_MAX_ID)
    requested_at: Annotated[datetime, AfterValidator(_utc)] | None = None

    def time_us(self, sent_us: int) -> int:
        """When it was requested; `sent_us` is when its message was sent."""
        if self.requested_at is None:
            return sent_us
        return round(self.requested_at.timestamp() * 1_000_000)


class _Identified(_Dated):
    """One on a table."""

    table: TableName

    @property
    def body(self) -> str:
        """What makes two requests with one id the same request."""
        raise NotImplementedError

    @property
    def may_be_older(self) -> bool:
        """Whether the message that carries it may be a repetition of another one: its sender chose the id,
        and does not say when the request was made."""
        return self.id is not None and self.requested_at is None

    def request(self, request_id: str, time_us: int) -> Request:
        """As the ledger compares it."""
        made = Request.of(request_id, body=self.body, time_us=time_us)
        return replace(made, may_be_older=self.may_be_older)


class ChangesRequest(_Identified):
    """`{"id"?, "requested_at"?, "table", "changes"}`: records of a change stream, as objects of JSON, which
    the table's properties `changes.*` say how to apply."""

    changes: list[dict[str, Any]] = Field(min_length=1)

    @property
    def body(self) -> str:
        return json.dumps([self.table, self.changes], sort_keys=True)


class DeleteRequest(_Identified):
    """`{"id"?, "requested_at"?, "table", "where" | "keys", "mode"?}`.

    `where` is SQL. `keys` are columns with lists of values (`{"user_id": [1, 2]}`), rows (`[{"a": 1,
    "b": 2}]`), or values of the primary key when that is one column (`[1, 2]`). `mode` is the table's
    own unless given. Each of several keys gets an erasure of its own, `ID.1`, `ID.2` …, in one commit; a
    condition with many values becomes several (`open_erasures`). An erasure takes `keys_from` in their
    place, the URI of a file of keys (`inlay.ops.erase.key_files`).
    """

    where: str | None = Field(None, min_length=1)
    keys: dict[str, list[Scalar]] | list[dict[str, Scalar]] | list[Scalar] | None = None
    mode: Mode | None = None
    keys_from: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _names_rows(self) -> DeleteRequest:
        if sum(given is not None for given in (self.where, self.keys, self.keys_from)) != 1:
            raise ValueError("give either where or keys, or keys_from")
        if self.keys_from is not None and self.mode != "erase":
            raise ValueError("keys_from is of erasures")
        return self

    @property
    def body(self) -> str:
        file = [] if self.keys_from is None else [self.keys_from]
        return json.dumps([self.table, self.where, self.keys, self.mode, *file], sort_keys=True)

    def forwarded(self, request_id: str, time_us: int) -> dict[str, object]:
        """This request with its id and time included, for another queue."""
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)
        # Only fields that were left out are left out: a NULL among the keys is kept.
        said = {n: v for n, v in self.model_dump(mode="json").items() if v is not None}
        made = {} if self.may_be_older else {"requested_at": at.isoformat()}
        return {**said, "id": request_id, **made}

    def key_table(self, schema: pa.Schema, primary_key: Sequence[str]) -> pa.Table:
        """The keys as columns with the types of `schema`. Raises `InvalidRequest`; Arrow's errors, which
        would repeat a value, are not passed on."""
        keys = self._columns(primary_key)
        for position, name in enumerate(keys.column_names):
            if name not in schema.names:
                raise InvalidRequest(
                    f"the keys' column {position + 1} is not one of the table",
                    next_step=f"The columns are: {', '.join(schema.names)}",
                    table=self.table,
                )
            kind = schema.field(name).type
            try:
                keys = keys.set_column(position, name, _typed(keys.column(position), kind))
            except (pa.ArrowException, TypeError):
                raise InvalidRequest(
                    f"the keys for {name!r} are not all {kind}",
                    next_step="Write texts, dates and times as texts, numbers as numbers, booleans as such",
                    table=self.table,
                ) from None
        return keys

    def _columns(self, primary_key: Sequence[str]) -> pa.Table:
        try:
            if isinstance(self.keys, dict):
                return pa.table(self.keys)
            rows = [row for row in self.keys or () if isinstance(row, dict)]
            if rows:
                # Arrow takes the columns of the first row: those of another would not narrow it.
                if any(row.keys() != rows[0].keys() for row in rows):
                    raise InvalidRequest(
                        "the rows of keys do not all name the same columns",
                        next_step="Send a message for the rows of each set of columns",
                        table=self.table,
                    )
                return pa.Table.from_pylist(rows)
            if len(primary_key) == 1:
                return pa.table({primary_key[0]: self.keys})
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise InvalidRequest(
                "keys are not columns of equal length with values of one type each",
                table=self.table,
            ) from None
        raise InvalidRequest(
            "keys without a column's name need a primary key of one column",
            next_step='Name the columns: {"keys": {"column": [values]}}',
            table=self.table,
        )


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """JSON values as `kind`: a text may stand for a value of any type, a number for a number only. Raises
    `TypeError` and Arrow's errors. Arrow would also make a date or a text of a number, and 1 of true:
    nobody asked for that, and it would delete other rows."""
    given = column.type
    if pa.types.is_null(given):
        return column.cast(kind)
    if pa.types.is_boolean(given) != pa.types.is_boolean(kind):
        raise TypeError("a boolean is not a number or a text")
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if not (pa.types.is_string(given) or is_number or pa.types.is_boolean(kind)):
        raise TypeError("a number is not a text, a date or a time")
    if pa.types.is_decimal(kind) and not pa.types.is_string(given):
        # By its digits: Arrow rounds a double to the scale, and takes integers for all of 19 digits.
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        column = pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(kind)


class OperationsRequest(_Dated):
    """`{"id"?, "requested_at"?, "operations"}`: deletes and erasures on several tables, and moves of rows
    between them, in one commit. Each is `{"delete": TABLE, "where" | "keys", "params"?, "mode"?}` or
    `{"move": TABLE, "to": TABLE, "where", "params"?}` (`inlay commit --help`). A sender gives no rows: what
    is written to a table was in another one of this deployment."""

    operations: list[dict[str, Any]] = Field(min_length=1)

    @model_validator(mode="after")
    def _deletes_or_moves(self) -> OperationsRequest:
        for operation in self.operations:
            if ("delete" in operation) == ("move" in operation):
                raise ValueError("an operation of a message is a delete or a move")
            check_table_name(str(operation.get("delete", operation.get("move"))))
            if "move" in operation:
                check_table_name(str(operation.get("to")))
            elif operation.get("mode") not in (None, "tombstone", "vector", "erase"):
                raise ValueError(
                    "a delete of several tables is tombstone, vector or erase: others take one commit each"
                )
        return self

    @property
    def erased(self) -> frozenset[str]:
        return frozenset(str(e["delete"]) for e in self.operations if e.get("mode") == "erase")

    @property
    def read(self) -> frozenset[str]:
        """Tables that rows are moved from."""
        return frozenset(str(e["move"]) for e in self.operations if "move" in e)


class RewriteRequest(BaseModel):
    """A hint that a table has something to rewrite: `{"table", "where"?, "hops"?}`. The table's snapshot
    defines the work. `hops` counts how often the function notified itself. Or `{"table", "delete"}`: a
    delete request that has to read data, of that table. It is never an erasure: opening one reads nothing,
    so none is forwarded, and whoever may send hints may not erase."""

    model_config = ConfigDict(extra="forbid")

    table: TableName
    where: str | None = None
    hops: int = Field(default=0, ge=0, le=MAX_HOPS, strict=True)
    delete: DeleteRequest | None = None

    @model_validator(mode="after")
    def _deletes_there(self) -> RewriteRequest:
        if self.delete is not None and self.delete.table != self.table:
            raise ValueError("the delete request is of another table")
        if self.delete is not None and self.delete.mode == "erase":
            raise ValueError("an erasure is sent to the queue for erasures")
        return self


class MaintenanceRequest(BaseModel):
    """What a maintenance function is asked for. Without a table it is for all, as a schedule's event is.
    `dry_run` only reports. For garbage collection: `grace_days`; `erasures_only` skips tables without an
    open erasure; `landing_only` looks for landed files without an event that are older than
    `settle_seconds` (900); `life_seconds` is the longest one read or write may take, which erasures wait
    for; `clock_margin_seconds` is how far the store's LastModified may be behind its Date (60). A function
    refuses what it does not take."""

    model_config = ConfigDict(extra="forbid")

    table: TableName | None = None
    grace_days: float | None = Field(None, ge=0)
    dry_run: bool = False
    erasures_only: bool = False
    landing_only: bool = False
    settle_seconds: float = Field(SETTLE_SECONDS, ge=0)
    life_seconds: float | None = Field(None, ge=0)
    clock_margin_seconds: float | None = Field(None, ge=0)


class RoundRequest(BaseModel):
    """A table's turn in a round, as the function notified itself. It has no other options, so that a sender
    to the queue can cause only the work that a schedule does."""

    model_config = ConfigDict(extra="forbid")

    table: TableName
    erasures_only: bool = False
    landing_only: bool = False

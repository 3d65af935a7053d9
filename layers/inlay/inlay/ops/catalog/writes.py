"""The tables of a folder as a writable catalog changes them (`iceberg.catalog.Writes`).

Promise: nothing is kept between requests; whatever is done, is done by the operations of the table. A name
that is no folder's is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inlay.errors import InvalidRequest, TableExists
from inlay.iceberg.commit import CommitRequest
from inlay.ops.adopt.adopt import adopt
from inlay.ops.catalog.commit import commit_table, create, keyed, load, stage
from inlay.ops.catalog.several import commit_tables
from inlay.ops.commit.driver import already_applied
from inlay.ops.context import Context
from inlay.ops.drop import drop, was_dropped
from inlay.ops.metadata.load import load_pointer
from inlay.record import Record


class TableWrites(Record):
    """`context` is a new context for the table of a name; it raises `InvalidRequest` for a name that cannot
    be a table's."""

    context: Callable[[str], Context]

    def load(self, table: str) -> bytes:
        return load(self.context(table))

    def create(self, table: str, found: Any, key: str | None) -> bytes:
        return create(self.context(table), found, key)

    def stage(self, table: str, found: Any) -> bytes:
        return stage(self.context(table), found)

    def commit(self, table: str, request: CommitRequest) -> bytes:
        return commit_table(self.context(table), request)

    def commit_all(self, tables: Sequence[str], requests: Sequence[CommitRequest]) -> None:
        commit_tables([self.context(table) for table in tables], requests)

    def register(self, table: str, location: str, key: str | None) -> bytes:
        """The table of Iceberg metadata, adopted where its files are."""
        if not location.endswith(".metadata.json"):
            raise InvalidRequest("a table is registered by its metadata file, ….metadata.json")
        ctx = self.context(table)
        named = keyed(key, location)
        try:
            adopt(ctx, location, properties={"publish.format": "v2"}, request=named)
        except TableExists:
            _, before = already_applied(ctx, load_pointer(ctx), named)
            if before is None:
                raise
        return load(ctx)

    def drop(self, table: str, key: str | None) -> None:
        """The pointer goes; the objects follow after the grace, whatever the client says of purging."""
        ctx = self.context(table)
        named = keyed(key, "drop")
        if named is None or not was_dropped(ctx, named):
            load_pointer(ctx)  # one that was dropped before is not there: nothing more is deleted
            drop(ctx, request=named)

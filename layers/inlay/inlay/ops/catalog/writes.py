"""The tables of a folder as a writable catalog changes them (`iceberg.catalog.Writes`).

Promise: nothing is kept between requests; whatever is done, is done by the operations of the table. A name
that is no folder's is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inlay.errors import InvalidRequest
from inlay.iceberg.commit import CommitRequest
from inlay.ops.adopt.adopt import adopt
from inlay.ops.catalog.commit import commit_table, create, load, stage
from inlay.ops.catalog.several import commit_tables
from inlay.ops.context import Context
from inlay.ops.drop import drop


@dataclass(frozen=True, slots=True)
class TableWrites:
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

    def register(self, table: str, location: str) -> bytes:
        """The table of Iceberg metadata, adopted where its files are."""
        if not location.endswith(".metadata.json"):
            raise InvalidRequest("a table is registered by its metadata file, ….metadata.json")
        ctx = self.context(table)
        adopt(ctx, location, properties={"publish.format": "v2"})
        return load(ctx)

    def drop(self, table: str) -> None:
        """The pointer goes; the objects follow after the grace, whatever the client says of purging."""
        drop(self.context(table))

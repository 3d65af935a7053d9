"""Append: rows become data files, then one commit.

Promise: the rows are in the table once, or the call fails and they are not; repeated with the same
request id it changes nothing. Appends conflict with no other change of rows: a lost race normally costs
two more requests.

`IngestSource`, which `ops.write.ingest` takes, is what an event names: an object, and which content of it.
All events of one content have one identity, by which the ledger knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from inlay.arguments import time_us
from inlay.format.properties import Properties
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    already_applied,
    check_same_schema,
    commit_planned,
    recent_base,
)
from inlay.ops.commit.group import commit_together, with_archive_begun
from inlay.ops.context import Context
from inlay.ops.data import reader_of, write_data
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.alter import admit_columns
from inlay.ops.schema.categories import admit_orders
from inlay.parquet.write.writer import PUT_BYTES
from inlay.plan.change import AddFiles, Change, Request
from inlay.storage.base import Location


@dataclass(frozen=True, slots=True)
class IngestSource:
    """One object to ingest, as an event or a caller names it. `event_time_us` is S3's eventTime."""

    location: Location
    etag: str | None = None
    version_id: str | None = None
    event_time_us: int | None = None

    @classmethod
    def of_event(
        cls,
        scheme: str,
        bucket: str,
        key: str,
        *,
        etag: str | None,
        version_id: str | None,
        at: datetime,
    ) -> IngestSource:
        """The object that an event of a store names."""
        return cls(
            location=Location(scheme, bucket, key),
            etag=etag.strip('"') if etag else None,
            # S3 says "null" where versioning is off or suspended: that identifies no content.
            version_id=None if version_id in (None, "", "null") else version_id,
            event_time_us=time_us(at),
        )

    @property
    def identity(self) -> str:
        """Bucket, key and content: with versioning the version id, else the ETag (docs/FORMAT.md,
        section 9)."""
        return f"{self.location.uri}@{self.version_id or self.etag}"

    @property
    def content(self) -> Location:
        """The location of the content that the event names: its version, even if overwritten since."""
        return replace(self.location, version_id=self.version_id)

    @property
    def request(self) -> Request:
        return Request.of(self.identity, time_us=self.event_time_us)


def append(
    ctx: Context, data: Any, *, base: LoadedTable | None = None, request: Request | None = None
) -> Committed | Skipped:
    """Appends any Arrow data (`ops.data`). Raises `SchemaMismatch` before anything is written
    when the data does not fit, `StaleUpload` when GC overtook the upload and the data can be read only
    once."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    if Properties(loaded.snapshot.properties).adds_columns:
        # Only a table or batch can be inspected before it is read.
        data = data if isinstance(data, pa.Table | pa.RecordBatch) else reader_of(data)
        loaded = admit_columns(ctx, loaded, [data.schema])

    loaded, data = admit_orders(ctx, loaded, data)
    upload = _Upload(ctx, data, request, bound_to=loaded, planned_on=loaded)
    limits = {"plans": 1, "uploads": 1} if isinstance(data, pa.RecordBatchReader) else {}
    try:
        return commit_planned(ctx, loaded, upload.plan, submit=commit_together, **limits)
    finally:
        upload.end()


@dataclass(slots=True)
class _Upload:
    """The rows of one append, as files on the base of the last plan.

    `bound_to` is the table that the rows were found to fit, `planned_on` that base, with its archive once
    that is on its way.
    """

    ctx: Context
    data: Any
    request: Request | None
    bound_to: LoadedTable
    planned_on: LoadedTable

    def plan(self, base: LoadedTable) -> Planned | None:
        check_same_schema(self.ctx, self.bound_to, base)
        self.planned_on = base
        begin = partial(self._begin_archive, base)
        now_us = base.date_us
        files = tuple(write_data(self.ctx, base.snapshot, self.data, time_us=now_us, begin=begin))
        if not files and self.request is None:
            return None
        change = Change(
            operation="append",
            request=self.request,
            uploaded_us=now_us,
            updates=(AddFiles(files),),
        )
        return Planned(change, self.planned_on)

    def _begin_archive(self, base: LoadedTable) -> None:
        """A small upload takes about as long as the archive of the base: both at once."""
        data, is_begun = self.data, self.planned_on is not base
        is_small = isinstance(data, pa.Table | pa.RecordBatch) and data.nbytes <= PUT_BYTES
        if is_small and not is_begun:
            self.planned_on = with_archive_begun(self.ctx, base)

    def end(self) -> None:
        if self.planned_on.archiving is not None:
            self.planned_on.archiving.exception()  # no request outlives the call


def request_shape(operation: str, data: Any) -> str | None:
    """What is known of an append's content before it is read: columns and row count of a table, nothing of
    a stream. This detects a request id reused for something else. It is not a digest of the rows, which
    would differ for equal rows in other chunks and refuse a legitimate repetition."""
    if not isinstance(data, pa.Table | pa.RecordBatch):
        return None
    return f"{operation}:{','.join(data.schema.names)}:{data.num_rows}"

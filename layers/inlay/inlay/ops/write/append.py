"""Append: rows become data files, then one commit.

Promise: the rows are in the table once, or the call fails and they are not; repeated with the same
request id it changes nothing. Appends conflict with no other change of rows: a lost race normally costs
two more requests.

`IngestSource`, which `ops.write.ingest` takes, is what an event names: an object, and which content of it.
All events of one content have one identity, by which the ledger knows it.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import pyarrow as pa

from inlay.arguments import time_us
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    already_applied,
    check_same_schema,
    commit_planned,
    recent_base,
)
from inlay.ops.commit.group import archive_beside, commit_together
from inlay.ops.context import Context
from inlay.ops.data import write_data
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.admit import admit_rows
from inlay.plan.change import AddFiles, Change, Request
from inlay.record import Record, replace
from inlay.storage.base import Location


class IngestSource(Record):
    """One object to ingest, as an event or a caller names it. `event_time_us` is S3's eventTime."""

    location: Location
    etag: str | None = None
    version_id: str | None = None
    event_time_us: int | None = None

    @staticmethod
    def is_ignored(path: str, *, size: int | None) -> bool:
        """Whether an object of this path, within where it landed, is a marker and no data."""
        from inlay.format.landing import landed_object  # nothing that an append needs

        return landed_object(path, size=size).is_ignored

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
    loaded, data = admit_rows(ctx, loaded, data)
    bound_to = loaded
    upload_bytes = data.nbytes if isinstance(data, pa.Table | pa.RecordBatch) else sys.maxsize

    def plan(base: LoadedTable) -> Planned | None:
        check_same_schema(ctx, bound_to, base)
        now_us = base.date_us
        with archive_beside(ctx, base, upload_bytes) as uploads:
            files = tuple(write_data(uploads.ctx, base.snapshot, data, time_us=now_us))
        if not files and request is None:
            return None
        change = Change(
            operation="append", request=request, uploaded_us=now_us, updates=(AddFiles(files),)
        )
        return Planned(change, uploads.base)

    return commit_planned(
        ctx, loaded, plan, once=isinstance(data, pa.RecordBatchReader), submit=commit_together
    )


def request_shape(operation: str, data: Any) -> str | None:
    """What is known of an append's content before it is read: columns and row count of a table, nothing of
    a stream. This detects a request id reused for something else. It is not a digest of the rows, which
    would differ for equal rows in other chunks and refuse a legitimate repetition."""
    if not isinstance(data, pa.Table | pa.RecordBatch):
        return None
    return f"{operation}:{','.join(data.schema.names)}:{data.num_rows}"

"""What an event names: an object, and which content of it.

Promise: all events of one content have one identity, by which the ledger knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.plan.change import Request
from inlay.storage.base import Location


@dataclass(frozen=True, slots=True)
class IngestSource:
    """One object to ingest, as an event or a caller names it. `event_time_us` is S3's eventTime."""

    location: Location
    etag: str | None = None
    version_id: str | None = None
    event_time_us: int | None = None

    @property
    def identity(self) -> str:
        """Bucket, key and content: with versioning the version id, else the ETag (docs/design/design.md,
        section 8)."""
        return f"{self.location.uri}@{self.version_id or self.etag}"

    @property
    def content(self) -> Location:
        """The location of the content that the event names: its version, even if overwritten since."""
        return replace(self.location, version_id=self.version_id)

    @property
    def request(self) -> Request:
        return Request.of(self.identity, time_us=self.event_time_us)

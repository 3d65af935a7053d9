"""What stands in for S3's notifications, with a server that sends none.

Promise: every file under the landing prefix is announced to the queue, at least once for the content it has
when somebody looks. A key overwritten twice between two looks is announced once.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from inlay.engine import EmbeddedS3

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sqs.client import SQSClient


# SQS keeps a message 14 days at most: for an older file none would be left either.
OLDEST_EVENT = timedelta(days=14)


@dataclass(kw_only=True, eq=False)
class LandingWatch:
    """Lists the landing zone of one bucket and sends the events of what is new."""

    s3: S3Client
    sqs: SQSClient
    bucket: str
    prefix: str
    queue_url: str
    _announced: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> int:
        """Announce what has landed since the last look; returns how many files."""
        with self._lock:
            count = 0
            oldest = datetime.now(UTC) - OLDEST_EVENT
            pages = self.s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix):
                for item in page.get("Contents", []):
                    key, etag = item["Key"], item["ETag"]
                    if self._announced.get(key) == etag or item["LastModified"] < oldest:
                        continue
                    landed = EmbeddedS3.event_of(self.bucket, key, item)
                    self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(landed))
                    self._announced[key] = etag
                    count += 1
            return count

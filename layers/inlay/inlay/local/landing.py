"""S3's notifications, for an S3 server that sends none.

Promise: every file under the landing prefix is announced to the queue, at least once for the content
it has when somebody looks. A key overwritten twice between two looks is announced once.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from inlay.local.s3_events import event

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sqs.client import SQSClient

# SQS keeps a message 14 days at most: for an older file none would be left either.
OLDEST_EVENT = timedelta(days=14)


class LandingWatch:
    """Lists the landing zone of one bucket and sends the events of what is new."""

    def __init__(
        self, *, s3: S3Client, sqs: SQSClient, bucket: str, prefix: str, queue_url: str
    ) -> None:
        self._s3 = s3
        self._sqs = sqs
        self._bucket = bucket
        self._prefix = prefix
        self._queue_url = queue_url
        self._announced: dict[str, str] = {}
        self._lock = threading.Lock()

    def look(self) -> int:
        """Announce what has landed since the last look; returns how many files."""
        with self._lock:
            count = 0
            oldest = datetime.now(UTC) - OLDEST_EVENT
            pages = self._s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for found in page.get("Contents", []):
                    key, etag = found["Key"], found["ETag"]
                    if self._announced.get(key) == etag or found["LastModified"] < oldest:
                        continue
                    landed = event(
                        self._bucket,
                        key,
                        size=found["Size"],
                        etag=etag.strip('"'),
                        at_us=int(found["LastModified"].timestamp() * 1_000_000),
                    )
                    self._sqs.send_message(QueueUrl=self._queue_url, MessageBody=json.dumps(landed))
                    self._announced[key] = etag
                    count += 1
            return count

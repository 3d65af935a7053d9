"""Cost: what the embedded server was asked for while a step ran, by its access log.

Counted outside the program, as S3 would bill it. Another S3 server keeps no log for us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from inlay.local.aws_process import AwsProcess


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests by operation, bytes to the server and from it (bodies)."""

    requests: Mapping[str, int]
    bytes_up: int
    bytes_down: int

    @property
    def total(self) -> int:
        return sum(self.requests.values())


class Meter:
    """`mark()`, then `since_mark()`: what a function of the name asked for (`only`), or all but it (`but`).
    The demo's own uploads into the landing zone do not count."""

    def __init__(self, aws: AwsProcess | None) -> None:
        self._aws = aws
        self._mark = 0

    def mark(self) -> None:
        if self._aws is not None:
            self._mark = max(
                (r.number for r in self._aws.requests(after=self._mark)), default=self._mark
            )

    def since_mark(self, *, only: str = "", but: str = "") -> Cost | None:
        if self._aws is None:
            return None
        found = [
            request
            for request in self._aws.requests(after=self._mark)
            if request.service == "s3"
            and (request.app == only if only else not but or request.app != but)
            and not (request.method == "PUT" and request.key.startswith("ingest/"))
        ]
        return Cost(
            Counter(request.operation for request in found),
            sum(request.bytes_in for request in found),
            sum(request.bytes_out for request in found),
        )

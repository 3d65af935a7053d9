"""What the doctor finds, and what it looks at.

Promise: a finding says what is wrong and names one command that mends it, with the names of this deployment
in it. What could not be looked at is a finding too: it is never taken for sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never


class Severity(StrEnum):
    """`ERROR`: rows, erasures or alarms are at stake; `UNKNOWN`: it could not be looked at."""

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"

    @property
    def is_sound(self) -> bool:
        """Whether a deployment with such a finding does its work."""
        match self:
            case Severity.ERROR | Severity.UNKNOWN:
                return False
            case Severity.WARNING:
                return True
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """`mend` is a command, or says where to read on."""

    check: str
    severity: Severity
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class Examined:
    """`sound`: the checks that found nothing."""

    target: str
    bucket: str
    stack: str | None
    findings: tuple[Finding, ...]
    sound: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(finding.severity.is_sound for finding in self.findings)


# boto3.client, by the service's name.
Clients = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is examined: a stack with its bucket, or a bucket alone. `resources` are physical ids by logical
    ones; `prefix` is empty or ends in a slash."""

    bucket: str
    prefix: str
    region: str
    stack: str | None
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]
    resources: Mapping[str, str]
    clients: Clients
    now: float

    @property
    def tables(self) -> str:
        return f"{self.prefix}tables/"

    @property
    def landing(self) -> str:
        return f"{self.prefix}ingest/"

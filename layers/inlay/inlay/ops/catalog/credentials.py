"""Credentials that a catalog lends to engines, of one table each (`iceberg.credentials`).

Promise: they are of a session of the given role, limited to that table, and end within the hour. Nothing is
kept here: each asking is one request to STS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from inlay.errors import InvalidRequest
from inlay.iceberg.credentials import partition_of, session_name, session_policy
from inlay.ops.context import Context
from inlay.record import Record
from inlay.storage.assumed_role import Assumed, assume_role


class Assuming(Protocol):
    def __call__(self, role: str, *, policy: str, name: str) -> Assumed: ...


class EngineCredentials(Record):
    """`role` is the ARN that is assumed, `context` a context for the table of a name; `write` whether the
    credentials also create objects, and `also` the ARNs of adopted files elsewhere, which they read."""

    role: str
    context: Callable[[str], Context]
    write: bool = False
    also: Sequence[str] = ()
    assume: Assuming = assume_role

    def __post_init__(self) -> None:
        partition_of(self.role)  # what is wrong with it is said before anybody asks

    @staticmethod
    def check_scheme(scheme: str) -> None:
        """Raises `InvalidRequest` for tables of a store where roles are not assumed."""
        if scheme != "s3":
            raise InvalidRequest(
                f"credentials of a role are for tables on S3, not on {scheme}://",
                next_step="Leave --credentials-role out: engines use their own credentials",
            )

    def lent(self, table: str) -> tuple[str, Mapping[str, str]]:
        """What the credentials are for, as the beginning of URIs, and the properties of Iceberg's file I/O.
        Raises `InvalidRequest`, `AccessDenied`, `StoreUnavailable`."""
        ctx = self.context(table)
        self.check_scheme(ctx.store.scheme)
        policy = session_policy(
            ctx.store.bucket,
            ctx.root,
            write=self.write,
            partition=partition_of(self.role),
            also=self.also,
        )
        return ctx.location(""), _config(
            self.assume(self.role, policy=policy, name=session_name(table))
        )


def _config(session: Assumed) -> Mapping[str, str]:
    config = {
        "s3.access-key-id": session.access_key_id,
        "s3.secret-access-key": session.secret_access_key,
        "s3.session-token": session.session_token,
        "s3.session-token-expires-at-ms": str(session.expires_ms),
        "s3.region": session.region,
        "client.region": session.region,
    }
    if session.endpoint is not None:
        config |= {"s3.endpoint": session.endpoint, "s3.path-style-access": "true"}
    return config

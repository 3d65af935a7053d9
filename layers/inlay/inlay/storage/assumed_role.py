"""Credentials of a role for a short time, limited by a session's policy (AWS STS, AssumeRole).

Promise: one request, of this environment's own credentials; its answer or a typed error.
"""

from __future__ import annotations

from typing import Any, Final

import botocore.session
from botocore.exceptions import ClientError

from inlay.errors import AccessDenied, InvalidRequest
from inlay.record import Record, secret
from inlay.storage import s3_client, s3_environment, s3_errors

# A role that assumes another one, as a function does, gets an hour at most.
SESSION_SECONDS: Final = 3_600
# STS's answers that say what is wrong with the policy of the session.
_OF_THE_POLICY: Final = frozenset({"MalformedPolicyDocument", "PackedPolicyTooLarge"})


@secret("secret_access_key", "session_token")
class Assumed(Record):
    """Credentials that end at `expires_ms`; the region and the endpoint of this environment's S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_ms: int
    region: str
    endpoint: str | None


def assume_role(role: str, *, policy: str, name: str) -> Assumed:
    """Raises `AccessDenied` where the role may not be assumed, `InvalidRequest` for a policy that STS does
    not take, `StoreUnavailable`."""
    client = s3_client.connect()
    region = client.meta.region_name
    try:
        sts: Any = botocore.session.Session().create_client("sts", region_name=region)
        answer = sts.assume_role(
            RoleArn=role,
            RoleSessionName=name,
            Policy=policy,
            DurationSeconds=SESSION_SECONDS,
        )
    except ClientError as error:
        _, code, message = s3_errors.parts_of(error)
        if code in _OF_THE_POLICY:
            raise InvalidRequest(
                f"STS takes no such policy of a session: {message}",
                next_step="Use the engine's own credentials for this table",
            ) from error
        if code == "AccessDenied":
            raise AccessDenied(
                f"the catalog may not assume the role of engines: {message}",
                next_step="Name the catalog's principal in the role's trust policy, and allow it "
                "sts:AssumeRole",
            ) from error
        raise s3_errors.of_settings(error) from error
    except Exception as error:
        raise s3_errors.of_settings(error) from error
    credentials = answer["Credentials"]
    return Assumed(
        credentials["AccessKeyId"],
        credentials["SecretAccessKey"],
        credentials["SessionToken"],
        int(credentials["Expiration"].timestamp() * 1000),
        region,
        s3_environment.endpoint_of(None) or None,
    )

"""What an engine is lent with a table: credentials for the objects that it reads and writes, and no others.

Promise: the policy of a session allows reading a table's files, its vectors and what is published of it,
and where writes are taken creating files under its `data/` and `metadata/`: never the pointer, an archive,
a segment or a receipt, nor what Inlay itself publishes; and no deletion. The role's own policies limit it
further. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from inlay.errors import InvalidRequest
from inlay.format import keys

# Of the text of a session's policy; STS counts a packed form of it as well, and says so.
MAX_POLICY_CHARACTERS = 2_048
_READ = (f"{keys.DATA}*", f"{keys.PUBLISHED}*", f"{keys.TOMBSTONES}*.puffin")
_WRITTEN = (f"{keys.DATA}*", f"{keys.PUBLISHED}*")
# What is published, of any table: a refusal may be wider than what is allowed.
_PUBLISHED = (
    keys.PUBLISHED_POINTER,
    keys.VERSION_HINT,
    f"{keys.PUBLISHED}v*.metadata.json",
    keys.published_key("*"),
)
_NOT_IN_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
_ARN = re.compile(r"arn:([a-z-]+):iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)


def partition_of(role: str) -> str:
    """The partition of AWS that a role's ARN is of. Raises `InvalidRequest`.

    >>> partition_of("arn:aws-cn:iam::123456789012:role/engines")
    'aws-cn'
    """
    match = _ARN.fullmatch(role)
    if match is None:
        raise InvalidRequest(
            f"{role[:200]!r} is no ARN of a role",
            next_step="It is arn:aws:iam::ACCOUNT:role/NAME",
        )
    return match[1]


def session_policy(
    bucket: str, root: str, *, write: bool, partition: str = "aws", also: Sequence[str] = ()
) -> str:
    """The policy of a session for the table at `root` in `bucket`. `also` are the ARNs of objects elsewhere
    that tables may have adopted: they are read. Raises `InvalidRequest` where it is too long."""
    objects = f"arn:{partition}:s3:::"
    table = f"{objects}{bucket}/{_literal(root)}/"
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [*(table + pattern for pattern in _READ), *also],
        },
        {
            # An object that is not there is then missing, and not denied.
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"{objects}{bucket}",
            "Condition": {"StringLike": {"s3:prefix": [f"{_literal(root)}/{p}" for p in _WRITTEN]}},
        },
        {
            "Effect": "Allow",
            "Action": ["kms:Decrypt", *(["kms:GenerateDataKey"] if write else [])],
            "Resource": "*",
            "Condition": {"StringLike": {"kms:ViaService": "s3.*"}},
        },
    ]
    if write:
        statements += [
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
                "Resource": [table + pattern for pattern in _WRITTEN],
            },
            {
                "Effect": "Deny",
                "Action": "s3:PutObject",
                "Resource": [f"{objects}*/{pattern}" for pattern in _PUBLISHED],
            },
        ]
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    if len(text) > MAX_POLICY_CHARACTERS:
        raise InvalidRequest(
            f"credentials for this table alone need a policy of {len(text)} characters, more than "
            f"{MAX_POLICY_CHARACTERS}",
            next_step="Use the engine's own credentials for tables whose folder has so long a name",
        )
    return text


def _literal(text: str) -> str:
    """A text in which no character stands for others in a policy.

    >>> _literal("a*b$")
    'a${*}b${$}'
    """
    return re.sub(r"[*?$]", lambda sign: f"${{{sign[0]}}}", text)


def session_name(table: str) -> str:
    """What the bucket's log calls the session.

    >>> session_name("orders of 2026")
    'inlay-orders-of-2026'
    """
    return f"inlay-{_NOT_IN_NAMES.sub('-', table)}"[:64]


def with_credentials(body: bytes, prefix: str, config: Mapping[str, str]) -> bytes:
    """The answer to loadTable with credentials, for clients that look in either place."""
    answer = json.loads(body)
    answer["config"] = {**answer.get("config", {}), **config}
    return json.dumps(answer | credentials_answer(prefix, config)).encode()


def credentials_answer(prefix: str, config: Mapping[str, str]) -> dict[str, Any]:
    return {"storage-credentials": [{"prefix": prefix, "config": dict(config)}]}

"""What `template.yaml` tells a function, read from its environment.

Promise: a variable that is missing or makes no sense is an error that names it, when it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from inlay.errors import InvalidRequest


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InvalidRequest(
            f"the function has no {name}", next_step="Set it in template.yaml and deploy again"
        )
    return value


def bucket_uri() -> str:
    """Where the tables are: a bucket's name means S3; tests name another store by its URI."""
    bucket = _variable("INLAY_BUCKET")
    return bucket if "://" in bucket else f"s3://{bucket}"


def prefix() -> str:
    """What stands before tables/ and ingest/ in the bucket: empty, or ending in a slash."""
    return os.environ.get("INLAY_PREFIX", "")


def dead_letters_url(source_arn: str = "") -> str:
    """Where messages of a queue are buried: those of the erase and round queues beside the others."""
    for kind in ("ERASE", "ROUND"):
        own = os.environ.get(f"INLAY_{kind}_DEAD_LETTERS")
        if own and _is_from(f"INLAY_{kind}_QUEUE", source_arn):
            return own
    return _variable("INLAY_DEAD_LETTERS")


def is_erase_queue(source_arn: str) -> bool:
    """Whether a message came from the queue for erasures."""
    return _is_from("INLAY_ERASE_QUEUE", source_arn)


def _is_from(variable: str, source_arn: str) -> bool:
    """Whether a queue's ARN is that of the URL in a variable, by the queue's name."""
    url = os.environ.get(variable, "")
    return bool(url) and url.rpartition("/")[2] == source_arn.rpartition(":")[2]


def round_queue_url() -> str:
    """Where this function sends itself the tables of a round."""
    return _variable("INLAY_ROUND_QUEUE")


def may_erase(source_arn: str) -> bool:
    """Whether a request from this queue may erase. Where there is no queue for erasures, any may."""
    if not os.environ.get("INLAY_ERASE_QUEUE"):
        return True
    anyone = os.environ.get("INLAY_ERASE_FROM_DELETE_QUEUE", "false").lower() == "true"
    return anyone or is_erase_queue(source_arn)


def ingest_queue_url() -> str:
    return _variable("INLAY_INGEST_QUEUE")


def rewrite_queue_url() -> str:
    return _variable("INLAY_REWRITE_QUEUE")


def handover_queue_url() -> str:
    return _variable("INLAY_HANDOVER_QUEUE")


def memory_bytes() -> int | None:
    """What Lambda gives this function; None elsewhere."""
    megabytes = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
    return int(megabytes) * 2**20 if megabytes else None


def grace_days() -> int:
    return int(_variable("INLAY_GRACE_DAYS"))


def adopt_from() -> tuple[str, ...] | None:
    """Patterns of `bucket/key` where adopted files may be read, beside the table's own bucket's tables and
    landing zone; None where nothing is said, as outside of a deployment."""
    said = os.environ.get("INLAY_ADOPT_FROM")
    if said is None:
        return None
    bucket = _variable("INLAY_BUCKET").rpartition("/")[2]
    own = (f"{bucket}/{prefix()}tables/*", f"{bucket}/{prefix()}ingest/*")
    given = (each.strip().rpartition(":::")[2] for each in said.split(","))
    return (*own, *(each for each in given if each))


def table_metrics() -> bool:
    """Whether metrics are by table, and not only by function."""
    return os.environ.get("INLAY_TABLE_METRICS", "false").lower() == "true"


def source_queue_url(source_arn: str = "") -> str | None:
    """The queue that a batch came from, where its messages may be handed back."""
    if is_erase_queue(source_arn):
        return os.environ["INLAY_ERASE_QUEUE"]
    return os.environ.get("INLAY_SOURCE_QUEUE") or None


def auto_create() -> bool:
    return os.environ.get("INLAY_AUTO_CREATE", "false").lower() == "true"


def table_defaults() -> Mapping[str, object]:
    """Properties of tables that ingest creates."""
    text = os.environ.get("INLAY_TABLE_DEFAULTS") or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidRequest(
            "INLAY_TABLE_DEFAULTS is not a JSON object",
            next_step="Set the TableDefaults parameter to one, such as {}",
        )
    return found


def retention_days() -> Mapping[str, float]:
    """How long queues, logs and the like last, for the receipts of erasures: `name=days;name=days`."""
    pairs = [p.partition("=") for p in os.environ.get("INLAY_RETENTION_DAYS", "").split(";") if p]
    try:
        return {name.strip(): float(days) for name, _, days in pairs}
    except ValueError:
        raise InvalidRequest(
            "INLAY_RETENTION_DAYS is no list of name=days",
            next_step="Set it to one, such as: dead letters=14;function logs=30",
        ) from None


def erasure_key() -> bytes:
    """The key of the receipts' HMAC: given by itself where there is no Secrets Manager, else fetched
    from the secret that is named."""
    given = os.environ.get("INLAY_ERASURE_KEY")
    if given:
        return given.encode()
    import boto3

    secret = boto3.client("secretsmanager").get_secret_value(
        SecretId=_variable("INLAY_ERASURE_KEY_SECRET")
    )
    return str(secret["SecretString"]).encode()

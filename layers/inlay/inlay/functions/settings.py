"""The settings of a function, from its environment (`template.yaml`).

Promise: a missing or invalid variable is an error that names it, when it is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.functions.verdict import code_of

if TYPE_CHECKING:
    from inlay.engine import KeyFile, LockedCopies
    from inlay.functions.signing import KmsKey


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InvalidRequest(
            f"the function has no {name}", next_step="Set it in template.yaml and deploy again"
        )
    return value


def bucket_uri() -> str:
    """Where the tables are: a bucket's name means S3; tests give another store by its URI."""
    bucket = _variable("INLAY_BUCKET")
    return bucket if "://" in bucket else f"s3://{bucket}"


def prefix() -> str:
    """The prefix of tables/ and ingest/ in the bucket: empty, or ending in a slash."""
    return os.environ.get("INLAY_PREFIX", "")


def dead_letters_url(source_arn: str) -> str:
    """The dead-letter queue for messages of a queue: the erase and round queues have their own."""
    for kind in ("ERASE", "ROUND"):
        own = os.environ.get(f"INLAY_{kind}_DEAD_LETTERS")
        if own and _is_from(f"INLAY_{kind}_QUEUE", source_arn):
            return own
    return _variable("INLAY_DEAD_LETTERS")


def catalog_writes() -> bool:
    """Whether the catalog takes commits of engines."""
    return os.environ.get("INLAY_CATALOG_WRITES") == "true"


def catalog_role() -> str | None:
    """The ARN of the role whose credentials the catalog lends to engines."""
    return os.environ.get("INLAY_CATALOG_ROLE") or None


def adopted_objects() -> tuple[str, ...]:
    """ARNs of objects that tables may have adopted, with wildcards."""
    said = os.environ.get("INLAY_ADOPT_FROM", "").split(",")
    return tuple(each.strip() for each in said if each.strip())


def is_erase_queue(source_arn: str) -> bool:
    """Whether a message came from the queue for erasures."""
    return _is_from("INLAY_ERASE_QUEUE", source_arn)


def _is_from(variable: str, source_arn: str) -> bool:
    """Whether a queue's ARN is that of the URL in a variable, by the queue's name."""
    url = os.environ.get(variable, "")
    return bool(url) and url.rpartition("/")[2] == source_arn.rpartition(":")[2]


def may_erase(source_arn: str) -> bool:
    """Whether a request from this queue may erase. Without a queue for erasures, any may."""
    if not os.environ.get("INLAY_ERASE_QUEUE"):
        return True
    anyone = os.environ.get("INLAY_ERASE_FROM_DELETE_QUEUE", "false").lower() == "true"
    return anyone or is_erase_queue(source_arn)


Queue = Literal["handover", "ingest", "rewrite", "round", "erase_round", "landing_round"]


def queue_url(name: Queue) -> str:
    """A queue that this function sends to; a "round" is its own, for the tables of a round."""
    return _variable(f"INLAY_{name.upper()}_QUEUE")


def memory_bytes() -> int | None:
    """The memory of this Lambda function; None elsewhere."""
    megabytes = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
    return int(megabytes) * 2**20 if megabytes else None


def grace_days() -> int:
    return int(_variable("INLAY_GRACE_DAYS"))


def adopt_from() -> tuple[str, ...] | None:
    """Patterns of `bucket/key` where adopted files may be read, besides the tables and landing zone of the
    table's own bucket; None if not set, as outside a deployment."""
    said = os.environ.get("INLAY_ADOPT_FROM")
    if said is None:
        return None
    bucket = _variable("INLAY_BUCKET").rpartition("/")[2]
    own = (f"{bucket}/{prefix()}tables/*", f"{bucket}/{prefix()}ingest/*")
    given = (each.strip().rpartition(":::")[2] for each in said.split(","))
    given = (each.replace("[", "[[]") for each in given)  # IAM's patterns know * and ? only
    return (*own, *(each for each in given if each))


def glue_database() -> str | None:
    """The database of the Glue catalog that published tables are registered in."""
    return os.environ.get("INLAY_GLUE_DATABASE") or None


def completion_bus() -> str | None:
    """The event bus of EventBridge that is told of what is finished."""
    return os.environ.get("INLAY_COMPLETION_BUS") or None


def table_metrics() -> bool:
    """Whether metrics are by table as well as by function."""
    return os.environ.get("INLAY_TABLE_METRICS", "false").lower() == "true"


def source_queue_url(source_arn: str) -> str | None:
    """The queue that a batch came from, to which its messages may be handed back."""
    if is_erase_queue(source_arn):
        return os.environ["INLAY_ERASE_QUEUE"]
    return os.environ.get("INLAY_SOURCE_QUEUE") or None


def auto_create() -> bool:
    return os.environ.get("INLAY_AUTO_CREATE", "false").lower() == "true"


def table_defaults() -> Mapping[str, object]:
    """Properties of tables that ingest creates."""
    text = os.environ.get("INLAY_TABLE_DEFAULTS") or "{}"
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(
            "INLAY_TABLE_DEFAULTS is not a JSON object",
            next_step="Set the TableDefaults parameter to one, such as {}",
        )
    return value


def retention_days() -> Mapping[str, float]:
    """How long queues, logs and the like keep data, for the receipts of erasures: `name=days;name=days`."""
    pairs = [p.partition("=") for p in os.environ.get("INLAY_RETENTION_DAYS", "").split(";") if p]
    try:
        return {name.strip(): float(days) for name, _, days in pairs}
    except ValueError:
        raise InvalidRequest(
            "INLAY_RETENTION_DAYS is not a list of name=days",
            next_step="Set it to one, such as: dead letters=14;function logs=30",
        ) from None


def erasure_key() -> bytes:
    """The key of the receipts' HMAC: given directly if there is no Secrets Manager, else fetched from the
    named secret. Raises `StoreUnavailable`."""
    given = os.environ.get("INLAY_ERASURE_KEY")
    if given:
        return given.encode()
    import boto3

    try:
        secret = boto3.client("secretsmanager").get_secret_value(
            SecretId=_variable("INLAY_ERASURE_KEY_SECRET")
        )
    except Exception as failure:
        raise StoreUnavailable(
            f"the receipts' secret cannot be read: {code_of(failure)}",
            next_step="Is the secret there, and may this function's role read and decrypt it?",
        ) from failure
    return str(secret["SecretString"]).encode()


def receipt_signer() -> KmsKey | KeyFile | None:
    """Who signs the receipts of erasures: a KMS key, by its ARN, or where there is none a key file in PEM;
    None where neither is set."""
    arn, path = os.environ.get("INLAY_RECEIPT_KEY"), os.environ.get("INLAY_RECEIPT_KEY_FILE")
    if arn:
        from inlay.functions.signing import KmsKey

        return KmsKey(arn)
    if path:
        from inlay.engine import KeyFile

        return KeyFile.read(path)
    return None


def receipt_copies() -> LockedCopies | None:
    """Where copies of receipts go, under which retention: `INLAY_RECEIPT_COPIES` (s3://BUCKET/PREFIX),
    `…_MODE`, `…_DAYS`; None where it is not set."""
    if not (uri := os.environ.get("INLAY_RECEIPT_COPIES")):
        return None
    from inlay.engine import LockedCopies

    mode = os.environ.get("INLAY_RECEIPT_COPIES_MODE")
    return LockedCopies.of_text(uri, mode, os.environ.get("INLAY_RECEIPT_COPIES_DAYS"))

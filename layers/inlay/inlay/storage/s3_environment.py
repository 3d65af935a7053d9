"""The way to a bucket by plain variables of the environment, without loading the SDK.

Botocore takes longer to load than a count takes in all. Where the keys are in variables, no file of
settings is there and no other setting of the SDK's is made, what it would say follows from a few rules.

Promise: `line_to` is what the SDK would do (`s3_client.find`), or None: for each setting, endpoint, region
and name of a bucket that is not known here, the SDK decides. Nothing is guessed, and no setting is left
out: an unknown `AWS_…` variable is the SDK's. `tests/store/test_s3_environment.py` compares both.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import botocore
from botocore.exceptions import HTTPClientError

from inlay.record import Record, secret
from inlay.storage.connections import Answer, Connections
from inlay.storage.s3_direct import DirectLine
from inlay.storage.s3_signature import Scope
from inlay.storage.wrapped import PerProcess

DEFAULT_REGION: Final = "us-east-1"
# A connection that says nothing for this long is dead; S3 answers a 5 GiB part copy sooner.
CONNECT_TIMEOUT_SECONDS: Final = 5
READ_TIMEOUT_SECONDS: Final = 60
# Those of several operations at once, or of a transaction of 100 tables; more than that wait for one.
CONNECTIONS: Final = 128

# Variables of the SDK that are taken here as it takes them, or that mean nothing for S3 beside keys.
_KNOWN: Final = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_DEFAULT_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
        "AWS_EXECUTION_ENV",
        "AWS_REGION",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
# Those of other tools, which the SDK does not know: of Rust's object_store (delta-rs, Polars, Lance), of
# the AWS CLI and of Go's SDK.
_OF_OTHERS: Final = frozenset(
    {
        "AWS_ALLOW_HTTP",
        "AWS_CONDITIONAL_PUT",
        "AWS_COPY_IF_NOT_EXISTS",
        "AWS_DEFAULT_OUTPUT",
        "AWS_ENDPOINT",
        "AWS_PAGER",
        "AWS_S3_ALLOW_UNSAFE_RENAME",
        "AWS_S3_LOCKING_PROVIDER",
        "AWS_SDK_LOAD_CONFIG",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    }
)
_KNOWN_BEGINNINGS: Final = ("AWS_ENDPOINT_URL_", "AWS_LAMBDA_", "AWS_XRAY_")
# What the SDK reads where it is there, and the variables that name another place.
_FILES: Final = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
_MODELS: Final = "~/.aws/models"
# Of the partition "aws": others have other names of hosts. "auto" is what some makers call theirs.
_REGION: Final = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d|auto")
_OWN_REGION: Final = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d")
_ENDPOINT: Final = re.compile(
    r"(?P<origin>https?://(?P<host>[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?))"
    r"(?P<path>(/[A-Za-z0-9_-]+)*)/?"
)
# Names without a second meaning: "--" and "-s3alias" are of other kinds of buckets, and of access points.
_BUCKET: Final = re.compile(r"(?!.*--)(?!.*-s3alias$)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_OWN_PORTS: Final = {"http": ":80", "https": ":443"}


def endpoint_of(given: str | None) -> str | None:
    """The endpoint of the environment's variables, unless one is given; that of a profile is the SDK's."""
    if given or os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return given
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


@secret("secret_key", "token")
class _Keys(Record):
    access_key: str
    secret_key: str
    token: str | None


def line_to(bucket: str, *, endpoint: str | None, region: str | None) -> DirectLine | None:
    """How the SDK would reach `bucket`; None if that is not known without it. No request is sent."""
    keys = _keys()
    region = region or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
    place = _place(bucket, endpoint, region)
    if keys is None or place is None:
        return None
    origin, base_path = place
    scheme, _, host = origin.partition("://")
    return DirectLine(
        send=_send(_connections(origin, _certificates())),
        credentials=lambda: keys,
        host=host.removesuffix(_OWN_PORTS[scheme]),
        base_path=base_path,
        user_agent=f"Botocore/{botocore.__version__} Python/{sys.version.split()[0]} inlay",
        scope=Scope(region, "s3"),
    )


def _keys() -> _Keys | None:
    """The keys in the variables, if the SDK would take them and no setting besides."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    known = all(
        name in _OF_OTHERS or (value and (name in _KNOWN or name.startswith(_KNOWN_BEGINNINGS)))
        for name, value in variables.items()
    )
    names = [os.environ.get(variable, default) for variable, default in _FILES]
    files = any(Path(os.path.expandvars(name)).expanduser().is_file() for name in names)
    if not known or files or Path(_MODELS).expanduser().exists() or _is_proxied():
        return None
    if (certificates := _certificates()) is not None and not Path(certificates).is_file():
        return None
    access = variables.get("AWS_ACCESS_KEY_ID", "")
    secret = variables.get("AWS_SECRET_ACCESS_KEY", "")
    token = variables.get("AWS_SESSION_TOKEN")
    if not all(_is_plain(text) for text in (access, secret, token or "t")):
        return None
    return _Keys(access, secret, token)


def _is_plain(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _is_proxied() -> bool:
    if any(name.lower().endswith("_proxy") for name in os.environ):
        return True
    if sys.platform not in ("darwin", "win32"):
        return False
    from urllib.request import getproxies  # of the system's settings

    return bool(getproxies())


def _certificates() -> str | None:
    """The certificates that the SDK trusts; None where it says so itself."""
    return os.environ.get("AWS_CA_BUNDLE", os.environ.get("REQUESTS_CA_BUNDLE"))


def _place(bucket: str, endpoint: str | None, region: str) -> tuple[str, str] | None:
    """(origin, path of the bucket)."""
    if not _BUCKET.fullmatch(bucket):
        return None
    if endpoint:
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None or "amazonaws" in endpoint or not _REGION.fullmatch(region):
            return None
        return match["origin"], f"{match['path']}/{bucket}"
    if not _OWN_REGION.fullmatch(region):
        return None
    name = "s3" if region == DEFAULT_REGION else f"s3.{region}"
    return f"https://{bucket}.{name}.amazonaws.com", ""


# -- connections ----------------------------------------------------------------------------------


_of_process: PerProcess[dict[tuple[str, str | None], Connections]] = PerProcess(dict)


def _send(connections: Connections) -> Callable[..., Answer]:
    """Sends; raises the SDK's error for a request without an answer."""

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        try:
            return connections.send(method, path, headers, body)
        except OSError as error:
            raise HTTPClientError(error=error) from error

    return send


def _connections(origin: str, certificates: str | None) -> Connections:
    """Those of this process to one host, with the time limits that the SDK's client is given."""
    made = _of_process.get()
    identity = (origin, certificates)
    if identity not in made:
        if origin.startswith("https:"):
            certificates = certificates or _trusted()
        connections = Connections(
            origin,
            certificates=certificates,
            connect_seconds=CONNECT_TIMEOUT_SECONDS,
            read_seconds=READ_TIMEOUT_SECONDS,
            kept=CONNECTIONS,
        )
        made.setdefault(identity, connections)
    return made[identity]


def _trusted() -> str:
    """As in botocore: certifi's certificates where it is installed, else those that botocore brings."""
    try:
        from certifi import where
    except ImportError:
        return str(Path(botocore.__file__).with_name("cacert.pem"))
    return where()

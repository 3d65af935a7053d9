"""The SDK's client of S3, and how it reaches a bucket. Loading botocore takes longer than most requests:
this module is imported where only the SDK can say where a request goes, or sends one.

Promise: a client is created once per process and environment, with the SDK's own retries off. The SDK
prepares one request for a bucket, which is intercepted before it is sent: its URL gives the endpoint and
the addressing style, its signature the region, its signer the credentials, refreshed as they expire. Only
if the same signature is computed in `s3_direct.py`, and only known headers were set, is there a
`DirectLine`; an access point, S3 Express, an unsigned client or one with its own hooks stays with the SDK.
Connections are the client's, with its proxies, certificates and time limits, and so are the exceptions of
a request without an answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import (
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    ResponseStreamingError,
)
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from inlay.storage import http_rules, s3_environment, s3_errors
from inlay.storage.connections import Answer
from inlay.storage.s3_direct import DirectLine, checked
from inlay.storage.s3_environment import DEFAULT_REGION, endpoint_of
from inlay.storage.s3_signature import ALGORITHM, Scope, authorization
from inlay.storage.wrapped import PerProcess

if TYPE_CHECKING:
    from botocore.client import BaseClient

_PROBE_KEY: Final = "inlay"
_SIGNED: Final = ("s3v4", "v4")
_PROBE_HEADERS: Final = frozenset(
    {
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
    }
)


class _Clients:
    """The clients of one process: a forked one must not share its parent's sockets."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: dict[object, BaseClient] = {}


_clients = PerProcess(_Clients)


def connect(*, endpoint_url: str | None = None, region: str | None = None) -> BaseClient:
    """A client of the current AWS environment; created once per process and environment.

    With an endpoint, the bucket is in the path and not in the host name unless the profile says so: an
    emulator or an appliance seldom has wildcard DNS. Raises `AccessDenied` and `PageError` where the
    settings do not work: the SDK reads files and runs commands, which may fail in any way.
    """
    endpoint = endpoint_of(endpoint_url)
    settings = sorted(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))
    identity = (endpoint, region, *settings)
    clients = _clients.get()
    with clients.lock:
        client = clients.made.get(identity)
        if client is None:
            try:
                client = _create(endpoint, region)
            except Exception as error:
                raise s3_errors.of_settings(error) from error
            clients.made[identity] = prepared(client)
        return client


def prepared(client: BaseClient) -> BaseClient:
    """The client, with what every request of a store relies on. Repeating it changes nothing."""
    _admit_conditions_on_copies(client)
    _sign_deletes_by_md5(client)
    s3_errors.check_documents(client)
    return client


def _create(endpoint: str | None, region: str | None) -> BaseClient:
    session = botocore.session.Session()
    of_profile = session.get_scoped_config().get("s3")
    chosen = isinstance(of_profile, dict) and "addressing_style" in of_profile
    config = Config(
        connect_timeout=s3_environment.CONNECT_TIMEOUT_SECONDS,
        max_pool_connections=s3_environment.CONNECTIONS,
        read_timeout=s3_environment.READ_TIMEOUT_SECONDS,
        # Newer checksums by default break S3s of other makers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"addressing_style": "path"} if endpoint and not chosen else {},
        tcp_keepalive=True,
        user_agent_extra="inlay",
    )
    return session.create_client(
        "s3",
        region_name=region or session.get_config_variable("region") or DEFAULT_REGION,
        endpoint_url=endpoint,
        config=config,
    )


def _sign_deletes_by_md5(client: BaseClient) -> None:
    """DeleteObjects needs a digest of its body. S3 accepts several kinds; older releases of MinIO, and
    gateways built on them, only MD5."""

    def give(params: dict[str, Any], **_: Any) -> None:
        params["headers"]["Content-MD5"] = http_rules.content_md5(params["body"])

    event = "before-call.s3.DeleteObjects"
    client.meta.events.register(event, give, unique_id="inlay-deletes-by-md5")


# Conditions on the target of a CopyObject, by the SDK's names. Its models know them since October 2025;
# Lambda's runtimes, Glue and EMR bring older ones.
_ON_COPIES: Final = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}
_CONTEXT: Final = "inlay-conditions"


def _admit_conditions_on_copies(client: BaseClient) -> None:
    """Sends the conditions of copies as headers, past the SDK's model."""

    def take(params: dict[str, Any], context: dict[str, Any], **_: Any) -> Any:
        context[_CONTEXT] = {_ON_COPIES[k]: v for k, v in params.items() if k in _ON_COPIES}
        return {k: v for k, v in params.items() if k not in _ON_COPIES}

    def give(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        params["headers"].update(context.get(_CONTEXT, {}))

    events = client.meta.events
    events.register("provide-client-params.s3.CopyObject", take, unique_id="inlay-copy-take")
    events.register("before-call.s3.CopyObject", give, unique_id="inlay-copy-give")


def find(client: Any, bucket: str) -> DirectLine | None:
    """How the client reaches `bucket`; None if only the client itself can. No request is sent. Raises the
    library's errors if the SDK cannot sign one, and the SDK's for a bucket or key that it does not take."""
    _register(client)
    taken = _Taken()
    _probing.taken = taken
    try:
        said = client.head_object(Bucket=bucket, Key=_PROBE_KEY)
    except (ParamValidationError, NoCredentialsError):
        raise
    except Exception as error:
        raise s3_errors.of_settings(error) from error
    finally:
        _probing.taken = None
    prepared, signer = taken.prepared, taken.signer
    if said["ResponseMetadata"]["HTTPHeaders"].get(_MARK) is None or prepared is None:
        return None  # another hook answered, which must see every request
    if signer is not None and taken.version in _SIGNED:
        # Of the SDK's own requests, too: it would send what it cannot.
        checked(
            lambda: (
                signer.get_auth_instance("s3", client.meta.region_name, taken.version).credentials
            )
        )
    headers = {name.lower(): _text(value) for name, value in prepared.headers.items()}
    url = urlsplit(prepared.url)
    words = headers.get("authorization", "").replace(",", " ").split()
    plain = (
        signer is not None
        and taken.version in _SIGNED
        and len(words) == 4
        and words[0] == ALGORITHM
        and not set(headers) - _PROBE_HEADERS
        and not url.query
        and url.path.endswith(f"/{_PROBE_KEY}")
    )
    if not plain:
        return None
    _, _, region, service, _ = words[1].rpartition("=")[2].rsplit("/", 4)
    origin = f"{url.scheme}://{url.netloc}"
    base_path = url.path.removesuffix(f"/{_PROBE_KEY}")
    # Not public, and the only place of the connections with the client's TLS and proxies.
    session = client._endpoint.http_session

    def send(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        sendable: Any = headers  # any mapping will do
        raw = session.send(AWSPreparedRequest(method, f"{origin}{path}", sendable, body, True)).raw
        try:
            content = raw.read()
        except HTTPError as error:
            raise ResponseStreamingError(error=error) from error
        said = {name.lower(): raw.headers[name] for name in raw.headers}
        expected = said.get("content-length")
        if method != "HEAD" and expected is not None and len(content) != int(expected):
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=int(expected))
        return Answer(raw.status, said, content)

    line = DirectLine(
        send=send,
        credentials=lambda: signer.get_auth_instance(service, region, taken.version).credentials,
        host=_host(url),
        base_path=base_path,
        user_agent=headers["user-agent"],
        scope=Scope(region, service),
    )
    return line if _signs_alike(line, headers, url.path) else None


def _signs_alike(line: DirectLine, headers: Mapping[str, str], path: str) -> bool:
    """Whether the SDK's signature of the probe is reproduced here."""
    credentials = line.credentials()
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    known = {**headers, "host": line.host}
    if credentials is None or not set(names) <= set(known):
        return False
    ours = authorization(
        method="HEAD",
        path=path,
        query="",
        headers={name: known[name] for name in names},
        body_sha256=headers["x-amz-content-sha256"],
        timestamp=headers["x-amz-date"],
        scope=line.scope,
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
    )
    return ours == headers["authorization"]


# -- the probe ------------------------------------------------------------------------------------

_MARK: Final = "inlay-not-sent"


class _Taken:
    """What the hooks saw of the probe."""

    prepared: AWSPreparedRequest | None = None
    signer: Any = None
    version: object = None


class _Probing(threading.local):
    """The probe of this thread; other threads' requests pass."""

    taken: _Taken | None = None


_probing = _Probing()


class _NoBody:
    def stream(self) -> Iterator[bytes]:
        return iter(())


def _register(client: Any) -> None:
    """Installs the hooks on the client. Twice is the same as once: they have names."""
    events = client.meta.events
    events.register_last("before-sign.s3", _note_signer, unique_id="inlay-signer")
    # At the root, which is called last: other hooks that answer requests come first.
    events.register_last("before-send", _take, unique_id="inlay-take")


def _note_signer(request_signer: Any, signature_version: object, **_: object) -> None:
    if (taken := _probing.taken) is not None:
        taken.signer, taken.version = request_signer, signature_version


def _take(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
    if (taken := _probing.taken) is None:
        return None
    taken.prepared = request
    answered: Any = {_MARK: "1"}
    return AWSResponse(request.url, 200, answered, _NoBody())


def by_sdk(client: BaseClient, bucket: str, operation: str, arguments: Mapping[str, Any]) -> Any:
    """The SDK's answer, its body read. Raises what the SDK raises, `ValueError` if it cannot parse it."""
    try:
        content = getattr(client, operation)(Bucket=bucket, **arguments)
    except ResponseParserError as error:
        raise ValueError(str(error)) from error
    if operation == "get_object":
        # Read here: a connection that breaks while reading is a failed attempt too.
        content["Body"] = content["Body"].read()
    return content


# -- the request's host ---------------------------------------------------------------------------


def _host(url: SplitResult) -> str:
    """The Host header as the SDK's connections send it: without the scheme's own port."""
    name = url.hostname or ""
    name = f"[{name}]" if ":" in name else name
    own = {"http": 80, "https": 443}.get(url.scheme)
    return name if url.port in (None, own) else f"{name}:{url.port}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

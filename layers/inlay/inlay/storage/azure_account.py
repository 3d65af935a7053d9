"""Whose storage account a container is in, and the signatures of its requests.

Promise: settings are those of the environment that Azure's own tools read, and only names are taken from
elsewhere: an account's key, a shared access signature or a token is never in a store, its pickle or an
error. A token is not sent over plain HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from inlay.errors import AccessDenied, InvalidRequest, StoreUnavailable
from inlay.record import Record, secret
from inlay.storage.rest import Request
from inlay.storage.wrapped import PerProcess

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, TokenCredential

API_VERSION: Final = "2023-11-03"
_SUFFIX: Final = "dfs.core.windows.net"
_SCOPE: Final = "https://storage.azure.com/.default"
# A token is renewed this long before its end.
_EARLY_SECONDS: Final = 300
# Headers of a request in the order in which they are signed (Microsoft: "Authorize with Shared Key").
_SIGNED: Final = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


@secret("key", "sas")
class _Settings(Record):
    """What the environment says. Secrets are not shown."""

    account: str | None = None
    endpoint: str | None = None
    key: str | None = None
    sas: str | None = None


def settings() -> _Settings:
    """Those of AZURE_STORAGE_CONNECTION_STRING, or of the single variables."""

    def named(*names: str) -> str | None:
        return next((v for n in names if (v := os.environ.get(f"AZURE_STORAGE_{n}"))), None)

    text = named("CONNECTION_STRING") or ""
    said = dict(pair.split("=", 1) for pair in text.split(";") if "=" in pair)
    account = named("ACCOUNT_NAME", "ACCOUNT") or said.get("AccountName")
    return _Settings(
        account,
        named("ENDPOINT") or said.get("BlobEndpoint"),
        named("ACCOUNT_KEY", "KEY", "ACCESS_KEY") or said.get("AccountKey"),
        named("SAS_TOKEN") or said.get("SharedAccessSignature"),
    )


def full_name(container: str) -> str:
    """`container@host`, as abfss:// URIs name it, of the account of the environment; of one that names its
    host, that."""
    name, at, host = container.partition("@")
    if not at:
        account = settings().account
        return f"{name}@{account}.{_SUFFIX}" if account else name
    return f"{name}@{host.replace('.blob.', '.dfs.', 1)}"


def endpoint_of(host: str) -> str:
    """Where the Blob API of `account.dfs.…` answers."""
    return f"https://{host.replace('.dfs.', '.blob.', 1)}"


def sign(
    account: str, endpoint: str, request: Request, asked_at: str
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """(query, headers) as they are sent: with the account's key, a shared access signature, or a token."""
    headers = {
        "x-ms-version": API_VERSION,
        "x-ms-date": asked_at,
        **{name.lower(): value for name, value in request.headers.items()},
    }
    if request.method in ("PUT", "POST"):
        headers["content-length"] = str(len(request.body))
    configured = settings()
    ours = configured.account in (None, account)
    if ours and configured.key:
        signed = _signature(account, configured.key, request, headers)
        return request.query, {**headers, "authorization": f"SharedKey {account}:{signed}"}
    if ours and configured.sas:
        signature = dict(parse_qsl(configured.sas.lstrip("?"), keep_blank_values=True))
        return {**request.query, **signature}, headers
    if not endpoint.startswith("https://"):
        raise AccessDenied(
            f"there is no key of the account {account!r}, and tokens are not sent over plain HTTP",
            next_step="Set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or use https",
        )
    return request.query, {**headers, "authorization": f"Bearer {_tokens.get().token()}"}


def _signature(account: str, key: str, request: Request, headers: Mapping[str, str]) -> str:
    values = {**headers, "content-length": headers.get("content-length", "").removeprefix("0")}
    if request.body:
        values["content-length"] = headers["content-length"]
    lines = [request.method, *(values.get(name, "") for name in _SIGNED)]
    ours = sorted(name for name in headers if name.startswith("x-ms-"))
    lines += [f"{name}:{headers[name].strip()}" for name in ours]
    lines.append(f"/{account}{request.path}")
    lines += [f"{name.lower()}:{value}" for name, value in sorted(request.query.items())]
    try:
        secret = base64.b64decode(key, validate=True)
    except ValueError:
        raise AccessDenied(
            "the account's key is not base64", next_step="Check AZURE_STORAGE_KEY"
        ) from None
    digest = hmac.new(secret, "\n".join(lines).encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class _Tokens:
    """The identity of the environment, in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity: TokenCredential | None = None
        self._held: AccessToken | None = None

    def token(self) -> str:
        try:
            from azure.core.exceptions import AzureError, ServiceRequestError
            from azure.identity import CredentialUnavailableError, DefaultAzureCredential
        except ImportError:
            raise InvalidRequest(
                "tables on Azure (az://, abfss://) need another package where there is no account key",
                next_step="pip install 'inlay-tables[azure]', or set AZURE_STORAGE_KEY",
            ) from None
        with self._lock:  # one renewal at a time
            if self._held is None or self._held.expires_on - _EARLY_SECONDS < time.time():
                try:
                    self._identity = self._identity or DefaultAzureCredential()
                    self._held = self._identity.get_token(_SCOPE)
                except (ServiceRequestError, OSError) as error:
                    # Nothing of the request was sent.
                    words = f"no token from Azure: {type(error).__name__}"
                    raise StoreUnavailable(words) from None
                except (AzureError, CredentialUnavailableError, ValueError) as error:
                    raise AccessDenied(
                        f"no Azure credentials: {type(error).__name__}",
                        next_step="Set AZURE_STORAGE_KEY, run `az login`, or give the machine an identity",
                    ) from None
            token: str = self._held.token
            return token


_tokens = PerProcess(_Tokens)

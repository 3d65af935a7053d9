"""Servers of other makers' protocols and habits, each on a free port of 127.0.0.1, and new buckets on them.

`gcs_store` is on the suite's own server of Google's JSON API, `azure_store` on Azurite, which
`make emulators` installs into `.tools`: without it those tests are skipped.
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inlay.local.s3server import EmbeddedAws
from inlay.storage.azure import AzureStore
from inlay.storage.gcs import GcsStore
from inlay.storage.s3 import S3Store

from .gcs_server import GcsServer

AZURITE = Path(__file__).parents[2] / ".tools/emulators/node_modules/azurite/dist/src/blob/main.js"
ACCOUNT = "devstoreaccount1"
# Azurite's only account, published in its documentation.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@contextmanager
def in_front_of_s3(wrap: Callable[[Any], Any]) -> Iterator[Any]:
    """An embedded S3, which the environment names, behind what `wrap` makes of its application."""
    with EmbeddedAws(["s3"]) as aws, pytest.MonkeyPatch.context() as patch:
        for name, value in aws.env().items():
            patch.setenv(name, value)
        assert aws._server is not None
        wrapped = wrap(aws._server.aws)
        patch.setattr(aws._server, "aws", wrapped)
        yield wrapped


def new_s3_store(**options: str) -> S3Store:
    """A store on a new bucket of the S3 that the environment names."""
    store = S3Store(f"test-{uuid.uuid4().hex}", **options)
    store.client.create_bucket(Bucket=store.bucket)
    return store


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    with GcsServer() as server:
        yield server
        server.shutdown()


@pytest.fixture
def gcs_env(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.url)
    return gcs_server.url


@pytest.fixture
def gcs_store(gcs_env: str) -> GcsStore:
    """A store on a new bucket; a second one, its name with "-2", is there to copy from."""
    store = GcsStore(f"test-{uuid.uuid4().hex}")
    for name in (store.bucket, f"{store.bucket}-2"):
        store._ask("POST", "/storage/v1/b", body=b'{"name": "%s"}' % name.encode())
    return store


@pytest.fixture(scope="session")
def azurite_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not AZURITE.exists():
        pytest.skip("Azurite is not installed: make emulators")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path_factory.mktemp("azurite")
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    log = (place / "log").open("wb")
    server = subprocess.Popen(
        ["node", str(AZURITE), *options, "--silent", "--disableTelemetry", "--inMemoryPersistence"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        _until(lambda: _answers(url), server)
        yield url
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _until(done: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if done():
            return
        assert server.poll() is None, "the server ended"
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.fixture
def azure_env(azurite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azurite_url)
    return azurite_url


@pytest.fixture
def azure_store(azure_env: str) -> AzureStore:
    """A store on a new container; a second one, its name with "-2", is there to copy from."""
    name = f"test-{uuid.uuid4().hex}"
    for container in (name, f"{name}-2"):
        AzureStore(container)._ask("PUT", None, query={"restype": "container"})
    return AzureStore(name)


@dataclass(frozen=True, slots=True)
class Cloud:
    """A store, and how its server is reached: `variable` of the environment names `endpoint`."""

    store: GcsStore | AzureStore
    uri: str
    variable: str
    endpoint: str


@pytest.fixture(params=["gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    if request.param == "gcs":
        store = request.getfixturevalue("gcs_store")
        url = request.getfixturevalue("gcs_env")
        return Cloud(store, f"gs://{store.bucket}", "STORAGE_EMULATOR_HOST", url)
    store = request.getfixturevalue("azure_store")
    url = request.getfixturevalue("azure_env")
    container = store.bucket.partition("@")[0]
    return Cloud(store, f"az://{container}", "AZURE_STORAGE_ENDPOINT", url)

"""Shared by tests of several areas: the tiers, the embedded S3 and SQS, and a new bucket on it.

One server process for the whole run. Use `s3_store` for a store on a new bucket, `s3_bucket` for the
bucket's name only, `aws_env` when code under test finds S3 through the environment.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from hypothesis import settings
from tests import cpu
from tests.tiers import Case, Tiers, draw, settings_of

if TYPE_CHECKING:
    from inlay.local.s3server import AwsProcess
    from inlay.storage.memory import MemoryRegion
    from inlay.storage.s3 import S3Store

# An example that takes long on a busy machine is not a failure.
settings.register_profile("inlay", deadline=None)
settings.load_profile("inlay")
# Typer makes all commands again for each that a test runs, which takes longer than most of them.
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", metavar="FILE", help="write CPU seconds by test to FILE")
    parser.addoption("--drawn", type=float, default=1.0, help="of Hypothesis' examples this share")
    parser.addoption("--cpu-one-in", metavar="N", type=int, default=1, help="of each n-th only")


def pytest_configure(config: pytest.Config) -> None:
    if place := config.getoption("--cpu"):
        config.pluginmanager.register(cpu.Recorder(Path(place), config.getoption("--cpu-one-in")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Little of what is made meanwhile is garbage: looking for it takes half of the time."""
    gc.disable()
    result = yield
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before `-m` chooses: what the table of tiers leaves to `make test-wide` is marked."""
    undecided = [
        item for item in items if not {"slow", "wide"} & {m.name for m in item.iter_markers()}
    ]
    for at in Tiers.read().wide_among([Case.of(item) for item in undecided]):
        undecided[at].add_marker(pytest.mark.wide)
    # A test that is not wide draws some of its examples in the short tier and the others in the wide one.
    for item in items:
        if settings_of(item) is not None and item.get_closest_marker("wide") is None:
            item.add_marker(pytest.mark.drawn)
            draw(item, config.getoption("--drawn"))
    if os.environ.get(
        "PYTEST_XDIST_WORKER"
    ):  # the dearest file first, and before it what has no figure: none begins when all others end
        costs = json.loads(cpu.KEPT.read_text())
        unknown = {"": float("inf")}
        items.sort(key=lambda item: -max(costs.get(cpu.file_of(item.nodeid), unknown).values()))


@pytest.fixture(scope="session", autouse=True)
def process_region() -> MemoryRegion:
    """What `memory://` is, before any test puts another in its place."""
    from inlay.storage import memory

    return memory.PROCESS_REGION


@pytest.fixture(scope="module", autouse=True)
def memory_keeps_its_clock(process_region: MemoryRegion) -> Iterator[None]:
    """Tests that bring a clock have a region of their own: with theirs, what waits for time to pass would
    wait for ever in the tests after them."""
    from inlay.storage.memory import system_now_us

    yield
    assert process_region._now_us is system_now_us


@pytest.fixture(scope="session")
def embedded_aws() -> Iterator[AwsProcess]:
    from inlay.local.s3server import AwsProcess

    with AwsProcess() as aws:
        yield aws


@pytest.fixture
def aws_env(embedded_aws: AwsProcess, monkeypatch: pytest.MonkeyPatch) -> AwsProcess:
    """The embedded AWS, found by every SDK of this process through the environment."""
    for name, value in embedded_aws.env().items():
        monkeypatch.setenv(name, value)
    return embedded_aws


@pytest.fixture
def s3_store(aws_env: AwsProcess) -> S3Store:
    """A store on a fresh bucket; a second bucket, its name with "-2", is there to copy from."""
    from inlay.storage.s3 import S3Store

    store = S3Store(f"test-{uuid.uuid4().hex}")
    store.client.create_bucket(Bucket=store.bucket)
    store.client.create_bucket(Bucket=f"{store.bucket}-2")
    return store


@pytest.fixture
def s3_bucket(s3_store: S3Store) -> str:
    return s3_store.bucket

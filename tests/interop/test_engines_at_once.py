"""Two engines by two catalogs and a native writer append to one table on S3 that answers after 20 ms."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.cli.serving import catalog_of
from inlay.local.s3server import EmbeddedAws
from inlay.ops.catalog.credentials import EngineCredentials
from inlay.storage.assumed_role import Assumed

from ..store.conftest import new_s3_store
from .test_catalog_writes import Between, Engines, served
from .test_credentials import ROLE

pytestmark = pytest.mark.wide
EACH = 12


@pytest.fixture
def slow_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    with EmbeddedAws(["s3"], latency_ms=20) as aws:
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        yield aws


@pytest.fixture
def root(slow_s3: EmbeddedAws) -> str:
    return f"s3://{new_s3_store().bucket}/tables"


def of(root: str, slow_s3: EmbeddedAws) -> Between:
    """A catalog of its own that says where the bucket is."""
    known = Assumed("local", "local", "", 2**41, "us-east-1", slow_s3.endpoint_url)
    catalog = catalog_of(root, write=True, credentials_role=ROLE)
    assert isinstance(catalog.credentials, EngineCredentials)
    lent = replace(catalog.credentials, assume=lambda role, *, policy, name: known)
    return Between(replace(catalog, credentials=lent))


@pytest.fixture
def first(root: str, slow_s3: EmbeddedAws) -> Between:
    return of(root, slow_s3)


@pytest.fixture
def second(root: str, slow_s3: EmbeddedAws) -> Between:
    return of(root, slow_s3)


@pytest.fixture
def duckdb(first: Between, engines_python: Path) -> Iterator[Engines]:
    for uri in served(first):  # type: ignore[arg-type]
        made = Engines(engines_python, uri)
        yield made
        made.close()


@pytest.fixture
def pyiceberg(second: Between, engines_python: Path) -> Iterator[Engines]:
    for uri in served(second):  # type: ignore[arg-type]
        made = Engines(engines_python, uri)
        yield made
        made.close()


def test_nothing_is_lost_or_doubled_and_each_append_is_one_commit(
    root: str,
    slow_s3: EmbeddedAws,
    first: Between,
    second: Between,
    duckdb: Engines,
    pyiceberg: Engines,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The figures of docs/INTEROP.md are what this prints."""
    duckdb.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    table = inlay.open(f"{root}/t")
    slow_s3.forget_requests()

    def by_duckdb() -> None:
        for n in range(100, 100 + EACH):
            duckdb.sql(f"INSERT INTO lake.tables.t VALUES ({n}, 'duckdb')")

    def by_pyiceberg() -> None:
        for n in range(200, 200 + EACH):
            pyiceberg("pyiceberg", "append", "tables.t", [{"id": n, "s": "py"}])

    engines_are_done = threading.Event()

    def natively() -> int:
        n = 300
        while not engines_are_done.is_set():
            table.append(pa.table({"id": [n], "s": ["inlay"]}))
            n += 1
        return n

    with ThreadPoolExecutor(3) as pool:
        last = pool.submit(natively)
        try:
            for done in [pool.submit(by_duckdb), pool.submit(by_pyiceberg)]:
                done.result()
        finally:
            engines_are_done.set()
    swaps = Counter(
        each.status
        for each in slow_s3.requests()
        if each.method == "PUT" and each.key.endswith("/_latest_manifest")
    )
    expected = [n for start in (100, 200) for n in range(start, start + EACH)]
    expected += range(300, last.result())
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == expected
    assert [i for [i] in duckdb.sql("SELECT id FROM lake.tables.t ORDER BY id")] == expected
    read = pyiceberg("pyiceberg", "scan", "tables.t")
    assert sorted(row["id"] for row in read) == expected
    assert swaps[200] == len(expected)
    assert first.refusals == second.refusals == []
    refused = sum(status == 409 for each in (first, second) for _, status in each.answered)
    with capsys.disabled():
        print(f"\n{swaps[200]} commits, {swaps[412]} swaps lost, {refused} answers of 409")

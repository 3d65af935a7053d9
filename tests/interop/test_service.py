"""The page on services: its application runs as it stands there, and what it names is reported."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import inlay
from inlay.errors import ConcurrentChange, InvalidPredicate

PAGE = (Path(__file__).parents[2] / "docs" / "SERVICE.md").read_text(encoding="utf-8")
[APPLICATION] = re.findall(r"```python\n(import os\n.*?)```", PAGE, re.DOTALL)
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("email", pa.string())]
)
ANN = {"id": 1, "name": "Ann", "email": "ann@example.org"}
QUOTED = {"id": 2, "name": "x' OR 'a' = 'a", "email": "q@example.org"}


@pytest.fixture
def table(tmp_path: Path) -> inlay.Table:
    return inlay.create(tmp_path / "people", SCHEMA, primary_key=["id"])


@pytest.fixture
def client(table: inlay.Table, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setenv("PEOPLE", table.uri)
    module: dict[str, Any] = {"__name__": "application"}
    exec(compile(APPLICATION, "docs/SERVICE.md", "exec", dont_inherit=True), module)
    return TestClient(module["app"])


def named(request_id: str) -> dict[str, str]:
    return {"Idempotency-Key": request_id}


def test_the_application_of_the_page(client: TestClient, table: inlay.Table) -> None:
    first = client.put("/people", json=[ANN, QUOTED], headers=named("request-1"))
    again = client.put("/people", json=[ANN, QUOTED], headers=named("request-1"))
    assert first.status_code == again.status_code == 201
    assert (first.json()["applied_before"], again.json()["applied_before"]) == (False, True)
    assert table.refresh().version == first.json()["version"]
    assert client.get("/people/1").json() == ANN
    assert client.get("/people/3").status_code == 404
    # A name that would be a condition, were it pasted.
    assert client.get("/people", params={"name": QUOTED["name"]}).json() == [QUOTED]
    assert client.delete("/people/2", headers=named("erasure-2")).status_code == 200
    assert client.get("/people").status_code == client.put("/people", json=[]).status_code == 422
    assert client.get("/people", params={"name": QUOTED["name"]}).json() == []
    assert [each.id for each in table.refresh().snapshot.erasures] == ["erasure-2"]


def test_errors_say_who_acts(client: TestClient, table: inlay.Table) -> None:
    client.put("/people", json=[ANN], headers=named("request-1"))
    other = client.delete("/people/1", headers=named("request-1"))
    assert other.status_code == 422, "a request id that was another request's"
    assert other.json()["error"] and other.json()["next"]
    (Path(table.uri.removeprefix("file://")) / "_latest_manifest").write_bytes(b"{}")
    assert client.get("/people/1").status_code == 500


# -- OpenTelemetry --------------------------------------------------------------------------------

SPANS = InMemorySpanExporter()
METRICS = InMemoryMetricReader()


@pytest.fixture(scope="module")
def sdk() -> None:
    """Once in a process: OpenTelemetry takes no second SDK."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([METRICS]))


@pytest.fixture
def instrumented(sdk: None) -> Iterator[None]:
    import inlay.telemetry

    SPANS.clear()
    METRICS.get_metrics_data()
    inlay.telemetry.instrument()
    inlay.telemetry.instrument()
    yield
    inlay.telemetry.uninstrument()


def counted() -> dict[tuple[str, str], float]:
    """By name and the values of attributes."""
    data = METRICS.get_metrics_data()
    assert data is not None
    return {
        (metric.name, " ".join(map(str, (point.attributes or {}).values()))): point.value  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_an_operation_is_one_span_and_its_requests_are_counted(
    instrumented: None, table: inlay.Table
) -> None:
    before, used = counted(), table.usage
    table.append(pa.Table.from_pylist([ANN, QUOTED], SCHEMA))
    assert table.scan(columns=["id"]).to_arrow().num_rows == table.count() == 2
    table.delete("id = 2", mode="erase", request_id="secret-request")
    table.maintain.verify()
    with pytest.raises(InvalidPredicate):
        table.delete("nome = 'Ann'")
    spans = {each.name: each for each in SPANS.get_finished_spans()}
    assert dict(spans["inlay.append"].attributes or {}) == {
        "inlay.table": table.uri,
        "inlay.version": 2,
        "inlay.committed": True,
        "inlay.attempts": 1,
        "inlay.rows.added": 2,
        "inlay.rows.deleted": 0,
    }
    assert (spans["inlay.scan"].attributes or {})["inlay.rows.read"] == 2
    assert (spans["inlay.delete"].attributes or {})["error.type"] == "InvalidPredicate"
    assert "Ann" not in str([each.to_json() for each in spans.values()])
    after = counted()
    assert after["inlay.erasures.open", table.uri] == 1
    spent = table.usage - used
    for verb, number in spent.requests.items():
        assert after["inlay.requests", verb] - before.get(("inlay.requests", verb), 0) == number
    for name, number in (("sent", spent.bytes_up), ("received", spent.bytes_down)):
        counter = (f"inlay.bytes.{name}", "")
        assert after[counter] - before.get(counter, 0) == number


def test_lost_races_and_conflicts_are_counted(instrumented: None, table: inlay.Table) -> None:
    stale = inlay.open(table.uri)
    # By another process: those of one process know each other's commits.
    other = f"import inlay; inlay.open({table.uri!r}).set_properties(**{{'gc.grace_days': '3'}})"
    subprocess.run([sys.executable, "-c", other], check=True)
    result = table.append(pa.Table.from_pylist([ANN], SCHEMA))
    assert result.attempts > 1
    assert counted()["inlay.retries", "append"] == result.attempts - 1
    table.alter(add={"x": pa.int8()})
    with pytest.raises(ConcurrentChange):
        stale.alter(drop=["name"])
    assert counted()["inlay.conflicts", "alter"] == 1


def test_every_public_operation_is_instrumented_or_only_looks() -> None:
    code = (
        "import inlay.telemetry as t\n"
        "from inlay.table import Table\n"
        "from inlay.table.maintain import Maintain\n"
        "from inlay.table.refs import Refs\n"
        "t.instrument()\n"
        "for owner in (Table, Maintain, Refs):\n"
        "    for name, method in vars(owner).items():\n"
        "        if not name.startswith('_') and callable(method) and not hasattr(method, '__wrapped__'):\n"
        "            print(name)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lazy = ["scan", "head", "to_pandas", "to_dataset", "to_lazy", "changes"]
    assert ran.stdout.split() == lazy, "what reads only when its rows are asked for"


def test_without_it_nothing_of_opentelemetry_is_loaded() -> None:
    code = (
        "import inlay, sys; inlay.Table; assert not any('opentelemetry' in m for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

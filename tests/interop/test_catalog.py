"""The read-only REST catalog: what it answers, and that engines read through it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.cli.serving import catalog_of, server_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tables = tmp_path / "tables"
    for name in ("people", "orders"):
        t = inlay.create(f"file://{tables}/{name}", pa.schema([("id", pa.int64())]))
        t.append(pa.table({"id": range(100)}))
        t.delete("id < 10", mode="vector")
    t.publish()
    return tables


@pytest.fixture
def uri(root: Path) -> Iterator[str]:
    with server_of(catalog_of(f"file://{root}"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_published_tables_alone_are_listed_and_answered(root: Path) -> None:
    catalog = catalog_of(f"file://{root}")

    def ask(path: str, method: str = "GET") -> tuple[int, object]:
        answer = catalog.answer(method, path)
        return answer.status, json.loads(answer.body)

    assert ask("/v1/namespaces") == (200, {"namespaces": [["tables"]]})
    listed = ask("/v1/namespaces/tables/tables")
    assert listed == (200, {"identifiers": [{"namespace": ["tables"], "name": "orders"}]})
    pointer = json.loads((root / "orders" / "metadata" / "latest.json").read_text())
    assert ask("/v1/namespaces/tables/tables/orders") == (200, pointer)
    assert ask("/v1/namespaces/tables/tables/people")[0] == 404
    assert ask("/v1/namespaces/tables/tables/%2e%2e")[0] == 404
    assert ask("/v1/namespaces/other/tables/orders")[0] == 404
    assert ask("/v1/namespaces/tables/tables/orders", "POST")[0] == 406
    assert ask("/v2/anything")[0] == 404


@pytest.mark.parametrize("engine", ["duckdb", "pyiceberg"])
def test_engines_read_through_the_catalog(engine: str, uri: str, engines_python: Path) -> None:
    program = Path(__file__).with_name("read_by_catalog.py")
    done = subprocess.run(
        [engines_python, program, engine, uri, "tables.orders"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["90", str(sum(range(10, 100)))], done.stderr


def test_refs_say_which_version_is_published_and_how_far_it_is_behind(root: Path) -> None:
    def lines(table: str) -> list[dict[str, object]]:
        ran = CliRunner().invoke(app, ["refs", f"file://{root}/{table}", "--json"])
        assert ran.exit_code == 0, ran.output
        return [json.loads(line) for line in ran.stdout.splitlines()]

    published = inlay.open(f"file://{root}/orders").version
    inlay.open(f"file://{root}/orders").append(pa.table({"id": [1]}))
    *_, last = lines("orders")
    assert (last["kind"], last["version"], last["behind"]) == ("published", published, 1)
    assert [each["kind"] for each in lines("people")] == ["branch"]
    shown = CliRunner().invoke(app, ["refs", f"file://{root}/orders"])
    assert "(published)" in shown.stdout

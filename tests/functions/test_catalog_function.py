"""The catalog behind a function URL: reads only, of published tables only."""

from __future__ import annotations

import json
from typing import Any

import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.local.template import read_body
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, ROOT, Functions
from .policies import load, policies


def answered(functions: Functions, name: str) -> tuple[int, Any]:
    answer = functions.replay(f"catalog.{name}")
    assert answer["headers"] == {"Content-Type": "application/json"}
    return answer["statusCode"], json.loads(answer["body"])


def test_a_published_table_is_listed_and_answered(functions: Functions) -> None:
    table = functions.create_orders()
    assert answered(functions, "table")[0] == 404
    assert answered(functions, "tables") == (200, {"identifiers": []})
    table.publish()
    status, said = answered(functions, "config")
    assert status == 200 and all(each.startswith("GET ") for each in said["endpoints"])
    assert answered(functions, "tables")[1]["identifiers"] == [
        {"namespace": ["tables"], "name": "orders"}
    ]
    status, said = answered(functions, "table")
    assert (status, said["metadata"]["current-snapshot-id"]) == (200, table.refresh().version)


def test_a_dropped_table_is_neither_listed_nor_answered(functions: Functions) -> None:
    functions.create_orders().publish()
    inlay.drop(f"memory://{BUCKET}/tables/orders")
    assert answered(functions, "tables") == (200, {"identifiers": []})
    assert answered(functions, "table")[0] == 404


def test_listing_reads_no_metadata(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pointer may have megabytes, and there may be a thousand: they are asked for side by side."""
    functions.create_orders().publish()
    monkeypatch.setattr(MemoryStore, "get", None)
    assert len(answered(functions, "tables")[1]["identifiers"]) == 1


@pytest.mark.parametrize(("name", "status"), [("outside", 404), ("write", 406)])
def test_nothing_else_is_answered(functions: Functions, name: str, status: int) -> None:
    functions.create_orders().publish()
    functions.store.put("secrets/metadata/latest.json", b'{"secret": true}')
    found, said = answered(functions, name)
    assert (found, said["error"]["code"]) == (status, status)


def test_what_is_no_request_is_refused(functions: Functions) -> None:
    with pytest.raises(InvalidRequest, match="function URL"):
        functions.replay("catalog.malformed")


def test_the_url_is_guarded_by_iam_and_the_function_reads_pointers_only() -> None:
    body = read_body(ROOT / "template.yaml")["Resources"]["CatalogFunction"]["Properties"]
    assert body["FunctionUrlConfig"] == {"AuthType": "AWS_IAM"}
    assert "catalog" not in policies(load())
    grants = policies(load(Catalog="true"))["catalog"]
    assert {(g.action, g.resource.rpartition(":")[2].partition("/")[2]) for g in grants} == {
        ("s3:ListBucket", ""),
        ("s3:GetObject", "tables/*/metadata/latest.json"),
    }

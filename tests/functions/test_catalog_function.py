"""The catalog behind a function URL: published tables only, and commits only where it takes them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.iceberg.credentials import session_policy
from inlay.local.template import read_body
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, ROOT, Functions, event
from .policies import grants_of, load, policies


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


def test_it_takes_commits_where_it_is_to(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is created by one request, and gets a column by another, which comes in base64."""
    monkeypatch.setenv("INLAY_CATALOG_WRITES", "true")

    def ask(path: str, body: object, *, encoded: bool = False) -> tuple[int, Any]:
        asked = event("catalog.write")
        text = json.dumps(body)
        asked["rawPath"] = f"/v1/namespaces/tables/tables{path}"
        asked["body"] = b64encode(text.encode()).decode() if encoded else text
        asked["isBase64Encoded"] = encoded
        answer = functions.invoke("catalog", asked)
        return answer["statusCode"], json.loads(answer["body"] or "null")

    fields = [{"id": 0, "name": "id", "type": "long", "required": False}]
    schema = {"type": "struct", "fields": fields}
    status, said = ask("", {"name": "people", "schema": schema, "properties": {"owner": "me"}})
    assert status == 200, said
    named = {"id": 2, "name": "s", "type": "string", "required": False}
    known = said["metadata"]["schemas"][0]
    wider = {**known, "schema-id": 1, "fields": [*known["fields"], named]}
    commit = {
        "requirements": [{"type": "assert-table-uuid", "uuid": said["metadata"]["table-uuid"]}],
        "updates": [
            {"action": "add-schema", "schema": wider, "last-column-id": 2},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }
    assert ask("/people", commit, encoded=True)[0] == 200
    table = inlay.open(f"memory://{BUCKET}/tables/people")
    assert table.schema.names == ["id", "s"] and table.properties["iceberg.owner"] == "me"
    commit["requirements"] = [{"type": "assert-table-uuid", "uuid": "another"}]
    assert ask("/people", commit)[0] == 409
    assert ask("/../secrets", commit)[0] == 404


def test_a_catalog_that_takes_commits_may_write_tables_and_drop_them() -> None:
    grants = policies(load(Catalog="readwrite"))["catalog"]
    may = {(g.action, g.resource.rpartition(":")[2].partition("/")[2]) for g in grants}
    assert may >= {("s3:PutObject", "tables/*"), ("s3:DeleteObject", "tables/*/_latest_manifest")}
    assert ("s3:DeleteObject", "tables/*") not in may


def test_the_role_of_engines_reaches_what_sessions_do_and_only_the_catalog_assumes_it() -> None:
    """A session's policy narrows the role's; what the role lacks, no session has."""
    assert "EngineRole" not in load(Catalog="readwrite")["Resources"]
    for catalog, writes in (("true", False), ("readwrite", True)):
        resources = load(Catalog=catalog, CatalogCredentials="true")["Resources"]
        role = resources["EngineRole"]["Properties"]
        [trusted] = role["AssumeRolePolicyDocument"]["Statement"]
        assert "CatalogFunctionRole" in trusted["Principal"]["AWS"]
        [policy] = role["Policies"]
        grants = list(grants_of(policy["PolicyDocument"]["Statement"]))
        session = session_policy(BUCKET, "tables/t", write=writes)
        asked = grants_of(s for s in json.loads(session)["Statement"] if s["Effect"] == "Allow")
        for each in asked:
            if each.action.startswith("s3:") and each.action != "s3:ListBucket":
                name = each.resource.replace("*", "x")
                assert any(g.allows(each.action, name, None) for g in grants), each
        may = {(g.action, g.resource.rpartition(":")[2].partition("/")[2]) for g in grants}
        assert (("s3:PutObject", "tables/*/data/*") in may) == writes
        assert not any(key.startswith("tables/*/_") or key == "tables/*" for _, key in may)
        assert "s3:DeleteObject" not in {action for action, _ in may}


def test_the_function_lends_credentials_of_the_role_that_it_is_given(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.create_orders().publish()
    monkeypatch.setenv("INLAY_CATALOG_ROLE", "arn:aws:iam::123456789012:role/engines")
    asked = event("catalog.table")
    asked["headers"] = {"x-iceberg-access-delegation": "vended-credentials"}
    answer = functions.invoke("catalog", asked)
    # These tables are in memory; tests/interop/test_credentials.py has them on S3.
    assert answer["statusCode"] == 400 and "for tables on S3" in answer["body"]
    assert answered(functions, "table")[0] == 200

"""Credentials that a catalog lends: engines read and write one table with them, and nothing of Inlay's."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.cli.serving import catalog_of
from inlay.errors import AccessDenied, InvalidRequest, StoreUnavailable
from inlay.iceberg.catalog import Catalog
from inlay.iceberg.credentials import session_policy
from inlay.ops.catalog.credentials import EngineCredentials
from inlay.storage import assumed_role
from inlay.storage.assumed_role import Assumed, assume_role
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest

from ..store.conftest import in_front_of_s3, new_s3_store
from .test_catalog_writes import Engines, served

ROLE = "arn:aws:iam::123456789012:role/engines"
TABLE = "/v1/namespaces/tables/tables/t"
ASKED = {"x-iceberg-access-delegation": "vended-credentials,remote-signing"}


def allows(policy: str, action: str, resource: str, prefix: str | None = None) -> bool:
    """What IAM says (AWS: "Policy evaluation logic") of what is in these policies."""

    def as_list(value: Any) -> list[str]:
        return value if isinstance(value, list) else [value]

    def matches(pattern: str, text: str) -> bool:
        literal = {"${*}": "[*]", "${?}": "[?]", "${$}": "$"}
        parts = re.split(r"(\$\{[*?$]\})", pattern)
        return fnmatchcase(text, "".join(literal.get(p, p.replace("[", "[[]")) for p in parts))

    decided = set()
    for each in json.loads(policy)["Statement"]:
        conditions = each.get("Condition", {}).get("StringLike", {})
        asked = {"s3:prefix": prefix, "kms:ViaService": None}
        holds = all(
            asked[key] is not None and any(matches(p, str(asked[key])) for p in as_list(patterns))
            for key, patterns in conditions.items()
        )
        named = action in as_list(each["Action"])
        if named and holds and any(matches(r, resource) for r in as_list(each["Resource"])):
            decided.add(each["Effect"])
    return decided == {"Allow"}


READ = ("data/2026/a.parquet", "metadata/v3.metadata.json", "metadata/inlay-l-1.avro")
OWN = ("_latest_manifest", "manifest/v00000001.json", "manifest/segments/x", "erasure/case.json")
PUBLISHED = ("latest.json", "version-hint.text", "v9.metadata.json", "inlay-m-1.avro")


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("root", ["lake/tables/t", "a*b/t?", "x/${aws:username}/t[1]"])
def test_a_session_reaches_one_table_and_none_of_inlays_objects(root: str, write: bool) -> None:
    policy = session_policy("b", root, write=write)

    def may(verb: str, key: str) -> bool:
        return allows(policy, f"s3:{verb}", f"arn:aws:s3:::b/{key}")

    for key in (*READ, "tombstone/2026/x.puffin"):
        assert may("GetObject", f"{root}/{key}"), key
    for key in ("data/new.parquet", "metadata/0c3f-m0.avro", "metadata/snap-1.avro"):
        assert may("PutObject", f"{root}/{key}") == write, key
    for key in (*OWN, *(f"metadata/{name}" for name in PUBLISHED)):
        assert not may("PutObject", f"{root}/{key}"), key
    for key in (*OWN, "tombstone/2026/x.del"):
        assert not may("GetObject", f"{root}/{key}"), key
    for key in READ:
        assert not may("DeleteObject", f"{root}/{key}"), "an engine deletes nothing"
    # A character that stands for others in a policy stands for itself in a table's name.
    for other in ("lake/tables/u", "lake/tables/tt", "aXb/tY", "a/b/t?", "x/me/t[1]", "x/${}/t1"):
        assert not may("GetObject", f"{other}/data/2026/a.parquet"), other
    bucket = "arn:aws:s3:::b"
    for prefix, listed in (
        (f"{root}/data/", True),
        (f"{root}/", False),
        ("", False),
        (None, False),
    ):
        assert allows(policy, "s3:ListBucket", bucket, prefix) == listed, prefix


def test_a_folder_whose_policy_would_be_too_long_is_refused_by_name() -> None:
    assert session_policy("b" * 60, "r" * 120, write=True)
    with pytest.raises(InvalidRequest, match="characters"):
        session_policy("b", "r" * 600, write=True)


@dataclass
class Guarded:
    """The embedded S3, which lets those in whose keys it has issued, as far as their policy goes."""

    s3: Any
    policies: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    denied: list[tuple[str, str]] = field(default_factory=list)

    def assume(self, role: str, *, policy: str, name: str) -> Assumed:
        key = f"ASIA{len(self.policies)}"
        self.policies[key] = policy
        endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
        return Assumed(key, "secret", "token", 2**41, "us-east-1", endpoint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.s3, name)

    def __call__(self, request: AwsRequest) -> AwsAnswer:
        key = re.search(r"Credential=([^/]+)/", request.headers.get("authorization", ""))
        if key is not None and key[1] == "local":  # Inlay's own
            return self.s3(request)
        policy = self.policies.get(key[1]) if key else None
        asked = request.method, f"{request.bucket}/{request.key}"
        self.asked.append(asked)
        if policy is None or request.headers.get("x-amz-security-token") != "token":
            self.denied.append(asked)
            return AwsAnswer.error(403, "InvalidAccessKeyId", "who is that?")
        of = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "POST": "PutObject"}
        if request.key:
            allowed = allows(
                policy, f"s3:{of.get(request.method, 'DeleteObject')}", f"arn:aws:s3:::{asked[1]}"
            )
        else:
            prefix = request.query.get("prefix")
            action = "s3:ListBucket" if request.method in ("GET", "HEAD") else "s3:DeleteObject"
            allowed = allows(policy, action, f"arn:aws:s3:::{request.bucket}", prefix)
        if not allowed:
            self.denied.append(asked)
            return AwsAnswer.error(403, "AccessDenied", "not allowed")
        answer: AwsAnswer = self.s3(request)
        return answer


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with in_front_of_s3(Guarded) as made:
        yield made


@pytest.fixture
def catalog(guarded: Guarded) -> Catalog:
    bucket = new_s3_store().bucket
    made = catalog_of(f"s3://{bucket}/tables", write=True, credentials_role=ROLE)
    assert isinstance(made.credentials, EngineCredentials)
    return replace(made, credentials=replace(made.credentials, assume=guarded.assume))


def test_credentials_are_lent_to_who_asks_alone(catalog: Catalog, guarded: Guarded) -> None:
    schema = {"type": "struct", "fields": []}
    schema["fields"] = [{"id": 1, "name": "id", "type": "long", "required": False}]
    body = json.dumps({"name": "t", "schema": schema, "stage-create": True}).encode()

    def answered(path: str, headers: Mapping[str, str], sent: bytes = b"") -> Any:
        verb = "POST" if sent else "GET"
        answer = catalog.answer(verb, path, "", sent, headers)
        assert answer.status == 200, answer
        return json.loads(answer.body)

    assert catalog.answer("GET", TABLE, "", b"", ASKED).status == 404
    assert catalog.answer("GET", f"{TABLE}/credentials").status == 404
    assert guarded.policies == {}, "nothing is lent for a table that is not there"
    tables = TABLE.removesuffix("/t")
    for sent in (body, body.replace(b"true", b"false")):  # staged, created
        assert answered(tables, ASKED, sent)["config"]["s3.session-token"] == "token"
        sent = sent.replace(b'"t"', b'"u"')
        assert "storage-credentials" not in answered(tables, {}, sent)
    assert answered(TABLE, {})["config"] == {}
    said = answered(TABLE, ASKED)
    [lent] = said["storage-credentials"]
    assert lent["prefix"] == said["metadata"]["location"] + "/"
    assert lent["config"] == said["config"]
    assert lent["config"]["client.refresh-credentials-endpoint"] == f"{TABLE[1:]}/credentials"
    assert said["config"]["s3.session-token-expires-at-ms"] == str(2**41)
    again = answered(f"{TABLE}/credentials", {})
    assert again.keys() == {"storage-credentials"}
    assert (
        f"GET {'/v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials'}"
        in answered("/v1/config", {})["endpoints"]
    )


def test_engines_without_credentials_of_their_own_write_with_those_that_they_are_lent(
    catalog: Catalog, guarded: Guarded, engines_python: Path
) -> None:
    nobody = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    nobody |= {"AWS_EC2_METADATA_DISABLED": "true"}
    for uri in served(catalog):
        engines = Engines(engines_python, uri, nobody)
        engines.sql("CREATE TABLE lake.tables.t AS SELECT 1::BIGINT AS id, 'a' AS s")
        engines.sql("INSERT INTO lake.tables.t VALUES (2, 'b'), (3, 'c')")
        engines("pyiceberg", "append", "tables.t", [{"id": 4, "s": "d"}])
        engines.sql("DELETE FROM lake.tables.t WHERE id = 2")
        engines("pyiceberg", "delete", "tables.t", "id == 3")
        engines.sql("CREATE TABLE lake.tables.u (id BIGINT)")
        store = catalog.credentials.context("t").store  # type: ignore[union-attr]
        native = inlay.open(f"s3://{store.bucket}/tables/t")
        native.append(pa.table({"id": [5], "s": ["e"]}))
        native.delete("id = 4", mode="vector")
        expected = [1, 5]
        assert sorted(native.refresh().scan().to_arrow()["id"].to_pylist()) == expected
        shown = engines.sql("SELECT id FROM lake.tables.t ORDER BY id")
        assert [i for [i] in shown] == expected
        assert sorted(r["id"] for r in engines("pyiceberg", "scan", "tables.t")) == expected
        engines.close()
    assert guarded.policies
    # The only thing that is denied is the removal of what an engine wrote for nothing.
    assert {method for method, _ in guarded.denied} <= {"DELETE"}, guarded.denied


def test_an_insert_of_one_file_by_duckdb_costs_nine_puts_and_twelve_gets(
    catalog: Catalog, guarded: Guarded, engines_python: Path
) -> None:
    """Three of the puts are DuckDB's own. docs/INTEROP.md has the list."""
    nobody = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    for uri in served(catalog):
        engines = Engines(engines_python, uri, nobody)
        engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
        engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a')")
        guarded.s3.forget_requests()
        guarded.asked.clear()
        engines.sql("INSERT INTO lake.tables.t VALUES (2, 'b')")
        engines.close()
    theirs = Counter(method for method, _ in guarded.asked)
    everything = Counter(each.method for each in guarded.s3.requests())
    assert theirs == {"PUT": 3, "GET": 1, "HEAD": 1}
    assert everything == {"PUT": 9, "GET": 12, "HEAD": 1}


def test_a_role_is_assumed_with_the_policy_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto import mock_aws
    from moto.sts.models import sts_backends

    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        policy = session_policy("lake", "tables/t", write=True)
        lent = assume_role(ROLE, policy=policy, name="inlay-t")
        [assumed] = sts_backends["123456789012"]["global"].assumed_roles
    assert (assumed.policy, assumed.session_name, assumed.role_arn) == (policy, "inlay-t", ROLE)
    assert assumed.session_token == lent.session_token and lent.access_key_id.startswith("ASIA")
    assert (lent.region, lent.endpoint) == ("eu-central-1", None)
    assert lent.session_token not in repr(lent) and lent.secret_access_key not in repr(lent)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDenied", 403, AccessDenied),
        ("PackedPolicyTooLarge", 400, InvalidRequest),
        ("ExpiredToken", 403, AccessDenied),
        ("Throttling", 400, StoreUnavailable),
        ("InternalFailure", 500, StoreUnavailable),
    ],
)
def test_what_sts_refuses_is_said_by_name(
    code: str, status: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    class Refusing:
        def create_client(self, *_: Any, **__: Any) -> Refusing:
            return self

        def assume_role(self, **_: Any) -> None:
            said = {"Error": {"Code": code, "Message": "no"}}
            raise ClientError(
                {**said, "ResponseMetadata": {"HTTPStatusCode": status}}, "AssumeRole"
            )

    client = SimpleNamespace(meta=SimpleNamespace(region_name="us-east-1"))
    monkeypatch.setattr(assumed_role.s3_client, "connect", lambda: client)
    monkeypatch.setattr(assumed_role.botocore.session, "Session", Refusing)
    with pytest.raises(error):
        assume_role(ROLE, policy="{}", name="n")


def test_credentials_are_of_roles_and_of_s3(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="on S3"):
        catalog_of(f"file://{tmp_path}/tables", credentials_role=ROLE)
    for wrong in ("engines", "arn:aws:iam::12:role/x", f"{ROLE}\n", "arn:aws:s3:::b/role/x"):
        with pytest.raises(InvalidRequest, match="no ARN of a role"):
            EngineCredentials(wrong, lambda table: None)  # type: ignore[arg-type,return-value]

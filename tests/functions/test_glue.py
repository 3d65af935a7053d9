"""Published tables in the Glue catalog, as Athena finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.errors import InvalidRequest, StoreUnavailable
from inlay.format.keys import PUBLISHED_POINTER
from inlay.functions import glue

from .conftest import BUCKET, Functions
from .test_publish import orders


class Strict:
    """moto's Glue, with the check of versions that moto leaves out."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.exceptions = client.exceptions
        self.asked: list[str] = []
        self.before_update: list[Any] = []

    def _kept(self, database: str, name: str) -> Any:
        return self._client.get_table(DatabaseName=database, Name=name)["Table"]

    def get_table(self, **asked: Any) -> Any:
        self.asked.append("GetTable")
        return self._client.get_table(**asked)

    def create_table(self, **asked: Any) -> Any:
        self.asked.append("CreateTable")
        return self._client.create_table(**asked)

    def update_table(self, **asked: Any) -> Any:
        self.asked.append("UpdateTable")
        if self.before_update:
            self.before_update.pop()()
        kept = self._kept(asked["DatabaseName"], asked["TableInput"]["Name"])
        if kept["VersionId"] != asked["VersionId"]:
            raise self.exceptions.ConcurrentModificationException({}, "UpdateTable")
        return self._client.update_table(**asked)


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strict]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        client = boto3.client("glue", region_name="us-east-1")
        client.create_database(DatabaseInput={"Name": "lake"})
        strict = Strict(client)
        monkeypatch.setattr(glue, "client", lambda: strict)
        yield strict


def registered(catalog: Strict, name: str = "orders") -> dict[str, Any]:
    return catalog._kept("lake", name)  # type: ignore[no-any-return]


def pointer(functions: Functions) -> bytes:
    return bytes(functions.store.get(f"tables/orders/{PUBLISHED_POINTER}").body)


def test_each_publication_is_registered_with_its_metadata(
    functions: Functions, catalog: Strict
) -> None:
    functions.set_variable("INLAY_GLUE_DATABASE", "lake")
    table = orders(functions, **{"publish.format": "v3"})
    functions.replay("publish.pointer")
    first = registered(catalog)
    said = json.loads(pointer(functions))
    assert first["Parameters"]["table_type"] == "ICEBERG"
    assert first["Parameters"]["metadata_location"] == said["metadata-location"]
    assert first["TableType"] == "EXTERNAL_TABLE"
    assert first["StorageDescriptor"]["Location"] == f"memory://{BUCKET}/tables/orders"
    shown = {c["Name"]: c["Type"] for c in first["StorageDescriptor"]["Columns"]}
    assert list(shown) == table.schema.names
    assert shown["order_id"] == "bigint"

    table.delete("order_id < 10")
    functions.replay("publish.pointer")
    second = registered(catalog)["Parameters"]
    assert second["previous_metadata_location"] == first["Parameters"]["metadata_location"]
    assert int(second["inlay.version"]) == table.refresh().version
    catalog.asked.clear()
    functions.replay("publish.pointer")
    assert catalog.asked == ["GetTable"], "what is registered already costs one request"


def test_a_registration_never_goes_back(functions: Functions, catalog: Strict) -> None:
    table = orders(functions)
    table.publish()
    older = pointer(functions)
    table.append(pa.Table.from_pylist([], table.schema))
    table.delete("order_id < 10")
    table.publish()
    newer = pointer(functions)
    assert glue.register(catalog, "lake", "orders", newer)
    assert not glue.register(catalog, "lake", "orders", older)
    assert not glue.register(catalog, "lake", "orders", newer)
    assert glue.register(catalog, "lake", "orders", older, back=True)


def test_of_racing_publishers_the_newest_stays(functions: Functions, catalog: Strict) -> None:
    table = orders(functions)
    bodies = []
    for n in range(3):
        table.delete(f"order_id = {n}")
        table.publish()
        bodies.append(pointer(functions))
    glue.register(catalog, "lake", "orders", bodies[0])
    catalog.before_update.append(lambda: glue.register(catalog, "lake", "orders", bodies[2]))
    assert not glue.register(catalog, "lake", "orders", bodies[1])
    newest = json.loads(bodies[2])["metadata-location"]
    assert registered(catalog)["Parameters"]["metadata_location"] == newest


def test_somebody_elses_table_is_refused_and_stays(functions: Functions, catalog: Strict) -> None:
    theirs = {"Name": "orders", "Parameters": {"table_type": "ICEBERG", "metadata_location": "x"}}
    catalog.create_table(DatabaseName="lake", TableInput=theirs)
    orders(functions).publish()
    with pytest.raises(InvalidRequest, match="another table"):
        glue.register(catalog, "lake", "orders", pointer(functions))
    assert registered(catalog)["Parameters"]["metadata_location"] == "x"


def test_a_missing_database_leaves_the_message(functions: Functions, catalog: Strict) -> None:
    functions.set_variable("INLAY_GLUE_DATABASE", "nowhere")
    orders(functions, **{"publish.format": "v3"})
    with pytest.raises(Exception, match="All records failed"):
        functions.replay("publish.pointer")
    assert functions.queues.dead == []
    with pytest.raises(StoreUnavailable, match="Glue"):
        glue.register(catalog, "nowhere", "orders", pointer(functions))


def test_types_are_shown_as_hive_names_them(functions: Functions, catalog: Strict) -> None:
    schema = pa.schema(
        [
            ("a", pa.list_(pa.int32())),
            ("b", pa.struct([("x", pa.decimal128(9, 2)), ("y", pa.timestamp("us", tz="UTC"))])),
            ("c", pa.map_(pa.string(), pa.binary(4))),
            ("d", pa.time64("us")),
        ]
    )
    made = inlay.create(f"memory://{BUCKET}/tables/orders", schema)
    made.publish()
    glue.register(catalog, "lake", "orders", pointer(functions))
    columns = registered(catalog)["StorageDescriptor"]["Columns"]
    assert [c["Type"] for c in columns] == [
        "array<int>",
        "struct<x:decimal(9,2),y:timestamp>",
        "map<string,binary>",
        "string",
    ]


def test_the_command_registers_too(catalog: Strict, tmp_path: Any) -> None:
    uri = f"file://{tmp_path}/people"
    inlay.create(uri, pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    ran = CliRunner().invoke(app, ["publish", uri, "--glue", "lake.people"])
    assert ran.exit_code == 0, ran.output
    assert registered(catalog, "people")["StorageDescriptor"]["Location"] == uri
    assert CliRunner().invoke(app, ["publish", uri, "--glue", "people"]).exit_code != 0

"""The pieces of the demo: figures that notice, readers that agree, a meter that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.local.demo.figures import Figures, Meter
from inlay.local.demo.play import generate_lineitem
from inlay.local.demo.readers import ArrowReader, DuckReader, Reader
from inlay.local.demo.show import cost_text
from inlay.local.demo.world import Truth
from inlay.local.s3server import AwsProcess
from inlay.local.stack import environment
from inlay.storage.wrapped import Usage


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return list(generate_lineitem(tmp_path_factory.mktemp("tpch"), scale=0.001, files=2))


@pytest.fixture
def truth(sources: list[Path]) -> Truth:
    truth = Truth(sources[0])
    truth.add(sources)
    return truth


@pytest.fixture
def table(sources: list[Path], tmp_path: Path) -> inlay.Table:
    t = inlay.create(
        (tmp_path / "t").as_uri(), pq.read_schema(sources[0]), primary_key="l_orderkey"
    )
    t.ingest([source.as_uri() for source in sources])
    return t


def test_lineitem_has_the_rows_of_its_scale(sources: list[Path]) -> None:
    assert sum(pq.read_metadata(source).num_rows for source in sources) == 6005


def test_a_bad_scale_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="tpchgen-cli"):
        generate_lineitem(tmp_path, scale=-1, files=2)


@pytest.mark.parametrize("kind", [ArrowReader, DuckReader])
def test_readers_agree_with_the_truth_before_and_after_a_delete(
    kind: Callable[[], Reader], truth: Truth, table: inlay.Table
) -> None:
    reader = kind()
    assert reader.read(table.uri, table.version) == truth.figures()
    where = "l_shipmode = 'AIR' AND l_discount >= 0.05"
    table.delete(where)
    assert reader.read(table.uri, table.version) != truth.figures()
    truth.delete(where)
    assert reader.read(table.uri, table.version) == truth.figures()


@pytest.mark.parametrize("kind", [ArrowReader, DuckReader])
def test_nothing_left_is_zero(kind: Callable[[], Reader], truth: Truth, table: inlay.Table) -> None:
    reader = kind()
    table.delete("l_orderkey >= 0")
    truth.delete("true")
    assert reader.read(table.uri, table.version) == truth.figures()
    assert truth.figures() == Figures(0, Decimal(0), Decimal(0), 0)


def test_figures_notice_one_row_in_the_place_of_another(tmp_path: Path) -> None:
    """Same count, same sums of the values: only the keys differ."""
    rows = {"l_quantity": [Decimal("1.00")], "l_extendedprice": [Decimal("2.00")]}
    found = []
    for line in (1, 2):
        uri = (tmp_path / f"t{line}").as_uri()
        data = pa.table({"l_orderkey": [7], "l_linenumber": pa.array([line], pa.int32()), **rows})
        inlay.create(uri, data.schema).append(data)
        found.append(ArrowReader().read(uri, 2))
    assert found[0].differences(found[1]) == ["keys 57 instead of 58"]


def test_orders_are_there_and_ascend(truth: Truth) -> None:
    orders = truth.orders(0.4, limit=5)
    assert len(orders) == 5
    assert list(orders) == sorted(orders)
    assert all(truth.count(f"l_orderkey = {order}") for order in orders)


# -- the meter ------------------------------------------------------------------------------------


@pytest.fixture
def aws() -> Iterator[AwsProcess]:
    with AwsProcess(["s3"]) as running, environment(dict(running.env())):
        boto3.client("s3").create_bucket(Bucket="meter")
        yield running


def test_the_meter_counts_what_was_asked_since_its_mark(aws: AwsProcess) -> None:
    s3, meter = boto3.client("s3"), Meter(aws)
    s3.put_object(Bucket="meter", Key="tables/t/before", Body=b"not counted")
    meter.mark()
    s3.put_object(Bucket="meter", Key="ingest/t/a.parquet", Body=b"the demo's own upload")
    s3.put_object(Bucket="meter", Key="tables/t/a", Body=b"12345")
    s3.get_object(Bucket="meter", Key="tables/t/a")["Body"].read()
    cost = meter.since_mark()
    assert cost is not None
    assert (dict(cost.requests), cost.bytes_up, cost.bytes_down) == (
        {"PutObject": 1, "GetObject": 1},
        5,
        5,
    )


def test_another_server_is_not_counted_and_that_is_said() -> None:
    meter = Meter(None)
    meter.mark()
    assert meter.since_mark() is None
    assert "embedded S3 only" in cost_text(None)


def test_a_cost_reads_well() -> None:
    cost = Usage({"GetObject": 1, "PutObject": 2}, 1_500, 20)
    assert cost_text(cost) == "3 requests (2 PUT, 1 GET), 1.5 kB up, 20 B down"

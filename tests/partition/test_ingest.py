"""Landing files of a partitioned table: copied if they are in one partition, else split or kept whole."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import Duplicate, Ingested, Rejected, Superseded, ingest
from inlay.storage.base import Written
from inlay.storage.open import parse_location

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("x", pa.float64()),
    ]
)
DAY = datetime(2024, 2, 29, tzinfo=UTC)


class Lake:
    """A table and its landing zone in one memory store."""

    def __init__(self, *partition_by: str, **properties: Any) -> None:
        self.base = f"memory://landing-{uuid.uuid4().hex}"
        options = {k.replace("__", "."): v for k, v in properties.items()}
        self.table = inlay.create(
            f"{self.base}/tables/t", SCHEMA, partition_by=partition_by, properties=options
        )

    def land(self, rows: pa.Table, name: str = "a.parquet", **options: Any) -> str:
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, **options)
        put = self.table._ctx.store.put(f"in/{name}", buffer.getvalue())
        assert isinstance(put, Written)
        self.etag = put.etag
        return f"{self.base}/in/{name}"

    @property
    def files(self) -> Any:
        return self.table.inspect.entries()[0]

    def ids(self, where: str | None = None) -> list[int]:
        return sorted(self.table.scan(columns=["id"], where=where).to_arrow()["id"].to_pylist())


def rows(hours: list[int | None], name: str = "n", x: float = 0.0) -> pa.Table:
    return pa.table(
        {
            "id": list(range(len(hours))),
            "at": [None if h is None else DAY + timedelta(hours=h) for h in hours],
            "name": [name] * len(hours),
            "x": [x] * len(hours),
        },
        schema=SCHEMA,
    )


def test_a_file_of_one_day_is_copied_byte_for_byte_into_its_partition() -> None:
    lake = Lake("day(at)")
    uri = lake.land(rows([0, 5, 23]))
    before = lake.table.usage
    result = lake.table.ingest([uri])
    requests = (lake.table.usage - before).requests
    assert isinstance(result.outcomes[0], Ingested) and result.outcomes[0].rows == 3
    [entry] = lake.files
    assert (entry.spec_id, entry.partition) == (1, (19_782,))
    assert requests.get("copy") == 1 and requests.get("put") == 2, "archive and swap"
    assert requests["get"] == 1, "the footer"
    assert lake.table.scan(where="at < TIMESTAMP '2024-02-29 00:00:00Z'").explain().pruned == 1


def test_a_file_that_spans_days_is_cut_and_no_row_is_lost() -> None:
    lake = Lake("day(at)")
    result = lake.table.ingest([lake.land(rows([*range(-30, 30), None]))])
    assert isinstance(result.outcomes[0], Ingested) and result.outcomes[0].rows == 61
    assert sorted((f.partition for f in lake.files), key=str) == [
        (19_780,), (19_781,), (19_782,), (19_783,), (None,),
    ]  # fmt: skip
    assert lake.ids() == list(range(61))
    assert len({f.event for f in lake.files}) == 1
    assert lake.ids("at IS NULL") == [60]
    assert lake.table.scan(where="at IS NULL").explain().files_read == 1


def test_a_file_that_was_cut_comes_only_once() -> None:
    lake = Lake("day(at)")
    uri = lake.land(rows([0, 30]))
    first, again = (lake.table.ingest([uri, uri]), lake.table.ingest([uri]))
    assert [type(o) for o in first.outcomes] == [Ingested, Duplicate]
    assert [type(o) for o in again.outcomes] == [Duplicate]
    assert lake.ids() == [0, 1]


def test_a_large_file_that_spans_is_kept_whole_in_no_partition() -> None:
    lake = Lake("day(at)", ingest__split_bytes=0)
    uri = lake.land(rows([0, 30]))
    before = lake.table.usage
    lake.table.ingest([uri])
    assert (lake.table.usage - before).requests.get("copy") == 1
    [entry] = lake.files
    assert (entry.spec_id, entry.partition) == (1, ())
    assert lake.ids("at >= TIMESTAMP '2024-03-01 00:00:00Z'") == [1]
    lake.table.ingest([lake.land(rows([31]), "b.parquet")])
    assert [f.partition for f in lake.files] == [(), (19_783,)]
    assert lake.table.maintain.verify(depth="pages").findings == ()


def test_compaction_cuts_what_ingest_left_whole_but_not_what_was_adopted() -> None:
    lake = Lake("day(at)", ingest__split_bytes=0)
    whole = lake.land(rows([0, 30, 60]), "a.parquet")
    lake.table.ingest([whole])
    lake.table.ingest([lake.land(rows([1, 31]), "b.parquet")], adopt=True)
    result = lake.table.maintain.compact()
    assert (result.units, result.input_files, result.output_files) == (1, 1, 3)
    assert sorted(f.partition for f in lake.files) == [(), (19_782,), (19_783,), (19_784,)]
    assert lake.ids() == [0, 0, 1, 1, 2]
    assert lake.table.maintain.compact().units == 0


def test_what_was_left_whole_stays_so_when_the_table_is_no_longer_partitioned() -> None:
    lake = Lake("day(at)", ingest__split_bytes=0)
    lake.table.ingest([lake.land(rows([0, 30]))])
    lake.table.set_partitioning()
    assert lake.table.maintain.compact().units == 0


def test_an_adopted_file_stays_where_it_is_whatever_it_spans() -> None:
    lake = Lake("day(at)")
    one, several = lake.land(rows([1, 2]), "one.parquet"), lake.land(rows([1, 50]), "two.parquet")
    lake.table.ingest([one, several], adopt=True)
    assert [(f.key, f.partition) for f in lake.files] == [(one, (19_782,)), (several, ())]
    assert lake.ids("at >= TIMESTAMP '2024-03-02 00:00:00Z'") == [1]


@pytest.mark.parametrize(
    ("spec", "table", "partition"),
    [
        ("bucket(8, id)", rows([0]), (None,)),
        ("name", rows([0, 1], name="a" * 40), ("a" * 40,)),
        ("truncate(3, name)", rows([0, 1], name="abcdef" * 9), ("abc",)),
        ("bucket(8, name)", rows([0, 1], name="abcdef" * 9), (None,)),
        ("month(at)", rows([0, 600]), None),
        ("name", rows([None, None]), ("n",)),
        ("day(at)", rows([None, None]), (None,)),
    ],
)
def test_the_footer_proves_the_partition(spec: str, table: pa.Table, partition: Any) -> None:
    from inlay.format.partition import parse_transform, partition_of
    from inlay.format.schema import Primitive

    lake = Lake(spec)
    before = lake.table.usage
    lake.table.ingest([lake.land(table)])
    copied = (lake.table.usage - before).requests.get("copy", 0)
    assert copied == (partition is not None)
    if spec.startswith("bucket"):
        source = "int64" if "id" in spec else "string"
        value = 0 if "id" in spec else "abcdef" * 9
        partition = (partition_of(parse_transform("bucket[8]"), Primitive(source), value),)
    if partition is not None:
        assert [f.partition for f in lake.files] == [partition]
    assert lake.ids() == list(range(table.num_rows))


def test_what_the_footer_does_not_prove_is_read() -> None:
    # Whether a float column has NaN is in no footer, and here there are no statistics at all.
    for spec, options in (("x", {}), ("day(at)", {"write_statistics": False})):
        lake = Lake(spec)
        lake.table.ingest([lake.land(rows([0, 1], x=float("nan")), **options)])
        [entry] = lake.files
        assert (entry.spec_id, lake.ids()) == (1, [0, 1])
        assert entry.partition == (("NaN",) if spec == "x" else (19_782,))


def test_a_file_without_the_partition_column_is_in_the_null_partition() -> None:
    lake = Lake("day(at)")
    lake.table.ingest([lake.land(rows([0, 1]).drop(["at"]))])
    assert [f.partition for f in lake.files] == [(None,)]
    assert lake.ids("at IS NULL") == [0, 1]


def test_rows_are_laid_under_the_current_spec_beside_files_of_the_one_before() -> None:
    lake = Lake("day(at)")
    lake.table.ingest([lake.land(rows([0, 1]))])
    lake.table.set_partitioning("name")
    lake.table.ingest([lake.land(rows([30, 90]), "b.parquet")])
    assert [(f.spec_id, f.partition) for f in lake.files] == [(1, (19_782,)), (2, ("n",))]


def test_a_file_overwritten_while_it_is_cut_is_superseded() -> None:
    lake = Lake("day(at)")
    uri = lake.land(rows([0, 30]))
    store = lake.table._ctx.store
    looked = store.get_suffix
    calls: list[str] = []

    def overwrite_after_the_look(key: str, length: int) -> Any:
        found = looked(key, length)
        calls.append(key)
        if calls == ["in/a.parquet"]:
            lake.land(rows([0, 30, 60]))
        return found

    source = IngestSource(parse_location(uri), etag=lake.etag)
    store.get_suffix = overwrite_after_the_look  # type: ignore[method-assign]
    try:
        result = ingest(lake.table._ctx, [source])
    finally:
        del store.get_suffix  # type: ignore[method-assign]
    assert [type(o) for o in result.outcomes] == [Superseded]
    assert not inlay.open(lake.table.uri).inspect.entries()[0]


def test_a_file_that_cannot_be_cut_harms_no_other() -> None:
    lake = Lake("day(at)")
    good, bad = lake.land(rows([0]), "good.parquet"), lake.land(rows([0, 30]), "bad.parquet")
    store = lake.table._ctx.store
    body = bytearray(store.get("in/bad.parquet").body)  # type: ignore[union-attr]
    body[4:40] = bytes(36)  # pages, not the footer
    store.put("in/bad.parquet", bytes(body))
    result = lake.table.ingest([bad, good])
    assert [type(o) for o in result.outcomes] == [Rejected, Ingested]
    assert lake.ids() == [0]

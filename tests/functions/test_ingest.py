"""The ingest function on the events under `events/`."""

from __future__ import annotations

import hashlib
import io
import json
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import AccessDenied, StoreUnavailable
from inlay.parquet.footer.fields import Chunk, File, Group, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.read.describe import TAIL_BYTES
from inlay.storage.memory import MemoryStore

from .conftest import BUCKET, KEY, ORDERS, Functions, event, few, landing_message


def test_the_events_name_the_sample_file_by_its_etag() -> None:
    (record,) = event("ingest.direct_s3")["Records"]
    assert record["s3"]["object"]["eTag"] == hashlib.md5(ORDERS).hexdigest()
    assert record["s3"]["object"]["size"] == len(ORDERS)


@pytest.mark.parametrize(
    "name",
    ["ingest.normal", "ingest.direct_s3", "ingest.eventbridge", "ingest.eventbridge_queue"],
)
def test_a_landed_file_becomes_rows_in_every_form_of_its_event(
    functions: Functions, name: str
) -> None:
    functions.create_orders()
    functions.land()
    functions.replay(name)
    assert functions.rows() == 100
    assert functions.queues.sent == []


def test_all_forms_of_one_event_are_one_event(functions: Functions) -> None:
    functions.create_orders()
    functions.land()
    for name in ("normal", "direct_s3", "eventbridge", "eventbridge_queue", "duplicate"):
        functions.replay(f"ingest.{name}")
    assert functions.rows() == 100


def test_put_and_complete_of_one_upload_are_one_file(functions: Functions) -> None:
    functions.create_orders()
    functions.land()
    assert functions.replay("ingest.duplicate") == {"batchItemFailures": []}
    assert functions.rows() == 100


def test_each_bad_message_is_buried_with_its_reason_and_the_good_one_ingested(
    functions: Functions,
) -> None:
    functions.create_orders()
    functions.land()
    functions.land("ingest/orders/notes.parquet", b"just a text\n")
    functions.land("ingest/nobody-made-this/orders.parquet")
    assert functions.replay("ingest.malformed") == {"batchItemFailures": []}
    assert functions.queues.errors == [
        "InvalidRequest",  # not JSON
        "InvalidRequest",  # not an event of S3
        "InvalidRequest",  # no table's folder
        "InvalidRequest",  # no table's name
        "TableNotFound",
        "UnreadableFile",
    ]
    bodies = [record["body"] for record in event("ingest.malformed")["Records"]]
    assert functions.queues.dead == bodies[:-1]
    assert functions.rows() == 100


def test_a_dead_letter_says_what_to_do(functions: Functions) -> None:
    functions.create_orders()
    functions.land("ingest/nobody-made-this/orders.parquet")
    functions.replay("ingest.malformed")
    (letter,) = [
        each
        for each in functions.queues.sent
        if each["MessageAttributes"]["InlayError"]["StringValue"] == "TableNotFound"
    ]
    said = {name: value["StringValue"] for name, value in letter["MessageAttributes"].items()}
    assert "create the table" in said["InlayNextStep"]
    assert said["InlayTable"].endswith("/tables/nobody-made-this")
    assert said["InlayFunction"] == "ingest"


def test_a_dead_letter_sent_again_is_ingested_once_its_cause_is_mended(
    functions: Functions,
) -> None:
    functions.land()
    functions.replay("ingest.normal")
    assert functions.queues.errors == ["TableNotFound"]
    functions.create_orders()
    (body,) = functions.queues.dead
    again = event("ingest.normal")
    again["Records"][0]["body"] = body
    functions.invoke("ingest", again)
    assert functions.rows() == 100


@pytest.mark.parametrize("name", ["ingest.test_event", "ingest.ignored", "ingest.taken_back"])
def test_what_is_no_news_of_data_changes_nothing(functions: Functions, name: str) -> None:
    before = functions.create_orders().version
    assert functions.replay(name) == {"batchItemFailures": []}
    assert functions.orders().version == before
    assert functions.queues.sent == []


def test_encoded_keys_name_the_object_they_mean(functions: Functions) -> None:
    functions.create_orders()
    functions.land("ingest/orders/café 1+1=2/100%/a..b.parquet")
    functions.replay("ingest.encoded_key")
    assert functions.queues.errors == []
    assert functions.rows() == 100


def test_an_event_whose_object_was_overwritten_is_acknowledged(functions: Functions) -> None:
    functions.create_orders()
    functions.land()
    assert functions.replay("ingest.overwritten") == {"batchItemFailures": []}
    assert functions.rows() == 0
    assert functions.queues.sent == []


def test_the_first_file_creates_the_table_where_that_is_wished(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    functions.set_variable("INLAY_TABLE_DEFAULTS", json.dumps({"delete.mode": "vector"}))
    functions.land()
    functions.replay("ingest.normal")
    assert functions.rows() == 100
    assert functions.orders().properties["delete.mode"] == "vector"


def test_a_file_that_may_not_be_read_keeps_no_other_from_creating_the_table(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may land one under a key of his own, or archived: S3 then denies it to everybody else."""
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    get_suffix = MemoryStore.get_suffix

    def denied(store: MemoryStore, key: str, *rest: Any, **pins: Any) -> Any:
        if key == "ingest/orders/denied.parquet":
            raise AccessDenied("S3 answered 403 AccessDenied")
        return get_suffix(store, key, *rest, **pins)

    monkeypatch.setattr(MemoryStore, "get_suffix", denied)
    sent = landing_message(functions, ORDERS, "ingest/orders/denied.parquet")
    sent["Records"] += landing_message(functions, few(10))["Records"]
    assert functions.invoke("ingest", sent) == {"batchItemFailures": []}
    assert functions.queues.errors == ["AccessDenied"]
    assert functions.rows() == 10


def test_a_file_no_schema_can_be_read_from_creates_no_table(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    functions.land(body=b"just a text\n")
    functions.replay("ingest.normal")
    assert functions.queues.errors == ["UnreadableFile"]


def test_a_file_with_an_interval_creates_no_table(functions: Functions, tmp_path: Path) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    path = tmp_path / "x.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS id, INTERVAL '1 month' AS x) TO '{path}' (FORMAT parquet)")
    functions.invoke("ingest", landing_message(functions, path.read_bytes()))
    assert functions.queues.errors == ["UnsupportedType"]
    assert not inlay.exists(f"memory://{BUCKET}/tables/orders")


def stored(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def with_a_damaged_page() -> bytes:
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    body = bytearray(stored(pa.table({"id": range(1_000)}), **plain))
    body[2_000] ^= 0xFF
    return bytes(body)


def in_two_orders() -> bytes:
    """Row groups whose dictionaries contradict each other."""
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    groups = [
        pa.table(
            {
                "size": pa.DictionaryArray.from_arrays(
                    pa.array([0, 1], pa.int8()), values, ordered=True
                )
            }
        )
        for values in (["small", "large"], ["large", "small"])
    ]
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("size", kind)])) as writer:
        for group in groups:
            writer.write_table(group)
    return sink.getvalue()


REFUSED_AT_FIRST = {
    "damaged": (with_a_damaged_page, {"ingest.check_pages": "yes"}),
    "large row group": (
        lambda: stored(pa.table({"t": ["x" * 2**21]})),
        {"ingest.group_bytes": 2**20},
    ),
    "dictionary": (
        lambda: stored(pa.table({"t": pa.DictionaryArray.from_arrays([0], ["a", "b"])})),
        {"ingest.unused_dictionary_entries": "refuse"},
    ),
    "changes": (lambda: ORDERS, {"ingest.as": "changes"}),
    "orders": (in_two_orders, {}),
    "no column": (lambda: stored(pa.table({}).select([])), {}),
}


@pytest.mark.parametrize("why", REFUSED_AT_FIRST)
def test_a_first_file_that_is_refused_leaves_no_table(functions: Functions, why: str) -> None:
    """Nor does it say which columns the next one may have."""
    make, defaults = REFUSED_AT_FIRST[why]
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    functions.set_variable("INLAY_TABLE_DEFAULTS", json.dumps(defaults))
    sent = landing_message(functions, make())
    assert functions.invoke("ingest", sent) == {"batchItemFailures": []}
    assert len(functions.queues.errors) == 1
    assert not inlay.exists(f"memory://{BUCKET}/tables/orders")
    functions.set_variable("INLAY_TABLE_DEFAULTS", "{}")
    functions.invoke("ingest", landing_message(functions, ORDERS))
    assert functions.rows() == 100


def test_the_first_file_that_is_taken_decides_the_columns(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    functions.set_variable("INLAY_TABLE_DEFAULTS", json.dumps({"ingest.check_pages": "yes"}))
    keys = (f"ingest/orders/{name}.parquet" for name in "abc")
    sent = [
        landing_message(functions, body, key)
        for body, key in zip((with_a_damaged_page(), ORDERS, few(7)), keys, strict=True)
    ]
    batch = {"Records": [message["Records"][0] for message in sent]}
    assert functions.invoke("ingest", batch) == {"batchItemFailures": []}
    assert functions.queues.errors == ["UnreadableFile"]
    assert functions.rows() == 107
    assert functions.orders().schema.names == pq.read_schema(pa.BufferReader(ORDERS)).names


def test_who_sees_a_table_that_a_file_made_sees_its_rows(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    sent = landing_message(functions, ORDERS)
    for _ in range(2):
        functions.invoke("ingest", sent)
    assert (functions.orders().version, functions.rows()) == (1, 100)


def test_orders_of_categories_are_in_the_first_version(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    sizes = pa.DictionaryArray.from_arrays(
        pa.array([1, 0], pa.int8()), ["small", "large"], ordered=True
    )
    functions.invoke("ingest", landing_message(functions, stored(pa.table({"size": sizes}))))
    kept = functions.orders().scan().to_arrow().column("size").combine_chunks()
    assert functions.orders().version == 1
    assert (kept.type.ordered, kept.dictionary.to_pylist()) == (True, ["small", "large"])


def test_a_first_file_without_rows_makes_the_table_once(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    sent = landing_message(functions, few(0))
    for _ in range(2):
        functions.invoke("ingest", sent)
    assert (functions.orders().version, functions.rows()) == (1, 0)
    assert functions.orders().schema.names == pq.read_schema(pa.BufferReader(ORDERS)).names


def test_a_first_file_that_was_taken_back_makes_no_table_and_no_dead_letter(
    functions: Functions,
) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    sent = landing_message(functions, ORDERS)
    functions.store.delete([KEY])
    assert functions.invoke("ingest", sent) == {"batchItemFailures": []}
    assert functions.queues.sent == []
    assert not inlay.exists(f"memory://{BUCKET}/tables/orders")


def test_a_first_file_that_was_overwritten_does_not_take_the_columns_of_the_newer(
    functions: Functions,
) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    sent = landing_message(functions, ORDERS)
    newer = landing_message(functions, stored(pa.table({"other": [1]})))
    assert functions.invoke("ingest", sent) == {"batchItemFailures": []}
    assert not inlay.exists(f"memory://{BUCKET}/tables/orders")
    functions.invoke("ingest", newer)
    assert functions.orders().scan().to_arrow().to_pydict() == {"other": [1]}


def test_a_store_that_is_down_leaves_the_message_in_the_queue(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.create_orders()
    functions.land()

    def down(*_: object, **__: object) -> None:
        raise StoreUnavailable("S3 does not answer")

    monkeypatch.setattr(MemoryStore, "get", down)
    # Every message of the batch failed, so the invocation does, and Lambda keeps them all.
    with pytest.raises(Exception, match="All records failed"):
        functions.replay("ingest.normal")
    assert functions.queues.sent == []


def test_dead_letters_that_cannot_be_sent_keep_the_message(functions: Functions) -> None:
    functions.create_orders()
    functions.land()
    functions.queues.broken = True
    failed = functions.replay("ingest.malformed")["batchItemFailures"]
    sent = [record["messageId"] for record in event("ingest.malformed")["Records"]]
    # The text is not landed here: it was taken back.
    assert [each["itemIdentifier"] for each in failed] == sent[:-2]
    assert functions.rows() == 100


def test_one_commit_serves_a_whole_batch(functions: Functions) -> None:
    before = functions.create_orders().version
    functions.land()
    functions.land("ingest/orders/second.parquet", ORDERS)
    functions.invoke("ingest", with_second_file(event("ingest.normal")))
    assert functions.rows() == 200
    assert functions.orders().version == before + 1


def test_a_message_with_something_left_to_try_is_not_buried_yet(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its two files is hopeless, the other's read fails this time."""
    functions.create_orders()
    functions.land()
    functions.land("ingest/orders/notes.parquet", b"just a text\n")
    malformed = [json.loads(r["body"]) for r in event("ingest.malformed")["Records"][5:]]
    both = event("ingest.normal")
    both["Records"][0]["body"] = json.dumps(
        {"Records": malformed[0]["Records"] + malformed[1]["Records"]}
    )
    read = MemoryStore.get_suffix

    def flaky(store: MemoryStore, key: str, length: int) -> object:
        if key == "ingest/orders/orders.parquet":
            raise StoreUnavailable("S3 does not answer")
        return read(store, key, length)

    with monkeypatch.context() as this_time:
        this_time.setattr(MemoryStore, "get_suffix", flaky)
        with pytest.raises(Exception, match="All records failed"):
            functions.invoke("ingest", both)
    assert functions.queues.sent == []
    functions.invoke("ingest", both)
    assert functions.rows() == 100
    assert functions.queues.errors == ["UnreadableFile"]


def test_a_fault_in_one_file_keeps_its_message_only_and_its_words_out_of_the_log(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    functions.create_orders()
    functions.land()
    functions.land("ingest/orders/second.parquet")
    read = MemoryStore.get_suffix

    def fault(store: MemoryStore, key: str, length: int) -> object:
        if key == "ingest/orders/second.parquet":
            raise ValueError("could not convert 'a secret'")
        return read(store, key, length)

    monkeypatch.setattr(MemoryStore, "get_suffix", fault)
    answer = functions.invoke("ingest", with_second_file(event("ingest.normal")))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "another"}]}
    assert functions.rows() == 100
    assert functions.queues.sent == []
    only_second = {"Records": with_second_file(event("ingest.normal"))["Records"][1:]}
    for alone in (bridged("ingest/orders/second.parquet"), only_second):
        with pytest.raises(Exception) as failed:
            functions.invoke("ingest", alone)
        printed = "".join(traceback.format_exception(failed.value)) + "".join(capfd.readouterr())
        assert "ValueError" in str(failed.value)
        assert "a secret" not in printed


def bridged(key: str) -> object:
    direct = event("ingest.eventbridge")
    direct["detail"]["object"]["key"] = key
    return direct


def with_second_file(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with another message, about `ingest/orders/second.parquet`."""
    (first,) = batch["Records"]
    body = first["body"].replace("ingest/orders/orders.parquet", "ingest/orders/second.parquet")
    return {"Records": [first, {**first, "messageId": "another", "body": body}]}


def test_the_folder_of_the_first_file_makes_a_column_of_the_table(functions: Functions) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    for at, folder in enumerate(("month=2", "month=3", "month=__HIVE_DEFAULT_PARTITION__", "x=1")):
        key = f"ingest/orders/{folder}/part-0.parquet"
        functions.invoke("ingest", landing_message(functions, few(3, 9 * at), key))
    functions.invoke("ingest", landing_message(functions, few(3, 99), "ingest/orders/month=may/a"))
    assert functions.queues.errors == ["SchemaMismatch"]  # not of the column's type
    assert functions.orders().schema.field("month").type == pa.int32()
    months = functions.orders().scan().to_arrow()["month"].to_pylist()
    assert sorted(months, key=str) == [2, 2, 2, 3, 3, 3, *[None] * 6]


@pytest.mark.parametrize("typed_as", ["refuse", "text"])
def test_a_default_says_what_the_folders_of_a_first_file_become(
    functions: Functions, typed_as: str
) -> None:
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    functions.set_variable("INLAY_TABLE_DEFAULTS", json.dumps({"ingest.folders": typed_as}))
    functions.invoke(
        "ingest", landing_message(functions, few(3), "ingest/orders/month=2/a.parquet")
    )
    if typed_as == "refuse":
        assert functions.queues.errors == ["SchemaMismatch"]
    else:
        assert functions.orders().scan().to_arrow()["month"].to_pylist() == ["2"] * 3


def dictionary_file(rows: int, text: str, *, nested: bool = False, beside: int = 0) -> bytes:
    """One text for every row: as small as the text, whatever the number of rows. `beside` are bytes of
    texts of their own."""
    codes = pa.array([0] * rows, pa.int32())
    column: pa.Array = pa.DictionaryArray.from_arrays(codes, pa.array([text]))
    if nested:
        of_text = pa.StructArray.from_arrays([column], ["of"])
        column = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), of_text)
    ids = pa.DictionaryArray.from_arrays(codes, pa.array([1]))
    own = [random.Random(n).randbytes(beside // rows).hex() for n in range(rows)]
    columns = {"id": ids.cast(pa.int64()), "text": column, "own": own}
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns), sink, compression="none", use_dictionary=["text", "text.list.element.of"]
    )
    return sink.getvalue()


def without_sizes(body: bytes) -> bytes:
    """The file as writers before 2024 wrote it: its footer does not say how much text a chunk has."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.tree[File.GROUPS]:
        for chunk in group[Group.COLUMNS]:
            chunk[Chunk.META].pop(Meta.SIZES, None)
    return body[: footer.start] + end_of_file(footer.tree)


@pytest.mark.parametrize("written", [bytes, without_sizes])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("rows", "beside"), [(10, 0), (60_000, 0), (10, 20_000_000), (60_000, 20_000_000)]
)
def test_a_small_file_that_decodes_to_gigabytes_is_refused(
    functions: Functions, rows: int, beside: int, nested: bool, written: Callable[[bytes], bytes]
) -> None:
    """It would come in by a copy, and then no function could rewrite it, nor erase a row of it."""
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    text = random.Random(rows).randbytes(50_000).hex()  # more than the end that is read at first
    body = written(dictionary_file(rows, text, nested=nested, beside=beside))
    assert len(body) > TAIL_BYTES
    assert (len(body) < 2_000_000) == (not beside)
    first = dictionary_file(1, "y", nested=nested)
    functions.invoke("ingest", landing_message(functions, first))
    functions.invoke("ingest", landing_message(functions, body, "ingest/orders/large.parquet"))
    refused = rows > 10  # 6 GB
    assert functions.queues.errors == ["UnsupportedFile"] * refused
    assert functions.rows() == 1 + rows * (not refused)


def test_of_a_large_file_without_sizes_only_dictionaries_are_read(functions: Functions) -> None:
    """It is copied on the server: what has to be looked at is not the file."""
    functions.set_variable("INLAY_AUTO_CREATE", "true")
    body = without_sizes(dictionary_file(20_000, "of every row", beside=40_000_000))
    reads: list[int] = []
    get = functions.store.get

    def counted(key: str, **asked: Any) -> Any:
        got = get(key, **asked)
        reads.append(len(got.body) if key.startswith("ingest/") else 0)
        return got

    functions.store.get = counted  # type: ignore[method-assign]
    functions.invoke("ingest", landing_message(functions, body))
    assert functions.rows() == 20_000
    assert sum(reads) < 10 * 2**20 < len(body) / 4

"""Adopting: what comes along, what is refused by name, and what a killed or hostile source leaves."""

from __future__ import annotations

import gzip
import json
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import (
    CorruptTable,
    InlayError,
    NotGranted,
    ObjectGone,
    SourceChanged,
    TableExists,
    Unpublishable,
    UnsupportedTable,
)
from inlay.format import keys
from inlay.format.schema import Primitive
from inlay.iceberg.avro import decode_avro, encode_avro
from inlay.iceberg.manifest import decode_list
from inlay.iceberg.source import SourceSpec
from inlay.ops.adopt.adopt import adopt as run
from inlay.ops.erase.request import advance_erasures
from inlay.storage.s3 import S3Store
from inlay.storage.wrapped import WrappedStore
from inlay.table import Table

from .histories import History
from .iceberg_deletes import Iceberg, on_disk
from .test_adopt_delta import PLAIN, Delta

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


def adopt(source: Path | str, into: Path | str, **options: Any) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return inlay.adopt(source, into, **options)


def rows_of(table: Table) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().to_pylist()))


def rows(first: int, last: int) -> pa.Table:
    return pa.table({"id": list(range(first, last)), "s": [str(i) for i in range(first, last)]})


def published(root: Path, *, files: int = 2, format: str = "v3", **options: Any) -> Table:
    """An Iceberg table: one of Inlay's, which it has published."""
    t = inlay.create(f"file://{root}", SCHEMA, **options)
    for n in range(files):
        t.append(rows(100 * n, 100 * n + 100))
    t.publish(format=format)
    return t


def edited(root: Path, edit: Callable[[dict[str, Any]], None]) -> str:
    """The metadata file of the table in `root`, changed by `edit`."""
    version = (root / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{root}/metadata/v{version}.metadata.json")
    edit(table.found)
    return table.write()


@pytest.mark.parametrize("seed", range(6))
def test_what_inlay_publishes_is_adopted_equal(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(8):
        history.step()
    try:
        history.table.publish(format="v3" if seed % 2 else "v2")
    except InlayError:
        return  # not an Iceberg table
    made = adopt(history.root, tmp_path / "adopted", copy=seed % 3 == 0)
    assert rows_of(made) == rows_of(history.table), history.log
    assert made.schema.names == history.table.schema.names
    assert not made.maintain.verify().findings and made.version == 1
    # It is a table like any other.
    made.append(history.rows(5))
    made.delete("id >= 0", mode="vector")
    assert made.count() == 0


def test_columns_partitions_ids_and_deletes_come_along(tmp_path: Path) -> None:
    t = published(tmp_path / "a", primary_key="id", partition_by=["bucket(4, id)"])
    t.delete("id IN (3, 5, 107)")
    t.publish()
    made = adopt(tmp_path / "a", tmp_path / "b")
    assert [(f.id, f.name) for f in made.snapshot.schema.fields] == [
        (f.id, f.name) for f in t.snapshot.schema.fields
    ]
    files, markers = made.inspect.entries()
    assert all(f.adopted and f.partition and f.etag for f in files)
    assert markers and {m.file for m in markers} <= {f.key for f in files}
    assert made.count() == t.count() == 197
    assert made.scan(where="id = 3").explain().files_read < len(files)
    assert made.inspect.history().to_pylist()[0]["operation"] == "adopt"


@pytest.mark.parametrize("files", [3, 9])
def test_requests_are_one_for_each_file_and_few_beside(tmp_path: Path, files: int) -> None:
    published(tmp_path / "a", files=files)
    ctx = inlay.connect(f"file://{tmp_path}/b")
    before = ctx.store.usage()
    run(ctx, f"file://{tmp_path}/a")
    used = ctx.store.usage() - before
    assert dict(used.requests) == {
        "head": 1,  # is there a table?
        "list": 4,  # archives? A Delta log? Metadata of the hint's version, of the next?
        "get": files + 4,  # footers; version hint, metadata, manifest list, manifest
        "put": 2,  # the pointer; once under a condition that cannot hold, to learn that it is kept
    }


def test_a_table_that_is_there_is_not_touched(tmp_path: Path) -> None:
    published(tmp_path / "a")
    t = inlay.create(f"file://{tmp_path}/b", SCHEMA)
    with pytest.raises(TableExists):
        adopt(tmp_path / "a", tmp_path / "b")
    assert inlay.open(t.uri).version == 1


@pytest.mark.parametrize("into", ["a", "a/inlay", "."])
def test_a_table_within_the_sources_folder_is_refused(tmp_path: Path, into: str) -> None:
    """The source's maintenance would delete its objects, and publishing it would take the source's hint."""
    published(tmp_path / "in" / "a")
    metadata = edited(tmp_path / "in" / "a", lambda found: None)
    (tmp_path / "in" / "a" / keys.POINTER).unlink()
    for archive in (tmp_path / "in" / "a" / "manifest").glob("v*"):
        archive.unlink()
    with pytest.raises(InlayError, match="within one folder"):
        adopt(metadata, (tmp_path / "in" / into).resolve())


def test_an_empty_table_is_adopted_empty(tmp_path: Path) -> None:
    published(tmp_path / "a", files=0)
    made = adopt(tmp_path / "a", tmp_path / "b")
    assert made.count() == 0 and made.schema.names == ["id", "s"]
    made.append(rows(0, 3))
    assert made.count() == 3


# -- the source lives on --------------------------------------------------------------------------


def test_a_file_that_the_source_deletes_is_missed_by_name_but_not_after_a_copy(
    tmp_path: Path,
) -> None:
    published(tmp_path / "a", format="v2")
    with pytest.warns(UserWarning, match="VACUUM"):
        made = inlay.adopt(tmp_path / "a", tmp_path / "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = inlay.adopt(tmp_path / "a", tmp_path / "c", copy=True, properties={"my.x": "1"})
    [first, *_] = (tmp_path / "a" / "data").rglob("*.parquet")
    body = first.read_bytes()
    first.write_bytes(body + body)
    with pytest.raises(SourceChanged):
        made.scan().to_arrow()
    first.unlink()
    with pytest.raises(ObjectGone, match="not the table's own"):
        made.refresh().scan().to_arrow()
    assert own.count() == 200 == len(own.scan().to_arrow())
    assert own.properties["my.x"] == "1"
    assert all(f.is_foreign and not f.adopted for f in own.inspect.entries()[0])


def test_maintenance_and_erasure_leave_the_sources_files(tmp_path: Path) -> None:
    source = published(tmp_path / "a")
    made = adopt(tmp_path / "a", tmp_path / "b")
    made.delete("id < 150", mode="rewrite")
    made.maintain.compact()
    made.maintain.expire(days=0, min_versions=1)
    made.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert made.count() == 50
    assert source.scan().to_arrow().num_rows == 200


@pytest.mark.parametrize("which", range(3))
def test_a_file_that_the_source_deletes_keeps_no_other_from_being_erased_or_packed(
    tmp_path: Path, which: int
) -> None:
    """Until its entry is removed, which whoever lost it has to ask for."""
    published(tmp_path / "a", files=3)
    made = adopt(tmp_path / "a", tmp_path / "b")
    made.delete("id IN (7, 107, 207)", mode="erase", request_id="case-1")
    keys = [f.key for f in made.refresh().inspect.entries()[0]]
    Path(keys[which].removeprefix("file://")).unlink()
    advanced = advance_erasures(made._ctx)
    [failure] = advanced.failures
    assert failure.error.key == keys[which] and "--file" in failure.error.next_step
    assert _keys_of(made.refresh()) & set(keys) == {keys[which]}
    waits = made.maintain.collect_garbage(
        grace=timedelta(0), life_seconds=0, clock_margin_seconds=0
    )
    assert keys[which] in str(waits.waiting) and not waits.receipts
    packed = made.maintain.compact()
    assert keys[which] in str(packed.failures) or not packed.failures
    made.delete("TRUE", file=keys[which])
    made.maintain.compact()
    advance_erasures(made._ctx)
    done = made.refresh().maintain.collect_garbage(
        grace=timedelta(0), life_seconds=0, clock_margin_seconds=0
    )
    assert done.receipts, done.waiting
    assert made.refresh().count() == len(made.scan().to_arrow()) == 198


def test_an_erasure_ends_with_a_receipt_and_leaves_the_sources_files(tmp_path: Path) -> None:
    source = published(tmp_path / "a")
    made = adopt(tmp_path / "a", tmp_path / "b")
    before = {f.key for f in made.inspect.entries()[0]}
    made.delete("id = 7", mode="erase")
    advanced = advance_erasures(made._ctx)
    # Whose owner has to erase the row there.
    assert set(advanced.foreign) == {k for k in before if k not in _keys_of(made.refresh())}
    done = made.maintain.collect_garbage(grace=timedelta(0), life_seconds=0, clock_margin_seconds=0)
    [receipt] = done.receipts
    assert made.refresh().count() == 199 and not made.maintain.verify().findings
    assert "originals of adopted files" in str(json.loads(_read(tmp_path / "b"))["out_of_reach"])
    assert source.scan().to_arrow().num_rows == 200 and receipt


def _keys_of(t: Table) -> set[str]:
    return {f.key for f in t.inspect.entries()[0]}


def _read(root: Path) -> bytes:
    [receipt] = (root / "erasure").glob("*.json")
    body = receipt.read_bytes()
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


# -- hostile, damaged, unknown ---------------------------------------------------------------------


def _type(kind: Any) -> Callable[[dict[str, Any]], None]:
    def edit(found: dict[str, Any]) -> None:
        found["schemas"][-1]["fields"][1]["type"] = kind

    return edit


def _set(**members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found.update({k.replace("_", "-"): v for k, v in members.items()})


def _list_at(path: str) -> Callable[[dict[str, Any]], None]:
    def edit(found: dict[str, Any]) -> None:
        for snapshot in found["snapshots"]:
            snapshot["manifest-list"] = path

    return edit


DEEP: Any = "int"
for n in range(200):
    DEEP = {"type": "list", "element-id": 1_000 + n, "element-required": False, "element": DEEP}


@pytest.mark.parametrize(
    ("edit", "error", "says"),
    [
        (_type("variant"), UnsupportedTable, "'s' has Iceberg's type 'variant'"),
        (_type("geometry"), UnsupportedTable, "geometry"),
        (_type("decimal(60, 2)"), UnsupportedTable, "decimal"),
        (_type("int"), InlayError, "column 's' is string"),
        (_type({"type": "union"}), CorruptTable, "unknown type"),
        (_type(DEEP), UnsupportedTable, "nested too deeply"),
        (_set(format_version=4), UnsupportedTable, "version 4"),
        (_set(encryption_keys=[{"key-id": "k"}]), UnsupportedTable, "encrypted"),
        (_set(current_snapshot_id=99), CorruptTable, "snapshot"),
        (_set(last_column_id=1), CorruptTable, "beyond its last"),
        (_set(schemas=None, schema=None), CorruptTable, "cannot be read"),
        (_list_at("s3://other/secret.avro"), UnsupportedTable, "s3://other"),
        (_list_at("file:///etc/passwd"), NotGranted, "outside its own folder"),
        (_list_at("metadata/../../../etc/passwd"), UnsupportedTable, "'..'"),
        (_list_at("https://host/x.avro"), UnsupportedTable, "https"),
        (_list_at("metadata/none.avro"), InlayError, "is gone"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name_and_nothing_is_made(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], error: type[InlayError], says: str
) -> None:
    published(tmp_path / "a")
    metadata = edited(tmp_path / "a", edit)
    with pytest.raises(error) as refused:
        adopt(metadata, tmp_path / "b")
    assert says in str(refused.value) and refused.value.next_step
    assert "inlay verify" not in refused.value.next_step  # which knows no table of others
    assert not (tmp_path / "b" / keys.POINTER).exists()


def test_files_outside_the_folder_need_a_grant(tmp_path: Path) -> None:
    published(tmp_path / "a")
    landed = tmp_path / "elsewhere.parquet"
    t = inlay.open(f"file://{tmp_path}/a")
    fields = [f.with_metadata({"PARQUET:field_id": str(n + 1)}) for n, f in enumerate(t.schema)]
    pq.write_table(rows(500, 510).cast(pa.schema(fields)), landed)
    t.ingest([landed.as_uri()], adopt=True)
    t.publish()
    with pytest.raises(NotGranted, match="outside its own folder"):
        adopt(tmp_path / "a", tmp_path / "b")
    pattern = f"{landed}"
    assert adopt(tmp_path / "a", tmp_path / "b", adopt_from=pattern).count() == 210


def test_a_column_dropped_and_added_again_is_another_column(tmp_path: Path) -> None:
    published(tmp_path / "a")

    def edit(found: dict[str, Any]) -> None:
        fields = found["schemas"][-1]["fields"]
        fields[1] = {**fields[1], "id": 3, "initial-default": "new"}
        found["last-column-id"] = 3

    made = adopt(edited(tmp_path / "a", edit), tmp_path / "b")
    assert set(made.scan(columns=["s"]).to_arrow()["s"].to_pylist()) == {"new"}
    assert made.scan(where="s = '7'").to_arrow().num_rows == 0
    assert not made.maintain.verify().findings


def test_files_that_are_not_what_the_source_says_are_refused(tmp_path: Path) -> None:
    published(tmp_path / "a")
    [first, *_] = (tmp_path / "a" / "data").rglob("*.parquet")
    pq.write_table(rows(0, 7), first)
    with pytest.raises(InlayError, match="its table says"):
        adopt(tmp_path / "a", tmp_path / "b")
    first.unlink()
    with pytest.raises(InlayError, match="no longer exists"):
        adopt(tmp_path / "a", tmp_path / "b")


def _published_with_deletes(root: Path, make: Callable[[Iceberg, list[Any]], list[Any]]) -> str:
    """A published table with the deletes that `make` returns for its data files."""
    published(root, format="v3", partition_by=["truncate(100, id)"])
    version = (root / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{root}/metadata/v{version}.metadata.json")
    table.add_deletes(make(table, table.data_files()))
    return table.write()


def _keys(keys: pa.Table, ids: list[int]) -> Callable[[Iceberg, list[Any]], list[Any]]:
    return lambda table, files: [(table.keys(keys, ids, files[0][0]), *files[0][1:])]


def _two_vectors(table: Iceberg, files: list[Any]) -> list[Any]:
    name = files[0][0]["file_path"]
    made = [table.vectors({name: [n]}, {name: files[0][0]})[0] for n in (1, 2)]
    return [(each, *files[0][1:]) for each in made]


def _elsewhere(table: Iceberg, files: list[Any]) -> list[Any]:
    (first, *how), (second, *_) = files
    return [(table.positions({second["file_path"]: [1]}, first), *how)]


def _vector_elsewhere(table: Iceberg, files: list[Any]) -> list[Any]:
    (first, *how), (second, *_) = files
    name = second["file_path"]
    return [(table.vectors({name: [1]}, {name: first})[0], *how)]


def _beyond(table: Iceberg, files: list[Any]) -> list[Any]:
    first, *how = files[0]
    return [(table.positions({first["file_path"]: [100]}, first), *how)]


def _miscounted(table: Iceberg, files: list[Any]) -> list[Any]:
    first, *how = files[0]
    return [({**table.positions({first["file_path"]: [3]}, first), "record_count": 2}, *how)]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_keys(pa.table({"x": pa.array([1])}), [9]), "by column 9, which is nested or was dropped"),
        (_keys(pa.table({"s": pa.array([1])}), [2]), None),
        (_two_vectors, "two deletion vectors"),
        (_elsewhere, "of another partition"),
        (_vector_elsewhere, "of another partition"),
        (_beyond, "beyond the end"),
        (_miscounted, "its manifest says 2"),
    ],
)
def test_deletes_that_cannot_be_carried_are_refused_by_name(
    tmp_path: Path, make: Callable[[Iceberg, list[Any]], list[Any]], says: str | None
) -> None:
    metadata = _published_with_deletes(tmp_path / "a", make)
    if says is None:  # numbers as texts: Arrow's cast is exact
        assert adopt(metadata, tmp_path / "b").count() == 199
        return
    with pytest.raises(InlayError) as refused:
        adopt(metadata, tmp_path / "b")
    assert says in str(refused.value) and refused.value.next_step
    assert not inlay.exists(tmp_path / "b")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0123456789")),
        (pa.decimal128(30, 0), Decimal("123456789012345678901234567891")),
        (pa.decimal128(9, 2), Decimal("0.05")),
        (pa.binary(3), b"\x00\xff\x01"),
        (pa.time64("us"), time(23, 59, 59, 999_999)),
        (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_partition_values_of_metadata_are_exact(
    tmp_path: Path, kind: pa.DataType, value: object
) -> None:
    """A decimal of more digits than Python's default is not rounded."""
    schema = pa.schema([("id", pa.int64()), ("p", kind)])
    t = inlay.create(f"file://{tmp_path}/a", schema, partition_by=["p"])
    t.append(pa.table({"id": [1, 2], "p": pa.array([value, None], kind)}))
    t.publish()
    expected = rows_of(t)
    assert rows_of(adopt(tmp_path / "a", tmp_path / "b")) == expected
    made = adopt(_without(tmp_path / "a", "p").metadata, tmp_path / "c", copy=True)
    assert rows_of(made) == expected


@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
def test_a_column_that_stands_only_in_metadata_comes_along(tmp_path: Path, copy: bool) -> None:
    """As Iceberg tables made from Hive's have them."""
    t = inlay.create(f"file://{tmp_path}/a", SCHEMA, partition_by=["s"])
    t.append(pa.table({"id": [1, 2, 3, 4], "s": ["x", "x", "y", None]}))
    t.delete("id = 2", mode="vector")
    t.publish()
    table = _without(tmp_path / "a", "s")
    made = adopt(table.metadata, tmp_path / "b", copy=copy)
    assert sorted(map(str, made.scan().to_arrow().to_pylist())) == [
        "{'id': 1, 's': 'x'}",
        "{'id': 3, 's': 'y'}",
        "{'id': 4, 's': None}",
    ]
    assert made.scan(where="s = 'y'").explain().files_read == 1
    assert not made.maintain.verify().findings


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("float", 0.1, 0.10000000149011612),
        ("float", 1e-45, 1.401298464324817e-45),
        ("double", 0.1, 0.1),
    ],
)
def test_defaults_of_floats_are_rounded_as_the_file_would_have_them(
    tmp_path: Path, kind: str, default: float, value: float
) -> None:
    def edit(found: dict[str, Any]) -> None:
        field = {"id": 3, "name": "f", "type": kind, "required": False, "initial-default": default}
        found["schemas"][-1]["fields"].append(field)
        found["last-column-id"] = 3

    published(tmp_path / "a", files=1)
    made = adopt(edited(tmp_path / "a", edit), tmp_path / "b")
    assert set(made.scan().to_arrow()["f"].to_pylist()) == {value}


def _partitioned_by_float(root: Path) -> Iceberg:
    """A table whose rows are all of id 1, in partitions NaN, -0.0 and 0.0 of a column of doubles."""
    values = (float("nan"), -0.0, 0.0)
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64()), ("f", pa.float64())])
    t = inlay.create(f"file://{root}", schema, partition_by=["p"])
    t.append(pa.table({"id": [1, 1, 1], "p": [0, 1, 2], "f": values}, schema=schema))
    t.publish(format="v2")
    version = (root / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{root}/metadata/v{version}.metadata.json")
    for spec in table.found["partition-specs"]:
        for each in spec["fields"]:
            each["source-id"] = 3
    for manifest in decode_list(on_disk(table.snapshot["manifest-list"]).read_bytes()):
        path = on_disk(manifest.path)
        avro = decode_avro(path.read_bytes())
        text = json.loads(avro.metadata["avro.schema"])
        entry = next(f["type"] for f in text["fields"] if f["name"] == "data_file")
        [kind] = next(f for f in entry["fields"] if f["name"] == "partition")["type"]["fields"]
        kind["type"] = ["null", "double"]
        for record in avro.records:
            found = record["data_file"]["partition"]
            record["data_file"]["partition"] = {name: values[found[name]] for name in found}
        own = {k: v for k, v in avro.metadata.items() if not k.startswith("avro.")}
        path.write_bytes(encode_avro(text, avro.records, metadata=own, sync=bytes(16)))
    return table


@pytest.mark.parametrize("kind", ["positions", "vectors", "keys"])
@pytest.mark.parametrize("which", range(3))
def test_deletes_in_partitions_of_nan_and_of_both_zeros(
    tmp_path: Path, kind: str, which: int
) -> None:
    """NaN is one partition, though NaN equals nothing; -0.0 and 0.0 are two, though they are equal."""
    table = _partitioned_by_float(tmp_path / "a")

    def is_it(value: float) -> bool:
        return repr(value) == ("nan", "-0.0", "0.0")[which]

    [(file, *how)] = [f for f in table.data_files() if is_it(*f[0]["partition"].values())]
    name = file["file_path"]
    if kind == "positions":
        delete = table.positions({name: [0]}, file)
    elif kind == "vectors":
        table.upgrade(3)
        [delete] = table.vectors({name: [0]}, {name: file})
    else:
        delete = table.keys(pa.table({"id": [1]}), [1], file)
    table.add_deletes([(delete, *how)])
    left = adopt(table.write(), tmp_path / "b").scan().to_arrow()["f"].to_pylist()
    assert len(left) == 2 and not any(map(is_it, left))


@pytest.mark.parametrize("kind", ["positions", "vectors", "keys"])
def test_deletes_in_partitions_of_a_decimal_that_was_widened_since(
    tmp_path: Path, kind: str
) -> None:
    """The same value has more bytes in manifests from then on."""
    decimal = pa.decimal128(9, 2)
    schema = pa.schema([("id", pa.int64()), ("p", decimal)])
    t = inlay.create(f"file://{tmp_path}/a", schema, partition_by=["p"])
    values = [Decimal("-1.05"), Decimal("7.00")]
    t.append(pa.table({"id": [1, 1], "p": pa.array(values, decimal)}))
    t.publish(format="v3" if kind == "vectors" else "v2")
    version = (tmp_path / "a" / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{tmp_path}/a/metadata/v{version}.metadata.json")
    table.found["schemas"][-1]["fields"][1]["type"] = "decimal(18, 2)"
    (file, avro, spec), *_ = [
        f for f in table.data_files() if next(iter(f[0]["partition"].values()))[0] == 0xFF
    ]
    name = file["file_path"]
    [(field, value)] = file["partition"].items()
    like = {**file, "partition": {field: b"\xff" * (8 - len(value)) + value}}
    [column] = avro["fields"]
    wide = {"type": "fixed", "size": 8, "name": "wide", "logicalType": "decimal"}
    wide |= {"precision": 18, "scale": 2}
    how = ({**avro, "fields": [{**column, "type": ["null", wide]}]}, spec)
    if kind == "positions":
        delete = table.positions({name: [0]}, like)
    elif kind == "vectors":
        [delete] = table.vectors({name: [0]}, {name: like})
    else:
        delete = table.keys(pa.table({"id": [1]}), [1], like)
    table.add_deletes([(delete, *how)])
    left = adopt(table.write(), tmp_path / "b").scan().to_arrow()["p"].to_pylist()
    assert left == [Decimal("7.00")]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_zero_that_stands_in_metadata_alone_keeps_its_sign(kind: str) -> None:
    spec = SourceSpec(0, 1, ())
    assert math.copysign(1, cast(float, spec.constant(-0.0, Primitive(kind)))) == -1
    assert spec.constant(None, Primitive(kind)) is None


def test_manifests_in_an_unknown_codec_are_refused_by_name(tmp_path: Path) -> None:
    published(tmp_path / "a", files=1)
    [listed] = (tmp_path / "a" / "metadata").glob("inlay-l-*.avro")
    listed.write_bytes(listed.read_bytes().replace(b"\x0edeflate", b"\x12zstandard"))
    with pytest.raises(UnsupportedTable, match="'zstandard'") as refused:
        adopt(tmp_path / "a", tmp_path / "b")
    assert "deflate" in str(refused.value)
    assert not inlay.exists(tmp_path / "b")


def _without(root: Path, name: str) -> Iceberg:
    """The published table, whose files have a column no longer."""
    version = (root / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{root}/metadata/v{version}.metadata.json")

    def without(record: dict[str, Any]) -> None:
        path = Path(record["file_path"].removeprefix("file://"))
        if path.suffix == ".parquet":
            found = pq.read_table(path)
            pq.write_table(found.drop_columns([name]), path)
            record["file_size_in_bytes"] = path.stat().st_size

    table.edit_files(without)
    return table


@pytest.mark.parametrize(
    ("spec", "values", "fits"),
    [
        ("s", ["xa", "xa"], True),
        ("s", ["xa", "xb"], False),
        ("truncate(1, s)", ["xa", "xb"], True),
        ("truncate(1, s)", ["xa", "ya"], False),
        ("truncate(1, s)", ["xa", None], False),
        ("bucket(2, s)", ["xa", "xa"], True),
    ],
)
def test_rows_of_another_partition_are_refused_though_the_footer_does_not_show_them(
    tmp_path: Path, spec: str, values: list[str | None], fits: bool
) -> None:
    """Some of Iceberg's readers take the partition's value, and all leave files out by it."""
    t = inlay.create(f"file://{tmp_path}/a", SCHEMA, partition_by=[spec])
    t.append(pa.table({"id": [1, 2], "s": ["xa", "xa"]}))
    t.publish()
    version = (tmp_path / "a" / "metadata" / "version-hint.text").read_text()
    table = Iceberg(f"file://{tmp_path}/a/metadata/v{version}.metadata.json")

    def other(record: dict[str, Any]) -> None:
        path = Path(record["file_path"].removeprefix("file://"))
        found = pq.read_table(path)
        found = found.set_column(1, found.schema.field(1), pa.array(values, pa.string()))
        pq.write_table(found, path, write_statistics=False)
        record["file_size_in_bytes"] = path.stat().st_size

    table.edit_files(other)
    if fits:
        made = adopt(table.metadata, tmp_path / "b")
        assert made.scan().to_arrow()["s"].to_pylist() == values
        return
    with pytest.raises(CorruptTable, match="rows of another partition"):
        adopt(table.metadata, tmp_path / "b")
    assert not inlay.exists(tmp_path / "b")


def test_a_table_in_another_store_is_refused(tmp_path: Path) -> None:
    t = inlay.create("memory://adopt/tables/a", SCHEMA)
    t.append(rows(0, 30))
    t.delete("id < 10", mode="vector")
    t.publish()
    assert rows_of(adopt("memory://adopt/tables/a", "memory://adopt/tables/b")) == rows_of(t)
    assert rows_of(adopt("memory://adopt/tables/a", "memory://adopt2/b", copy=True)) == rows_of(t)
    with pytest.raises(UnsupportedTable, match="same store"):
        adopt("memory://adopt/tables/a", tmp_path / "b")


def _changed(value: Any, pick: random.Random) -> Any:
    """JSON with something in it changed, dropped or replaced."""
    odd: list[Any] = [None, -1, 0, "", [], {}, 2**70, "x", True, 1.5]
    if isinstance(value, dict) and value:
        name = pick.choice(list(value))
        if pick.random() < 0.3:
            return {k: v for k, v in value.items() if k != name}
        return {**value, name: _changed(value[name], pick)}
    if isinstance(value, list) and value and pick.random() < 0.9:
        at = pick.randrange(len(value))
        return [*value[:at], _changed(value[at], pick), *value[at + 1 :]]
    return pick.choice(odd)


@pytest.mark.parametrize("seed", range(3))
def test_changed_metadata_is_refused_or_read(tmp_path: Path, seed: int) -> None:
    """Whatever is changed in metadata or vectors, the answer is a table or an error of ours."""
    pick = random.Random(seed)
    t = published(tmp_path / "a", partition_by=["bucket(2, id)"])
    t.delete("id % 2 = 0", mode="vector")
    t.publish()
    delta = Delta(tmp_path / "d", PLAIN)
    vector = delta.vector("u", range(20))
    delta.commit({"add": delta.add("f.parquet", rows(0, 50), deletionVector=vector)})
    for n in range(30):
        root = tmp_path / pick.choice("ad")
        files = [
            p
            for p in root.rglob("*")
            if p.parent.name in ("metadata", "_delta_log") or p.suffix in (".bin", ".puffin")
        ]
        path = pick.choice([p for p in files if p.is_file()])
        body = path.read_bytes()
        if path.suffix == ".json" and pick.random() < 0.8:
            lines = body.decode().splitlines()
            at = pick.randrange(len(lines))
            lines[at] = json.dumps(_changed(json.loads(lines[at]), pick))
            path.write_text("\n".join(lines))
        else:
            changed = bytearray(body)
            changed[pick.randrange(len(changed))] = pick.randrange(256)
            path.write_bytes(changed)
        try:
            adopt(root, tmp_path / f"in{n}")
            inlay.open(f"file://{tmp_path}/in{n}").scan().to_arrow()
        except InlayError as error:
            assert error.next_step, error
        path.write_bytes(body)


def test_row_ids_of_the_source_are_not_published(tmp_path: Path) -> None:
    """Iceberg Java's compaction writes them into files as a column; readers prefer it."""
    t = published(tmp_path / "a", files=1)
    [file] = (tmp_path / "a" / "data").rglob("*.parquet")
    found = pq.read_table(file)
    column = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"})
    pq.write_table(found.append_column(column, [list(range(7, 107))]), file)
    source = Iceberg(f"{t.uri}/metadata/v{t.refresh().version}.metadata.json")
    source.edit_files(lambda each: each.update(file_size_in_bytes=file.stat().st_size))
    metadata = source.write()
    for copy in (False, True):
        adopted = adopt(metadata, tmp_path / f"b{copy}", copy=copy)
        assert adopted.scan().to_arrow() == found
        if not copy:
            with pytest.raises(Unpublishable, match="has row ids of the table it comes from"):
                adopted.publish(format="v3")
            continue
        assert adopted.publish(format="v3").published
        [[stored], _] = adopted.refresh().inspect.entries()
        written = pq.read_schema(tmp_path / f"b{copy}" / stored.key)
        ids = [field.metadata[b"PARQUET:field_id"] for field in written]
        assert b"2147483540" not in ids


# -- on S3 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
@pytest.mark.parametrize("kind", ["v3", "v2", "delta"])
def test_a_table_on_s3_is_adopted_there(
    tmp_path: Path, s3_store: S3Store, kind: str, copy: bool
) -> None:
    """Once it is copied, its owner may remove the source."""
    source, into = (f"s3://{s3_store.bucket}/tables/{name}" for name in "ab")
    if kind == "delta":
        delta = Delta(tmp_path, PLAIN)
        delta.commit({"add": delta.add("a.parquet", rows(0, 9))})
        for path in filter(Path.is_file, tmp_path.rglob("*")):
            s3_store.put(f"tables/a/{path.relative_to(tmp_path)}", path.read_bytes())
        wanted = sorted(map(str, rows(0, 9).to_pylist()))
    else:
        t = inlay.create(source, SCHEMA)
        t.append(rows(0, 100))
        t.append(rows(100, 200))
        t.delete("id % 3 = 0")
        t.publish(format=kind)
        wanted = rows_of(t.refresh())
    adopted = adopt(source, into, copy=copy)
    assert rows_of(adopted) == wanted
    assert adopted.maintain.verify(depth="pages").errors == ()
    if copy:
        assert not s3_store.delete([found.key for found in s3_store.list("tables/a/")])
        assert rows_of(inlay.open(into)) == wanted
    adopted.delete("id < 5")
    adopted.append(rows(0, 2))
    third = adopt_published(adopted, f"{into}-again", f"{s3_store.bucket}/tables/*")
    assert rows_of(third) == rows_of(adopted.refresh())


def adopt_published(table: Table, into: str, allowed: str) -> Table:
    """What engines see of a table, unless it has files that may not be touched and lack its ids."""
    try:
        table.publish(format="v3")
    except Unpublishable as error:
        assert "it is adopted in place and lacks the table's field ids" in error.message
        return table
    return adopt(table.uri, into, copy=True, adopt_from=[allowed])


# -- killed ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ended here."""


class Dying(WrappedStore):
    """A store that ends the process at its request number `at`, before it or after it."""

    def __init__(self, store: Any, at: int, landed: bool) -> None:
        super().__init__(store)
        self.left = at
        self.landed = landed

    def _count(self, call: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0 and not self.landed:
            raise Killed
        answer = call()
        if self.left == 0:
            raise Killed
        return answer

    def put(self, key: str, body: Any, **options: Any) -> Any:
        return self._count(lambda: super(Dying, self).put(key, body, **options))

    def copy(self, *args: Any, **options: Any) -> Any:
        return self._count(lambda: super(Dying, self).copy(*args, **options))

    def get_suffix(self, *args: Any, **options: Any) -> Any:
        return self._count(lambda: super(Dying, self).get_suffix(*args, **options))


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
def test_killed_at_each_request_there_is_the_whole_table_or_none(
    tmp_path: Path, landed: bool, copy: bool
) -> None:
    t = published(tmp_path / "a")
    t.delete("id % 2 = 0", mode="vector")
    t.publish()
    for at in range(1, 60):
        into = f"file://{tmp_path}/b{at}"
        ctx = inlay.connect(into)
        store = Dying(ctx.store, at, landed)
        try:
            run(replace(ctx, store=store), f"file://{tmp_path}/a", copy=copy)
        except Killed:
            if inlay.exists(into):
                assert rows_of(inlay.open(into)) == rows_of(t)
            else:
                assert rows_of(adopt(tmp_path / "a", into, copy=copy)) == rows_of(t)
            continue
        assert rows_of(inlay.open(into)) == rows_of(t)
        return
    raise AssertionError("more than 60 requests")


def test_the_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from inlay.cli.app import app

    published(tmp_path / "a")
    ran = CliRunner().invoke(
        app, ["adopt", str(tmp_path / "a"), "--into", str(tmp_path / "b"), "--json"]
    )
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert (found["files"], found["rows"], found["version"]) == (2, 200, 1)
    assert any("VACUUM" in n for n in found["notes"])

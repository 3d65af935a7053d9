"""What a footer says beside statistics: pairs, their names, the writer's name, the schema's metadata."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay.ops.maintain.rewrite_file as rewriting
from inlay.format.predicate import (
    And,
    Comparison,
    In,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
)
from inlay.format.schema import Primitive
from inlay.ops.commit.driver import commit
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.erase.last_look import WITHHELD
from inlay.parquet.footer.fields import Chunk, File, Group, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES, bloom_length
from inlay.parquet.footer.thrift import (
    STRUCT,
    Items,
    Struct,
    binary,
    unpack,
)
from inlay.plan.change import Change, SetProperties
from inlay.plan.pruning.literals import texts_of

from .oracle import Secret, find
from .people import NAME, WHO, People, ids_with, is_named, rows
from .test_last_look import land
from .test_receipt import receipt

# In JSON a letter beyond ASCII is escaped.
ODD = "zz-Zoë-Ünlü-7d1f"


@pytest.fixture(autouse=True)
def by_surgery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files would be written as a whole, without any pair."""
    real = rewriting.choose

    def choose(*args: object, **options: object) -> object:
        if not isinstance(options["surgery"], str | None):
            options["strategy"] = "surgery"
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rewriting, "choose", choose)


def written(table: pa.Table, pairs: dict[str, str], *, created_by: str = "") -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=3)
        writer.add_key_value_metadata(pairs)
    body = sink.getvalue()
    return with_footer(body, {File.CREATED_BY: created_by.encode()}) if created_by else body


def with_footer(body: bytes, fields: Struct) -> bytes:
    """The file with these fields in its footer."""
    footer = decode_footer(body, file_size=len(body))
    return body[: footer.start] + end_of_file({**footer.tree, **fields})


def with_unknown(place: str, name: str, table: pa.Table) -> bytes:
    """A field that no version of the format defines, in the first row group or in the footer itself.
    32767 is where the format lets extensions be: they repeat bounds of every row group."""
    said = {binary(32767): b"\x01\x00" + name.encode() + b"\x00"}
    body = written(table, {})
    if place == "file":
        return with_footer(body, said)
    tree = decode_footer(body, file_size=len(body)).tree
    first, *others = tree[File.GROUPS]
    chunk, *columns = first[Group.COLUMNS]
    meta = chunk[Chunk.META]
    match place:
        case "group":
            first = {**first, **said}
        case "chunk":
            chunk = {**chunk, **said}
        case "metadata":
            chunk = {**chunk, Chunk.META: {**meta, **said}}
        case "statistics":
            stats = {**unpack(meta[Meta.STATISTICS]), **said}
            chunk = {**chunk, Chunk.META: {**meta, Meta.STATISTICS: stats}}
    first = {**first, Group.COLUMNS: Items(STRUCT, [chunk, *columns])}
    return with_footer(body, {File.GROUPS: Items(STRUCT, [first, *others])})


def named(name: str, ids: list[int]) -> pa.Table:
    table = rows(ids)
    values = [name if n == NAME else n for n in table["name"].to_pylist()]
    return table.set_column(1, "name", pa.array(values))


def attributes(name: str, table: pa.Table) -> bytes:
    frame = table.select(["id", "name"]).to_pandas()
    frame.attrs = {"requested_by": name, "more": {"of": [name]}}
    with_pandas = pa.Table.from_pandas(frame).schema.metadata
    return written(table.replace_schema_metadata(with_pandas), {})


def metadata_within(name: str, table: pa.Table) -> bytes:
    """Metadata of a field within a struct in a list."""
    note = pa.field("note", pa.string(), metadata={"example": json.dumps([name])})
    kind = pa.list_(pa.struct([note, ("at", pa.int64())]))
    at = table.schema.get_field_index("visits")
    return written(table.set_column(at, "visits", table["visits"].cast(kind)), {})


def filtered(table: pa.Table, pairs: dict[str, str]) -> bytes:
    """Bloom filters of one block, with every bit set: they may hold any value."""
    sink = io.BytesIO()
    options = {"name": {"ndv": 1, "fpp": 0.5}}
    with pq.ParquetWriter(sink, table.schema, bloom_filter_options=options) as writer:
        writer.write_table(table, row_group_size=3)
        writer.add_key_value_metadata(pairs)
    body = bytearray(sink.getvalue())
    for group in decode_footer(body, file_size=len(body)).row_groups:
        at = next(c.bloom_offset for c in group.columns if c.bloom_offset)
        header, bits = bloom_length(bytes(body[at : at + BLOOM_HEADER_BYTES]))
        body[at + header : at + header + bits] = b"\xff" * bits
    return bytes(body)


PLANTED: dict[str, Callable[[str, pa.Table], bytes]] = {
    "value": lambda name, table: written(table, {"who": name}),
    "name of a pair": lambda name, table: written(table, {name: "1", f"of.{name}": "2"}),
    "JSON": lambda name, table: written(table, {"who": json.dumps({"a": [name]})}),
    "JSON in JSON": lambda name, table: written(
        table, {"who": json.dumps({"a": json.dumps([name])})}
    ),
    "attributes": attributes,
    "metadata within": metadata_within,
    "writer": lambda name, table: written(table, {}, created_by=f"made for {name}"),
    **{
        f"unknown field of {place}": partial(with_unknown, place)
        for place in ("file", "group", "chunk", "metadata", "statistics")
    },
}


@pytest.mark.parametrize("has_row", [True, False])
@pytest.mark.parametrize("name", [NAME, ODD])
@pytest.mark.parametrize("how", PLANTED)
def test_nothing_that_a_footer_says_is_left(
    people: People, how: str, name: str, has_row: bool
) -> None:
    ids = [*range(20, 29), *([WHO] if has_row else [])]
    people.ingest(land(people, "a.parquet", PLANTED[how](name, named(name, ids))))
    assert find(people.store, Secret(name))
    people.erase(is_named(name))
    people.advance()
    assert people.finish().receipts
    assert find(people.store, Secret(name)) == []
    assert people.ids() == list(range(20, 29))
    assert receipt(people)["look"]["kept"] == []


def _compared(op: Operator, value: str = NAME) -> Comparison:
    return Comparison(2, op, Literal(Primitive("string"), value))


@pytest.mark.parametrize(
    "condition",
    [
        Not(_compared("!=")),
        Not(Not(is_named())),
        Not(And((_compared("!="), _compared("!=", "name 99")))),
        And((_compared(">="), _compared("<="))),
        Not(Or((_compared("<"), _compared(">")))),
        Like(2, NAME),
    ],
    ids=["not unequal", "not not", "neither", "between", "not beside", "like"],
)
def test_a_value_is_named_however_the_condition_says_equal(
    people: People, condition: Predicate
) -> None:
    body = filtered(rows([*range(20, 29)]), {"who": NAME})
    people.ingest(land(people, "a.parquet", body))
    assert [f for f in people.found(Secret(NAME)) if "bloom" in f]
    people.erase(condition)
    people.advance()
    assert people.finish().receipts
    assert people.found(Secret(NAME)) == []
    assert people.ids() == list(range(20, 29))


def test_what_a_condition_excludes_is_not_what_it_names() -> None:
    kept = Comparison(2, "=", Literal(Primitive("string"), "kept"))
    others = In(2, Primitive("string"), ("other1", "other2"))
    assert texts_of(And((is_named(), Not(Or((kept, others)))))) == {NAME}


def test_a_receipt_does_not_repeat_names_that_may_be_data(people: People) -> None:
    """Of a newer file, too: it keeps what it says, and the receipt names the file."""
    people.append(*ids_with(WHO))
    other = "somebody-else@example.org"
    before = written(rows([*range(20, 29)]), {other: "1", "my.pair": "2", "of-4711-0815": "3"})
    people.ingest(land(people, "a.parquet", before))
    people.erase(is_named())
    people.time.sleep(1)
    newer = written(rows([*range(30, 39)]), {NAME: "1"})
    people.ingest(land(people, "b.parquet", newer))
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert look["key_values"] == {"ARROW:schema": 2, "my.pair": 1, WITHHELD: 3}
    assert [(kind, detail) for kind, _, detail in look["kept"]] == [("file", "key-value")]
    everything = [o.key for o in people.store.list("tables/people/e")]
    for key in everything:
        body = people.store.get(key).body
        assert NAME.encode() not in body and other.encode() not in body, key
    assert verify_receipt(people.ctx, "case-1").problems == ()


@pytest.mark.parametrize(
    "predicate",
    [is_named("visits"), Like(2, "%name%-not-there%"), is_named("unicode"), is_named("object")],
    ids=str,
)
@pytest.mark.parametrize("write", [attributes, metadata_within], ids=lambda w: w.__name__)
def test_an_erasure_ends_though_a_value_is_also_the_name_of_a_column(
    people: People, predicate: Predicate, write: Callable[[str, pa.Table], bytes]
) -> None:
    people.append(*ids_with(WHO))
    people.ingest(land(people, "a.parquet", write("n", rows([*range(20, 29)]))))
    people.erase(predicate)
    assert people.finish().receipts
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    body = people.store.get(people.ctx.key(entry.key)).body
    assert pq.read_table(io.BytesIO(body)).num_rows == 9
    assert pd.read_parquet(io.BytesIO(body))["id"].tolist() == list(range(20, 29))


@pytest.mark.parametrize("field_ids", ["keep", "stamp"])
def test_what_describes_a_landed_object_does_not_come_with_it(
    people: People, field_ids: str
) -> None:
    """Neither with a copy nor with one whose footer gets the table's field ids."""
    setting = SetProperties({"ingest.field_ids": field_ids})
    commit(people.ctx, Change(operation="touch", updates=(setting,)))
    described = {"metadata": {"of": NAME}, "headers": {"Tagging": f"who={NAME}"}}
    people.ingest(land(people, "a.parquet", written(rows([1, 2]), {}), **described))
    [entry] = [f for f in people.snapshot.files.inline if f.event is not None]
    info = people.store.head(people.ctx.key(entry.key)).info
    assert not info.metadata and set(info.headers) <= {"ContentType"}


DATE, STAMP = Primitive("date"), Primitive("timestamptz", unit="us")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (DATE, -26539, "1897-05-04"),
        (STAMP, 946684797123456, "1999-12-31T23:59:57"),
        (STAMP, 946684797123456, "1999-12-31 23:59:57"),
        (Primitive("int64"), 4711, "4711"),
        (Primitive("double"), 1.25e-7, "1.25e-07"),
        (Primitive("binary"), b"\xde\xad\xbe\xef", "deadbeef"),
        (Primitive("fixed", 16), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)
def test_values_are_searched_for_as_they_are_usually_spelled(
    kind: Primitive, value: int | float | bytes, text: str
) -> None:
    assert text in texts_of(Comparison(1, "=", Literal(kind, value)))

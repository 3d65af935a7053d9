"""Free text under a condition that names no value (a range, NOT, a short value): the receipt names it."""

from __future__ import annotations

import base64
import io
import json
import random
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.format.predicate import And, Comparison, In, Like, Literal, Not, Or, Predicate
from inlay.format.schema import Primitive
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.parquet.arrow.evaluate import selected
from inlay.parquet.arrow.types import arrow_primitive, to_arrow_scalar
from inlay.plan.pruning.mentions import MAX_TEXT_BYTES, Mentions
from inlay.storage.base import Head, Location

from .people import SCHEMA, WHO, People, ids_with, rows
from .test_gaps import with_gap
from .test_receipt import receipt

TEXT, LONG = Primitive("string"), Primitive("int64")
PAIRS = {
    "words": "made by 20-ada@example.org",
    "json": json.dumps({"a": [json.dumps({"b": "ada"})]}),
    "url": "https://example.org/?of=ad%61",
    "coded": base64.b64encode(b"for ada").decode(),
    "count": "4711 rows",
    "version": "4711.2.3",
    "harmless": "zoe",
}


def of(field_id: int, op: Any, value: Any, kind: Primitive = TEXT) -> Comparison:
    return Comparison(field_id, op, Literal(kind, value))


def land(people: People, name: str, pairs: dict[str, str], *ids: int, adopt: bool = False) -> None:
    people.time.sleep(1)
    sink = io.BytesIO()
    fields = [f.with_metadata({"of": pairs["field"]} if "field" in pairs else {}) for f in SCHEMA]
    plain = {key: value for key, value in pairs.items() if key != "field"}
    table = rows(list(ids)).cast(pa.schema(fields, metadata=plain))
    pq.write_table(table, sink, row_group_size=3, use_dictionary=False)
    key = f"{'else' if adopt else 'ingest/people'}/{name}"
    people.store.put(key, sink.getvalue(), metadata={"origin": "adaq", "rows": "2"})
    assert people.ingest(Location("memory", "b", key), adopt=adopt).write.committed


def perhaps(people: People) -> list[list[Any]]:
    look = receipt(people)["look"]
    assert look["perhaps_count"] == len(look["perhaps"])
    return look["perhaps"]


RANGE = And((of(2, ">=", "ada"), of(2, "<", "adb")))


@pytest.mark.parametrize(
    ("predicate", "named"),
    [
        (RANGE, ["coded", "json", "url"]),
        (Not(Or((of(2, "<", "ada"), of(2, ">=", "adb")))), ["coded", "json", "url"]),
        (of(2, "=", "ada"), ["coded", "json", "url"]),
        (Like(2, "ad%"), ["coded", "json", "url"]),
        (And((of(1, ">", 4000, LONG), of(1, "<", 5000, LONG))), ["count"]),
        (And((of(2, "=", "zz-somebody"), of(3, "=", "Atlantis"))), None),
    ],
    ids=["range", "not", "short", "short like", "numbers", "listed"],
)
def test_pairs_that_may_have_what_is_selected_are_named(
    people: People, predicate: Predicate, named: list[str] | None
) -> None:
    for n in range(2):
        land(people, f"{n}.parquet", PAIRS, *range(10 * n, 10 * n + 9))
    people.erase(predicate)
    assert people.finish().receipts
    look = receipt(people)["look"]
    assert look["kept"] == []
    assert perhaps(people) == [["key-value", name, 2] for name in named or ()]
    assert look["open_columns"] == ([] if named is None else ["id" if "count" in named else "name"])
    # They stay, and are listed by their names, whatever they say.
    assert set(PAIRS) <= set(look["key_values"])
    said = [text for text in verify_receipt(people.ctx, "case-1").named if "may have" in text]
    assert len(said) == len(named or ())


def test_places_that_cannot_be_read_for_it_are_named(people: People) -> None:
    body = with_gap(_plain_file(), "before the footer", b"an old footer")
    people.store.put("ingest/people/a.parquet", body)
    people.time.sleep(1)
    assert people.ingest(Location("memory", "b", "ingest/people/a.parquet")).write.committed
    people.erase(RANGE)
    assert people.finish().receipts
    assert perhaps(people) == [["gap", "", 1]]


def _plain_file() -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(list(range(9))), sink, row_group_size=3)
    return sink.getvalue()


def test_metadata_of_fields_and_of_objects_and_of_the_table_is_read_too(people: People) -> None:
    people.append(*ids_with(WHO))
    t = inlay.open(people.ctx.uri, context=people.ctx)
    t.alter(add={"more": pa.string()}, defaults={"more": "x"})
    t.alter(comment={"city": "as adaq had it"})
    t.set_properties(**{"my.owner": "adaq", "my.other": "zoe"})
    t.refs.branch("adaq")
    land(people, "of=adaq/a.parquet", {"field": "adaq"}, *range(20, 29), adopt=True)
    people.erase(RANGE)
    assert people.finish().receipts
    assert perhaps(people) == [
        ["comment of column", "city", 1],
        ["key-value", "ARROW:schema", 1],
        ["metadata", "origin", 1],
        ["name of a branch", "", 1],
        ["name of a key of an adopted file", "", 1],
        ["property", "my.owner", 1],
    ]
    # Not what it says: the receipt stays.
    written = [o.key for o in people.store.list("tables/people/e")]
    assert all(b"adaq" not in people.store.get(key).body for key in written)


@pytest.mark.parametrize("predicate", [of(5, ">", 30, LONG), Not(of(5, "!=", 40, LONG))])
def test_a_default_that_is_selected_is_named(people: People, predicate: Predicate) -> None:
    people.append(*ids_with(WHO))
    t = inlay.open(people.ctx.uri, context=people.ctx)
    t.alter(add={"age": pa.int64(), "size": pa.int64()}, defaults={"age": 40, "size": 40})
    found = next(f.id for f in people.snapshot.schema.fields if f.name == "age")
    at = {of(5, ">", 30, LONG): of(found, ">", 30, LONG)}
    people.erase(at.get(predicate, Not(of(found, "!=", 40, LONG))))
    assert people.finish().receipts
    assert ["default", "age", "of the column"] in receipt(people)["look"]["kept"]
    assert ["default", "size", "of the column"] not in receipt(people)["look"]["kept"]


# -- whatever the type ----------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)
MICROS = timedelta(microseconds=1)


def _text(rng: random.Random) -> str:
    return "".join(rng.choices("abz-@.µ", k=rng.randrange(1, 9)))


# A type; a value of it in its physical form, and how a program may write it.
WRITTEN: dict[str, Any] = {
    "string": (TEXT, lambda rng: [(v := _text(rng)), v]),
    "int": (LONG, lambda rng: [(v := rng.randrange(-99, 99)), str(v)]),
    "float": (Primitive("double"), lambda rng: [(v := rng.uniform(-99, 99)), repr(v)]),
    "decimal": (
        Primitive("decimal", precision=9, scale=2),
        lambda rng: [(v := Decimal(rng.randrange(-9999, 9999)) / 100), str(v)],
    ),
    "date": (
        Primitive("date"),
        lambda rng: [
            (v := rng.randrange(-9999, 9999)),
            date.fromordinal(v + EPOCH.toordinal()).isoformat(),
        ],
    ),
    "moment": (
        Primitive("timestamp", unit="us"),
        lambda rng: [
            (v := rng.randrange(-(10**15), 10**15)),
            (EPOCH + v * MICROS).isoformat(rng.choice("T ")),
        ],
    ),
    "zoned": (
        Primitive("timestamptz", unit="us"),
        lambda rng: [
            (v := rng.randrange(10**15)),
            (EPOCH + v * MICROS + timedelta(hours=5, minutes=30)).isoformat() + "+05:30",
        ],
    ),
    "time": (
        Primitive("time", unit="us"),
        lambda rng: [
            (v := rng.randrange(86_400 * 10**6)),
            (EPOCH + v * MICROS).time().isoformat(),
        ],
    ),
    "bytes": (Primitive("binary"), lambda rng: [(v := rng.randbytes(4)), v.hex()]),
}
SETTINGS = [
    lambda said: said,
    lambda said: f"it was {said}, once",
    lambda said: json.dumps({"a": {"b": [said]}}),
    lambda said: json.dumps({"a": json.dumps(said)}, ensure_ascii=True),
    lambda said: f'{{"a":{said}}}',
    lambda said: base64.b64encode(said.encode()).decode(),
]


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_a_condition_selects_is_seen_in_text(kind: str) -> None:
    """However the value is written, and whatever asks for it; what no condition selects is not said."""
    rng = random.Random(kind)
    primitive, make = WRITTEN[kind]
    seen = {False: 0, True: 0}
    for _ in range(400):
        (value, said), (low, _), (high, _) = (make(rng) for _ in range(3))
        predicate: Predicate = And((of(1, ">=", low, primitive), of(1, "<=", high, primitive)))
        match rng.randrange(4):
            case 0:
                predicate = Not(predicate)
            case 1:
                predicate = Or((of(1, "<", low, primitive), of(1, ">", high, primitive)))
            case 2:
                predicate = Not(In(1, primitive, (low,)))
        column = pa.array([to_arrow_scalar(primitive, value).as_py()], arrow_primitive(primitive))
        batch = pa.RecordBatch.from_arrays([column], ["v"])
        is_selected = selected(predicate, batch, {1: (0,)})[0].as_py()
        found = Mentions.of(predicate).may_select(rng.choice(SETTINGS)(said).encode())
        assert found or not is_selected, (predicate, value, said)
        alone = Mentions.of(predicate).may_select(said.encode())
        if kind not in (
            "bytes",
            "string",
            "int",
            "decimal",
            "float",
        ):  # `-5` may also be a hyphen and 5
            assert alone == is_selected, (predicate, value, said)
        seen[is_selected] += 1
    assert min(seen.values()) > 40


@pytest.mark.parametrize(
    "text",
    [
        "2.2.3",
        "aa-" * 80_000 + "g",
        "1" * 250_000,
        "[" * 250_000,
        "1e" * 100_000,
        "12:" * 80_000,
        "v4711",
        "0x12ab",
        "a_12",
        "12_b",
        "1.2.3.4",
        "",
        "12:30",
        "2020-99-99",
        "1e999999999",
    ],
)
def test_what_is_no_number_is_none(text: str) -> None:
    asked = Mentions.of(of(1, "=", 12, LONG))
    assert not asked.may_select(text.encode()) or "12:" in text
    assert not Mentions.of(of(1, "=", b"\xab", Primitive("binary"))).may_select(text.encode())
    assert asked.may_select(b"x" * (MAX_TEXT_BYTES + 1))
    assert not Mentions.of(of(1, "<", 0, Primitive("date"))).may_select(text.encode())


def test_tags_that_may_not_be_read_are_counted(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On S3 that takes a permission of its own. Of an adopted file, and of one that was not ingested."""
    land(people, "a.parquet", {}, *range(20, 29), adopt=True)
    sink = io.BytesIO()
    pq.write_table(rows([30]), sink)
    people.store.put("ingest/people/b.parquet", sink.getvalue())
    real = people.store.head

    def head(key: str, **pins: Any) -> Any:
        found = real(key, **pins)
        is_theirs = isinstance(found, Head) and "tables/" not in key
        return replace(found, info=replace(found.info, unread_tags=True)) if is_theirs else found

    monkeypatch.setattr(people.store, "head", head)
    people.time.sleep(1)
    people.erase(of(2, "=", "zz-somebody"))
    assert people.finish().receipts
    assert perhaps(people) == [["landed object", "", 1], ["unread tags", "", 1]]

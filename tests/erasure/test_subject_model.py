"""The search for a person against a model: random nested values, row by row."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.ops.erase import subject
from inlay.ops.erase.receipt import decode_receipt
from inlay.ops.erase.request import open_each
from inlay.ops.erase.subject import search_subject
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.ops.write.ingest import IngestSource, ingest
from inlay.parse import parse_predicate
from inlay.storage.base import Location

from .people import in_memory

TEXTS = ("ada@example.org", "Ada", "ürün%_\\", "7")
WORDS = (*TEXTS, "x ada@example.org y", "ada", "", "Adam", "ürün", "%", "17", "bob", None)


def leaf(random: Random) -> pa.DataType:
    return random.choice(
        [
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.int64(),
            pa.dictionary(pa.int32(), pa.string()),
        ]
    )


def kind(random: Random, depth: int) -> pa.DataType:
    made = random.randint(0, 5) if depth else 0
    if made == 1:
        names = [f"f{n}" for n in range(random.randint(1, 3))]
        return pa.struct([(name, kind(random, depth - 1)) for name in names])
    if made == 2:
        return pa.list_(kind(random, depth - 1))
    if made == 3:
        return pa.map_(pa.string(), kind(random, depth - 1))
    if made == 4:
        return pa.large_list(kind(random, depth - 1))
    return leaf(random) if depth == 2 else random.choice([pa.string(), pa.binary(), pa.int64()])


def value(random: Random, of: pa.DataType) -> Any:
    if random.random() < 0.15:
        return None
    if pa.types.is_struct(of):
        return {field.name: value(random, field.type) for field in of}
    if pa.types.is_map(of):
        keys = random.sample([w for w in WORDS if w is not None], random.randint(0, 3))
        return [(key, value(random, of.item_type)) for key in keys]
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return [value(random, of.value_type) for _ in range(random.randint(0, 3))]
    word = random.choice(WORDS)
    if pa.types.is_integer(of):
        return random.randint(0, 99)
    if word is None:
        return None
    return word.encode() if pa.types.is_binary(of) else word


def places(path: str, of: pa.DataType, found: Any) -> Iterator[tuple[str, str]]:
    """(path, text) of everything in one value."""
    if found is None:
        return
    if pa.types.is_struct(of):
        for field in of:
            yield from places(f"{path}.{field.name}", field.type, found[field.name])
    elif pa.types.is_map(of):
        for key, item in found:
            yield f"{path}.key", key
            yield from places(f"{path}.value", of.item_type, item)
    elif pa.types.is_list(of) or pa.types.is_large_list(of):
        for item in found:
            yield from places(f"{path}.element", of.value_type, item)
    elif not pa.types.is_integer(of):
        yield path, found.decode() if isinstance(found, bytes) else found


@pytest.mark.parametrize("seed", range(12))
def test_every_row_with_a_text_is_found_and_no_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, and as many texts are."""
    monkeypatch.setattr(subject, "FEW_TEXTS", 4 * (seed % 2))
    random = Random(seed)
    people = in_memory(seed)
    fields = [("id", pa.int64())]
    fields += [(f"c{n}", kind(random, 2)) for n in range(random.randint(1, 4))]
    schema = pa.schema(fields)
    create(
        people.ctx,
        schema,
        primary_key=["id"],
        properties={"write.row_group_rows": random.choice([2, 50])},
    )
    expected: Counter[tuple[int, str]] = Counter()
    next_id = 0
    for n in range(random.randint(1, 4)):
        rows = []
        for _ in range(random.randint(1, 15)):
            rows.append(
                {"id": next_id, **{f.name: value(random, f.type) for f in list(schema)[1:]}}
            )
            next_id += 1
        table = pa.Table.from_pylist(rows, schema=schema)
        people.time.sleep(1)
        if random.random() < 0.5:
            append(people.ctx, table)
        else:
            sink = io.BytesIO()
            pq.write_table(table, sink, row_group_size=random.choice([3, 100]))
            people.store.put(f"ingest/people/{n}", sink.getvalue())
            ingest(people.ctx, [IngestSource(Location("memory", "b", f"ingest/people/{n}"))])
        for row in rows:
            there = {
                (place, path)
                for field in list(schema)[1:]
                for path, text in places(field.name, field.type, row[field.name])
                for place, wanted in enumerate(TEXTS)
                if wanted in text
            }
            expected.update(there)
    # Hidden rows are there, too.
    delete(people.ctx, parse_predicate("id = 0", people.snapshot.schema))
    assert search_subject(people.ctx, TEXTS).by_column() == expected


def test_the_last_look_says_where_else_the_texts_are() -> None:
    """By the property `erasure.search`: of each erasure its own, of one without a text nothing."""
    people = in_memory(1)
    schema = pa.schema([("mail", pa.string()), ("by", pa.list_(pa.string())), ("n", pa.int64())])
    create(people.ctx, schema, properties={"erasure.search": "yes"})
    mails = [f"person-{n}@example.org" for n in range(8)]
    by = [[mails[1], None], [], [f"from {mails[1]}"], None, [], [mails[4]], [], []]
    people.time.sleep(1)
    append(people.ctx, pa.table({"mail": mails, "by": by, "n": list(range(8))}, schema=schema))
    asked = {f"p{n}": f"mail = '{mails[n]}'" for n in (0, 1, 4, 7)} | {"numbered": "n = 6"}
    conditions = {name: parse_predicate(t, people.snapshot.schema) for name, t in asked.items()}
    open_each(people.ctx, conditions, request=None)
    done = people.finish()
    said = {}
    for key in done.receipts:
        body = decode_receipt(people.store.get(people.ctx.key(key)).body, key=key)
        said[body["id"]] = body["look"]["rows_with"]
        assert not any(mail in json.dumps(body) for mail in mails)
    assert said == {
        "p0": [],
        "p1": [["by.element", 1, 1]],  # the first, with it too, is gone
        "p4": [["by.element", 1, 1]],
        "p7": [],
        "numbered": None,
    }

"""Texts with a dictionary, where a scan selects few rows of whole column chunks: read as references to the
dictionary, and the same rows as ever."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read import decode
from inlay.parquet.read.selection import Projection

ROWS = 30_000


def rows(seed: int) -> pa.Table:
    dice = random.Random(seed)
    words = [None, "", "é", *(f"word {n}" for n in range(dice.randrange(1, 40)))]
    few = [dice.choice(words) for _ in range(ROWS)]
    return pa.table(
        {
            "n": pa.array([dice.randrange(1_000) for _ in range(ROWS)], pa.int64()),
            "few": pa.array(few, pa.string()),
            "bytes": pa.array([w and w.encode() for w in few], pa.binary()),
            "many": [dice.randbytes(8).hex() for _ in range(ROWS)],
            "a.b": pa.array(few, pa.string()),
            "inside": pa.array([{"b": w, "c": n} for n, w in enumerate(few)]),
            "list": pa.array([[w, w] if w else None for w in few], pa.list_(pa.string())),
        }
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("least", [0, 400, 990, 1_000])
def test_rows_are_those_of_a_filter(lake: Any, seed: int, least: int) -> None:
    table = rows(seed)
    schema = schema_from_arrow(table.schema)
    where = Comparison(1, ">=", Literal(Primitive("int64"), least))
    tasks = lake.plan(list(lake.write(table)), schema, predicate=where).tasks
    projection = Projection(schema=schema, columns=tuple(field.id for field in schema.fields))
    opened = mock.Mock(wraps=decode._with_dictionary)
    with mock.patch.object(decode, "_with_dictionary", opened):
        found = list(lake.reader.rows(tasks, projection))
    expected = table.filter(pc.greater_equal(table["n"], least))
    assert pa.Table.from_batches(found, schema=projection.result).equals(
        expected.cast(projection.result)
    )
    # Most rows are read as they are.
    assert opened.called == (least == 990)


def test_columns_within_others_and_without_a_dictionary_are_read_as_they_are(lake: Any) -> None:
    table = rows(1).drop_columns(["inside", "list"])
    [file] = lake.write(table)
    body = lake.store.get(f"tables/t/{file.key}").body
    metadata = pq.read_metadata(pa.BufferReader(body))
    assert decode._with_dictionary(metadata) == ["few", "bytes", "a.b"]
    [file] = lake.write(rows(1).select(["inside", "list", "few"]))
    body = lake.store.get(f"tables/t/{file.key}").body
    assert decode._with_dictionary(pq.read_metadata(pa.BufferReader(body))) == ["few"]

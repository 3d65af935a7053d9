"""Upserts of any columns, in any order, against a plain Python model."""

from __future__ import annotations

import math
import uuid

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest

SCHEMA = pa.schema(
    [
        ("k", pa.float64()),
        ("l", pa.string()),
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.list_(pa.int64())),
    ]
)
KEY = ("k", "l")
NAN = math.nan
KEYS = st.tuples(st.sampled_from([0.0, -0.0, 1.5, NAN, None]), st.sampled_from(["", "x", None]))
VALUES = {
    "a": st.none() | st.integers(0, 9),
    "b": st.none() | st.text("yz", max_size=1),
    "c": st.none() | st.lists(st.integers(0, 3) | st.none(), max_size=2),
}


@st.composite
def data(draw):
    names = draw(st.permutations([*KEY, *draw(st.sets(st.sampled_from("abc")))]))
    keys = draw(st.lists(KEYS, max_size=5))
    rows = []
    for key in keys:
        row = dict(zip(KEY, key, strict=True))
        row.update({name: draw(VALUES[name]) for name in names if name in VALUES})
        rows.append(row)
    return names, rows


def key_of(row):
    """None where a part is NULL: it equals no other."""
    k, text = row["k"], row["l"]
    if k is None or text is None:
        return None
    return ("NaN" if math.isnan(k) else k + 0.0, text)


class Model:
    def __init__(self):
        self.rows = []

    def upsert(self, rows, names):
        last = {}
        for row in rows:
            last[key_of(row) if key_of(row) is not None else object()] = row
        whole = set(names) == set(SCHEMA.names)
        there = {key_of(row) for row in self.rows}
        blank = dict.fromkeys(SCHEMA.names)
        if whole:
            self.rows = [r for r in self.rows if key_of(r) is None or key_of(r) not in last]
            self.rows += [dict(blank, **row) for row in last.values()]
            return
        fresh = [
            row for key, row in last.items() if isinstance(key, tuple) is False or key not in there
        ]
        self.rows = [dict(r, **last[key_of(r)]) if key_of(r) in last else r for r in self.rows] + [
            dict(blank, **row) for row in fresh
        ]


def comparable(rows):
    def one(row):
        k = row["k"]
        zero = None if k is None else "NaN" if math.isnan(k) else repr(k)
        return repr((zero, row["l"], row["a"], row["b"], row["c"]))

    return sorted(map(one, rows))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(KEYS, max_size=4), st.lists(st.tuples(data(), st.booleans()), min_size=1, max_size=4)
)
def test_upserts_do_what_a_plain_model_says(appended, batches):
    t = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key=list(KEY))
    model = Model()
    first = [
        {"k": k, "l": text, "a": n, "b": "old", "c": [n]} for n, (k, text) in enumerate(appended)
    ]
    t.append(pa.Table.from_pylist(first, schema=SCHEMA))
    model.rows += first
    for (names, rows), compacted in batches:
        schema = pa.schema([SCHEMA.field(name) for name in names])
        found = pa.Table.from_pylist(rows, schema=schema)
        keys = [key for key in map(key_of, rows) if key is not None]
        if len(set(keys)) < len(keys):
            try:
                t.upsert(found)
                raise AssertionError("two rows of one key were taken")
            except InvalidRequest as error:
                several = sum(keys.count(key) > 1 for key in set(keys))
                assert f"for {several} key" in str(error)
        t.upsert(found, on_duplicate="last")
        model.upsert(rows, names)
        if compacted:
            t.maintain.compact()
        assert comparable(t.scan().to_arrow().to_pylist()) == comparable(model.rows)

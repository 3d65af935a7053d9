"""The values of rows in a file's own key-values, and what is left of them when rows are erased.

Promise: `erased_pairs` keeps every pair byte for byte, except those known to hold values of rows, and those
that name what is erased; from these it removes what may come from a removed row, and nothing that a reader
needs. Members are dropped and not recomputed: all of them are optional, and a reader without them only
prunes less.

- `geo` (GeoParquet): `bbox` of each column, the extremes of its coordinates. The rest stays: encoding,
geometry types,
  reference system (whose own `bbox` is the area it is made for).
- Hudi: the smallest and largest record key of the file, and a Bloom filter of all record keys.
- `pandas`: that a column is a category of so many values, once a row group has been rewritten: fastparquet
uses one group's
  dictionary for all. `attributes` (`df.attrs`), if they name an erased value.
- `ARROW:schema` and Spark's schema: metadata of the schema and its fields that names it (ML attributes list
the values of a
  column).
- Any other pair that names it is removed as a whole.

A pair *names* something when one of the given texts is in it, literally, escaped in JSON, or in Base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from inlay.parquet.footer.fields import KeyValue
from inlay.parquet.footer.thrift import Struct, unpack

GEO = b"geo"
PANDAS = b"pandas"
FASTPARQUET = b"fastparquet.cats"
SCHEMAS = frozenset(
    {
        b"ARROW:schema",
        b"org.apache.spark.sql.parquet.row.metadata",
        b"org.apache.spark.sql.parquet.row.metadata.v2",
    }
)
HUDI = frozenset(
    {
        b"hoodie_min_record_key",
        b"hoodie_max_record_key",
        b"org.apache.hudi.bloomfilter",
        b"com.uber.hoodie.bloomfilter",
    }
)

# A column's `pandas_type` and `numpy_type`.
PandasType = tuple[str, str]
NOTHING_PLAIN: Mapping[str, PandasType] = {}


def erased_pairs(
    pairs: Iterable[Struct],
    texts: frozenset[str] = frozenset(),
    plain: Mapping[str, PandasType] = NOTHING_PLAIN,
) -> Iterator[Struct]:
    """Key-value pairs of a footer, without possible values of removed rows. `texts` is what is erased,
    `plain` the columns whose dictionaries are no longer the same in all row groups."""
    for pair in pairs:
        key, raw = pair.get(KeyValue.KEY), pair.get(KeyValue.VALUE)
        if key in HUDI or (key == FASTPARQUET and plain):
            continue
        left = raw
        if key == GEO and raw:
            left = _without_bounds(raw)
        elif key == PANDAS and raw:
            left = _pandas(raw, texts, plain)
        elif raw and names_any(raw, texts):
            left = _without_metadata(raw, texts) if key in SCHEMAS else None
        if left is raw:
            yield pair
        elif left is not None:
            yield {**pair, KeyValue.VALUE: left}


def _pandas(raw: bytes, texts: frozenset[str], plain: Mapping[str, PandasType]) -> bytes | None:
    """pandas' metadata without attributes that name `texts`, and without the categories of `plain`; None if
    pandas cannot read it either."""
    try:
        told = json.loads(raw)
        changed = bool(told.get("attributes")) and names_any(raw, texts)
        if changed:
            told["attributes"] = {}
        for column in told["columns"]:
            if column["pandas_type"] == "categorical" and column["name"] in plain:
                column["pandas_type"], column["numpy_type"] = plain[column["name"]]
                column["metadata"] = None
                changed = True
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None if names_any(raw, texts) else raw
    return json.dumps(told).encode() if changed else raw


def _without_metadata(raw: bytes, texts: frozenset[str]) -> bytes | None:
    """A schema (Spark's JSON, or Arrow's in Base64) without metadata that names `texts`; None for one that
    cannot be read."""
    try:
        if raw.lstrip()[:1] == b"{":
            return json.dumps(_without_member("metadata", json.loads(raw), texts)).encode()
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(raw, validate=True)))
    except (ValueError, RecursionError, TypeError, OSError, pa.ArrowException):
        return None
    fields = [_without_field_metadata(field, texts) for field in arrow]
    # The schema's own metadata are the other pairs.
    return base64.b64encode(pa.schema(fields).serialize().to_pybytes())


def _without_field_metadata(field: pa.Field, texts: frozenset[str]) -> pa.Field:
    metadata = field.metadata or {}
    kept = {key: value for key, value in metadata.items() if not names_any(key + value, texts)}
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_field_metadata(child, texts) for child in kind])
    return field.with_type(kind).with_metadata(kept or None)


def _without_member(name: str, node: Any, texts: frozenset[str]) -> Any:
    """JSON in which members of that name are emptied if they name one of `texts`."""
    if isinstance(node, list):
        return [_without_member(name, item, texts) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {}
        if key == name and names_any(json.dumps(item, ensure_ascii=False).encode(), texts)
        else _without_member(name, item, texts)
        for key, item in node.items()
    }


def naming(pairs: Iterable[Struct | bytes], texts: frozenset[str]) -> Iterator[str]:
    """The keys of the pairs whose value contains one of `texts`, literally or encoded."""
    for pair in map(unpack, pairs):
        value = pair.get(KeyValue.VALUE, b"")
        if names_any(value, texts):
            yield pair.get(KeyValue.KEY, b"").decode("utf-8", "replace")


def names_any(value: bytes, texts: frozenset[str]) -> bool:
    """Whether a value contains one of `texts`: in its bytes, in the strings of its JSON, or in its decoded
    Base64 (Arrow's schema)."""
    forms = [value]
    with suppress(ValueError):
        forms.append(base64.b64decode(value, validate=True))
    if b"\\" in value:
        with suppress(ValueError, RecursionError):
            forms.append(json.dumps(json.loads(value), ensure_ascii=False).encode())
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    return any(text in form for form in forms for text in wanted)


def _without_bounds(raw: bytes) -> bytes | None:
    """GeoParquet's metadata without bounding boxes; None if no reader of it can read it either."""
    try:
        geo = json.loads(raw)
        columns = geo["columns"].values()
        bounded = [column for column in columns if column.pop("bbox", None) is not None]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return json.dumps(geo, ensure_ascii=False).encode() if bounded else raw

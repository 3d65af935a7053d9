"""What a file's own key-values tell of its rows, and what is left of them when rows are erased.

Promise: `erased_pairs` keeps every pair byte for byte, but for those known to hold values of rows; of
these it drops what a removed row may have set, and nothing that a reader needs. Members are dropped and
not computed anew: all of them are optional, and a reader without them only prunes less.

- `geo` (GeoParquet): `bbox` of each column, the extremes of its coordinates. The rest stays: encoding,
  geometry types, reference system (whose own `bbox` is the area it is made for).
- Hudi: the smallest and largest record key of the file, and a Bloom filter of all record keys.

What other writers put into pairs of their own is not known here; docs/LIMITS.md says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress

from inlay.parquet.footer.fields import KeyValue
from inlay.parquet.footer.thrift import Struct, unpack

GEO = b"geo"
HUDI = frozenset(
    {
        b"hoodie_min_record_key",
        b"hoodie_max_record_key",
        b"org.apache.hudi.bloomfilter",
        b"com.uber.hoodie.bloomfilter",
    }
)


def erased_pairs(pairs: Iterable[Struct]) -> Iterator[Struct]:
    """Key-value pairs of a footer, without what may be a value of a removed row."""
    for pair in pairs:
        key = pair.get(KeyValue.KEY)
        if key in HUDI:
            continue
        if key == GEO and pair.get(KeyValue.VALUE):
            told = _without_bounds(pair[KeyValue.VALUE])
            if told is not None:
                yield {**pair, KeyValue.VALUE: told}
        else:
            yield pair


def naming(pairs: Iterable[Struct | bytes], texts: frozenset[str]) -> Iterator[str]:
    """The keys of the pairs whose value has one of `texts` in it, as it is or encoded."""
    for pair in map(unpack, pairs):
        value = pair.get(KeyValue.VALUE, b"")
        if names_any(value, texts):
            yield pair.get(KeyValue.KEY, b"").decode("utf-8", "replace")


def names_any(value: bytes, texts: frozenset[str]) -> bool:
    """Whether one of `texts` is in a value: in its bytes, in the strings of its JSON, or in what its
    Base64 stands for (Arrow's schema)."""
    forms = [value]
    with suppress(ValueError):
        forms.append(base64.b64decode(value, validate=True))
    if b"\\" in value:
        with suppress(ValueError, RecursionError):
            forms.append(json.dumps(json.loads(value), ensure_ascii=False).encode())
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    return any(text in form for form in forms for text in wanted)


def _without_bounds(raw: bytes) -> bytes | None:
    """GeoParquet's metadata without bounding boxes; None for what no reader of it can read either."""
    try:
        geo = json.loads(raw)
        columns = geo["columns"].values()
        bounded = [column for column in columns if column.pop("bbox", None) is not None]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return json.dumps(geo, ensure_ascii=False).encode() if bounded else raw

"""What an erasure leaves of a footer's key-values, and of its fields that the format does not define.

Promise: `erased_pairs` keeps every pair byte for byte, except those known to hold values of rows, and those
that name what is erased; from these it removes what may come from a removed row, and nothing that a reader
needs. Members are dropped and not recomputed: all of them are optional, and a reader without them only
prunes less.

- `geo` (GeoParquet): `bbox` of each column, the extremes of its coordinates. The rest stays: encoding,
  geometry types, reference system (whose own `bbox` is the area it is made for).
- Hudi: the smallest and largest record key of the file, and a Bloom filter of all record keys.
- `pandas`: that a column is a category of so many values, once a row group has been rewritten: fastparquet
  uses one group's dictionary for all. `attributes` (`df.attrs`), if they name an erased value.
- `ARROW:schema` and Spark's schema: metadata of the schema and its fields that names it, and any that lists
  the values of a column (Polars' Enum, Spark's ML attributes): a removed row may have had one that is left.
- Any other pair that names it is removed as a whole.

A pair *names* something when one of the given texts is in its key or its value, however it is written
there (`plan.pruning.mentions`). Names of columns stay, in pairs as in the schema: `naming` distinguishes
them from what is removed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from inlay.parquet.arrow.types import fields_below, with_inner
from inlay.parquet.footer.fields import ARROW_SCHEMA, Chunk, File, Group, KeyValue, Meta, Stats
from inlay.parquet.footer.footer import RowGroup
from inlay.parquet.footer.thrift import Struct, encode_struct, unpack
from inlay.plan.pruning.mentions import names_any


def _fields_of(struct: type) -> frozenset[int]:
    return frozenset(key for name, key in vars(struct).items() if not name.startswith("_"))


FILE_FIELDS, GROUP_FIELDS, _CHUNK, _META, _STATS = map(
    _fields_of, (File, Group, Chunk, Meta, Stats)
)


def known(tree: Struct, fields: frozenset[int]) -> Struct:
    """A footer, or a row group, without fields of its own but the format's `fields` of it."""
    return {key: value for key, value in tree.items() if key in fields}


def unknown_of_file(tree: Struct) -> Struct:
    """The fields that the format does not define, or did not when this library was written; those of a row
    group are found by `unknown_in_group`. Readers ignore them. They may hold values of rows: extensions
    (field 32767) repeat the bounds of every row group. What they say of a file as a whole is no longer true
    of another file, so surgery never keeps it; those of a row group go with its other metadata once it is
    written again."""
    return _unknown(tree, FILE_FIELDS)


def unknown_in_group(group: RowGroup) -> Iterator[tuple[str, Struct]]:
    """Each with its column, "" for the group itself."""
    yield "", _unknown(group.tree, GROUP_FIELDS)
    for chunk in group.columns:
        yield (
            ".".join(chunk.path),
            {
                **_unknown(chunk.tree, _CHUNK),
                **_unknown(chunk.meta, _META),
                **_unknown(chunk.statistics or {}, _STATS),
            },
        )


def name_one(fields: Struct, texts: frozenset[str], plain: Iterable[bytes]) -> bool:
    """Whether fields contain one of `texts`, or of the bytes of `plain`."""
    if not fields:
        return False
    body = encode_struct(fields)
    return names_any(body, texts) or any(raw in body for raw in plain)


def _unknown(tree: Struct, known: frozenset[int]) -> Struct:
    return {key: tree[key] for key in tree.keys() - known}


GEO = b"geo"
PANDAS = b"pandas"
FASTPARQUET = b"fastparquet.cats"
SCHEMAS = frozenset(
    {
        ARROW_SCHEMA,
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

# Metadata of a field that lists all values of a column: of Polars' Enum (without it a category), of Spark.
POLARS_VALUES = b"_PL_ENUM_VALUES"
SPARK_VALUES = "ml_attr"

# What a value raises that is not what its key says.
_UNREADABLE = (
    *(ValueError, RecursionError, LookupError, TypeError, AttributeError, OSError),
    pa.ArrowException,
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
        if key in HUDI or (key == FASTPARQUET and plain) or names_any(key or b"", texts):
            continue
        kept = raw
        if key == GEO and raw:
            kept = _without_bounds(raw)
        elif key == PANDAS and raw:
            kept = _pandas(raw, texts, plain)
        elif raw and key in SCHEMAS:
            if _lists_values(raw) or names_any(raw, texts):
                kept = _without_metadata(raw, texts)
        elif raw and names_any(raw, texts):
            kept = None
        if kept is raw:
            yield pair
        elif kept is not None:
            yield {**pair, KeyValue.VALUE: kept}


def geo_pair(
    tree: Struct, names: Iterable[str], texts: frozenset[str] = frozenset()
) -> dict[str, str]:
    """GeoParquet's pair of a footer, for a file of some of its rows with the columns `names`:
    without it readers see bytes where there were shapes. Nothing where it names `texts`, or a column that
    is not there."""
    pairs = (pair for pair in map(unpack, tree.get(File.KEY_VALUES, ())))
    geo = [pair for pair in pairs if pair.get(KeyValue.KEY) == GEO and pair.get(KeyValue.VALUE)]
    for pair in erased_pairs(geo[:1], texts):
        raw = pair[KeyValue.VALUE]
        try:
            described = json.loads(raw)["columns"].keys()
            if described <= set(names) and not names_any(raw, texts):
                return {"geo": raw.decode("utf-8")}
        except _UNREADABLE:
            return {}
    return {}


def _pandas(raw: bytes, texts: frozenset[str], plain: Mapping[str, PandasType]) -> bytes | None:
    """pandas' metadata without attributes that name `texts`, and without the categories of `plain`; None if
    something else in it names them, but for the columns' names, or if pandas cannot read it either."""
    try:
        parsed = json.loads(raw)
        changed = bool(parsed.get("attributes")) and names_any(raw, texts)
        if changed:
            parsed["attributes"] = {}
        if names_any(_dumped(_without_names(parsed)), texts):
            return None
        for column in parsed["columns"]:
            if column["pandas_type"] == "categorical" and column["name"] in plain:
                column["pandas_type"], column["numpy_type"] = plain[column["name"]]
                column["metadata"] = None
                changed = True
    except _UNREADABLE:
        return None if names_any(raw, texts) else raw
    return json.dumps(parsed).encode() if changed else raw


def _without_names(parsed: Any) -> Any:
    """pandas' metadata without the names of columns."""
    columns = [*parsed["columns"], *parsed.get("column_indexes", ())]
    others = [{k: v for k, v in c.items() if k not in ("name", "field_name")} for c in columns]
    rest = {k: v for k, v in parsed.items() if k not in ("columns", "column_indexes")}
    index = [i for i in parsed.get("index_columns", ()) if not isinstance(i, str)]
    return [rest | {"index_columns": index}, others]


def _dumped(node: Any) -> bytes:
    return json.dumps(node, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _lists_values(raw: bytes) -> bool:
    if raw.lstrip()[:1] == b"{":
        return SPARK_VALUES.encode() in raw
    with suppress(ValueError):
        return POLARS_VALUES in base64.b64decode(raw, validate=True)
    return False


def listed_values(pairs: Iterable[Struct | bytes]) -> Iterator[tuple[str, list[str]]]:
    """The keys of the pairs that list the values of columns, with those values."""
    for pair in map(unpack, pairs):
        key, raw = pair.get(KeyValue.KEY, b""), pair.get(KeyValue.VALUE, b"")
        if key in SCHEMAS and _lists_values(raw):
            # JSON may have half a surrogate pair, which Arrow refuses.
            texts = [text.encode("utf-8", "replace").decode() for text in _listed(raw)]
            yield key.decode("utf-8", "replace"), texts


def _listed(raw: bytes) -> Iterator[str]:
    with suppress(*_UNREADABLE):
        schema = _schema_in(raw)
        if isinstance(schema, pa.Schema):
            yield from _categories(schema)
        else:
            yield from _texts_under(SPARK_VALUES, schema)


def _schema_in(raw: bytes) -> Any:
    """Spark's schema, which is JSON, or Arrow's, in Base64. Raises one of `_UNREADABLE`."""
    if raw.lstrip()[:1] == b"{":
        return json.loads(raw)
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(raw, validate=True)))


def free_texts(pairs: Iterable[Struct | bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """The keys of the pairs, with the texts in which their writer may have stored values: key and value; of
    a schema the metadata of its fields, of pandas' description everything but the names of columns."""
    for pair in map(unpack, pairs):
        key, raw = pair.get(KeyValue.KEY, b""), pair.get(KeyValue.VALUE, b"")
        texts = [raw]
        with suppress(*_UNREADABLE):
            schema = _schema_in(raw) if key in SCHEMAS else None
            if isinstance(schema, pa.Schema):
                texts = [text for pair in _metadata_of(schema) for text in pair]
            elif key in SCHEMAS:
                texts = [_dumped(node) for node in _members("metadata", schema) if node]
            elif key == PANDAS:
                texts = [_dumped(node) for node in _without_names(json.loads(raw))]
        yield key.decode("utf-8", "replace"), [key, *texts]


def _metadata_of(fields: Iterable[pa.Field]) -> Iterator[tuple[bytes, bytes]]:
    """Of fields and of those within them."""
    for _, field in fields_below(fields):
        yield from (field.metadata or {}).items()


def _members(name: str, node: Any) -> Iterator[Any]:
    """The members of that name in JSON, wherever they are."""
    match node:
        case list():
            for item in node:
                yield from _members(name, item)
        case dict():
            for key, item in node.items():
                yield from (item,) if key == name else _members(name, item)
        case _:  # nothing is within a text or a number
            return


def _categories(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Of Polars' Enum: each with its length in bytes before it, `3;abc`."""
    for key, value in _metadata_of(fields):
        while key.startswith(POLARS_VALUES) and value:
            length, _, value = value.partition(b";")
            yield value[: int(length)].decode("utf-8", "replace")
            value = value[int(length) :]


def _texts_under(name: str, node: Any, *, within: bool = False) -> Iterator[str]:
    """The texts in JSON that are somewhere below a member of that name."""
    match node:
        case str() if within:
            yield node
        case list():
            for item in node:
                yield from _texts_under(name, item, within=within)
        case dict():
            for key, item in node.items():
                yield from _texts_under(name, item, within=within or key == name)
        case _:  # no text
            return


def _without_metadata(raw: bytes, texts: frozenset[str]) -> bytes | None:
    """A schema (Spark's JSON, or Arrow's in Base64) without metadata that names `texts`; None for one that
    cannot be read."""
    try:
        schema = _schema_in(raw)
        if not isinstance(schema, pa.Schema):
            return json.dumps(_without_member("metadata", schema, texts)).encode()
    except _UNREADABLE:
        return None
    fields = [_without_field_metadata(field, texts) for field in schema]
    # The schema's own metadata are the other pairs.
    return base64.b64encode(pa.schema(fields).serialize().to_pybytes())


def _without_field_metadata(field: pa.Field, texts: frozenset[str]) -> pa.Field:
    metadata = field.metadata or {}
    kept = {
        key: value
        for key, value in metadata.items()
        if not key.startswith(POLARS_VALUES) and not names_any(key + value, texts)
    }
    kind = with_inner(field.type, lambda inner: _without_field_metadata(inner, texts))
    return field.with_type(kind).with_metadata(kept or None)


def _without_member(name: str, node: Any, texts: frozenset[str]) -> Any:
    """JSON in which members of that name are emptied if they list values or name one of `texts`."""
    if isinstance(node, list):
        return [_without_member(name, item, texts) for item in node]
    if not isinstance(node, dict):
        return node

    def goes(item: Any) -> bool:
        return (isinstance(item, dict) and SPARK_VALUES in item) or names_any(_dumped(item), texts)

    return {
        key: {} if key == name and goes(item) else _without_member(name, item, texts)
        for key, item in node.items()
    }


def naming(pairs: Iterable[Struct | bytes], texts: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The keys of the pairs that name one of `texts`, and whether an erasure removes that: it stays where
    it is the name of a column, or in a description that readers need (GeoParquet's reference system)."""
    for pair in map(unpack, pairs):
        key, value = pair.get(KeyValue.KEY, b""), pair.get(KeyValue.VALUE, b"")
        if names_any(key, texts) or names_any(value, texts):
            yield key.decode("utf-8", "replace"), list(erased_pairs([pair], texts)) != [pair]


def named_by_file(tree: Struct, texts: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The same of a footer: its pairs, and the name of its writer."""
    yield from naming(tree.get(File.KEY_VALUES, ()), texts)
    if names_any(tree.get(File.CREATED_BY, b""), texts):
        yield "created_by", True


def _without_bounds(raw: bytes) -> bytes | None:
    """GeoParquet's metadata without bounding boxes; None if no reader of it can read it either."""
    try:
        geo = json.loads(raw)
        columns = geo["columns"].values()
        bounded = [column for column in columns if column.pop("bbox", None) is not None]
    except _UNREADABLE:
        return None
    return json.dumps(geo, ensure_ascii=False).encode() if bounded else raw

"""Table properties: every setting a table carries, its default and what it takes; docs/PROPERTIES.md has
their meaning.

Promise: a property that is not set has its default; setting an invalid value is refused, naming the valid
ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from inlay.errors import InvalidRequest
from inlay.format.schema import Primitive, Schema, listed_names
from inlay.record import Record

# Where the records of landed texts are listed that were refused one by one (`ingest.bad_lines`): hidden, so
# that nothing reads them as data.
REFUSED_FOLDER = "_refused"


class Property(Record):
    name: str
    default: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    # What is wrong with a text, if anything is.
    fault: Callable[[str], str | None] | None = None


def listed(text: str, between: str = ",") -> tuple[str, ...]:
    """The parts of a property that is a list.

    >>> listed("id, name,")
    ('id', 'name')
    """
    return tuple(part.strip() for part in text.split(between) if part.strip())


def _formats_fault(text: str) -> str | None:
    known = set(listed(text)) <= {"parquet", "csv", "json"} and "parquet" in listed(text)
    return None if known else "parquet, and csv and json beside it, with commas between"


def _overwrite_fault(text: str) -> str | None:
    if text == "add":
        return None
    return (
        "add. To replace is not possible exactly: once files are compacted, nothing says which rows an "
        "earlier content of a key brought. Rows are replaced by their key (ingest.as=changes, upsert), or "
        "by a condition (overwrite)"
    )


# Properties are in the pointer, which every commit rewrites.
MAX_BYTES = 1024

# Not a setting: the salt of request digests (docs/FORMAT.md, "The ledger"), kept by commits.
LEDGER_SALT = "ledger.salt"
# Nor is this: Arrow types beyond the format's own (`parquet.arrow.declared`).
ARROW_TYPES = "arrow.types"
# Nor this: the orders of ordered categories (`ops.schema.categories`).
ARROW_CATEGORIES = "arrow.categories"
# Nor this: the note that the author of a version left (`format.snapshot`).
COMMIT_NOTE = "commit.note"
# Nor this: the last receipt of an erasure (`plan.receipt_chain`).
RECEIPT_CHAIN = "erasure.chain"
# Nor this: the commit of the memory of deletes (`ops.write.memory`) that the last delete of a change stream
# was remembered by; a table without it has no memory.
REMEMBERED = "changes.remembered"
# Nor this: the last versions whose notes publications look for (`format.snapshot`).
NOTED_VERSIONS = "commit.noted"
# Nor this: the published version that another catalog took the table over at (`ops.hand_over`).
HANDED_OVER = "handed.over"
# Before the names of Iceberg's properties, which engines set.
ICEBERG = "iceberg."
_OWN = (
    *(LEDGER_SALT, ARROW_TYPES, ARROW_CATEGORIES, COMMIT_NOTE, RECEIPT_CHAIN, REMEMBERED),
    *(HANDED_OVER, NOTED_VERSIONS),
)
# Those that nobody may remove, either.
STAYING = (RECEIPT_CHAIN, HANDED_OVER)
# Random, or digests: a short number would be found in them by chance.
OPAQUE = (LEDGER_SALT, RECEIPT_CHAIN, REMEMBERED, NOTED_VERSIONS)

# Those of `plan.change_records`.
CHANGE_PRESETS = (
    *("common", "debezium", "debezium-flat", "dms", "snowflake", "canal", "delta"),
    *("kafka-connect", "kafka-tombstones"),
)
DeleteMode = Literal["tombstone", "vector", "rewrite", "surgery"]
DELETE_MODES: tuple[DeleteMode, ...] = get_args(DeleteMode)

PROPERTIES = {
    p.name: p
    for p in (
        Property("delete.mode", "tombstone", DELETE_MODES),
        Property("update.mode", "tombstone", DELETE_MODES),
        Property("upsert.mode", "tombstone", ("tombstone",)),
        Property("isolation", "snapshot", ("snapshot", "serializable")),
        Property("write.target_file_bytes", str(128 * 2**20), minimum=1024),
        Property("write.row_group_rows", str(1_048_576), minimum=1),
        Property("write.row_group_bytes", str(16 * 2**20), minimum=1024),
        Property("write.bloom_filters", "key"),
        Property("write.compression", "zstd", ("zstd", "snappy", "gzip", "none")),
        Property("schema.evolve", "refuse", ("refuse", "add")),
        Property("stats.columns", "10", minimum=0),
        Property("ledger.days", "14", minimum=1),
        Property("changes.remember_days", "7", minimum=1),
        Property("history.days", "7", minimum=0),
        Property("history.min_versions", "1", minimum=1),
        Property("format.max_version", "2", ("1", "2")),
        Property("gc.grace_days", "7", minimum=0),
        Property(
            "ingest.unused_dictionary_entries", "auto", ("auto", "keep", "reencode", "refuse")
        ),
        Property("ingest.check_statistics", "key", ("key", "all", "none")),
        Property("ingest.check_pages", "no", ("no", "yes")),
        Property("erasure.promised", "no", ("no", "yes")),
        Property("erasure.search", "no", ("no", "yes")),
        Property("ingest.split_bytes", str(64 * 2**20), minimum=0),
        Property("ingest.group_bytes", str(4 * 2**30), minimum=1),
        Property("ingest.folders", "refuse", ("refuse", "text", "spark", "pyarrow")),
        Property("ingest.formats", "parquet", fault=_formats_fault),
        Property("ingest.as", "rows", ("rows", "changes")),
        Property("changes.order", ""),
        Property("changes.operations", "", ("", *CHANGE_PRESETS)),
        Property("changes.op", ""),
        Property("changes.delete_when", ""),
        Property("changes.delete_to", ""),
        Property("ingest.overwrite", "add", fault=_overwrite_fault),
        Property("ingest.bad_lines", "0", minimum=0, maximum=10_000),
        Property("ingest.text_bytes", str(256 * 2**20), minimum=1),
        Property("ingest.columns", ""),
        Property("ingest.delimiter", ""),
        Property("ingest.null", ""),
        Property("ingest.encoding", "utf-8"),
        Property("ingest.date_formats", ""),
        Property("ingest.field_ids", "auto", ("auto", "stamp", "keep")),
        Property("publish.format", "none", ("none", "v3", "v2")),
        Property("publish.version_hint", "yes", ("yes", "no")),
        Property("compact.small_file_bytes", str(32 * 2**20), minimum=0),
        Property("compact.strategy", "auto", ("auto", "pack", "sort", "zorder")),
        Property("compact.columns", ""),
        Property("compact.unit_bytes", str(256 * 2**20), minimum=1024),
        Property("compact.handover_bytes", str(64 * 2**30), minimum=0),
    )
}


class Properties:
    """Typed access to a snapshot's properties."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        return self._values.get(name, PROPERTIES[name].default)

    def number(self, name: str) -> int:
        return int(self.text(name))

    @property
    def adds_columns(self) -> bool:
        """Whether columns of new data are added to the table."""
        return self.text("schema.evolve") == "add"

    @property
    def is_published(self) -> bool:
        """Whether the table is published for other engines."""
        return self.text("publish.format") != "none"


def is_published(values: Mapping[str, str]) -> bool:
    """`Properties.is_published` of these."""
    return Properties(values).is_published


def handed_over(values: Mapping[str, str]) -> int | None:
    """The version that another catalog took the table over at; None: it is this library's. A mark that
    nobody can read is a mark."""
    text = values.get(HANDED_OVER)
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() else 0


def iceberg_properties(values: Mapping[str, str]) -> dict[str, str]:
    """Those that engines set in an Iceberg table, by their names there."""
    return {k.removeprefix(ICEBERG): v for k, v in values.items() if k.startswith(ICEBERG)}


def settings(values: Mapping[str, str]) -> dict[str, str]:
    """The properties that a user has set."""
    return {name: value for name, value in values.items() if name not in _OWN}


def arrow_types(values: Mapping[str, str]) -> dict[int, str]:
    """Field id → declared Arrow type. The property is a JSON object of declarations, each with its field
    ids: `{"zone:Europe/Zurich": "3 7-9"}`. An invalid text declares nothing."""
    try:
        listed = json.loads(values.get(ARROW_TYPES) or "{}")
        types: dict[int, str] = {}
        for text, ids in listed.items():
            for part in ids.split():
                first, _, last = part.partition("-")
                types.update(dict.fromkeys(range(int(first), int(last or first) + 1), text))
        return types
    except (ValueError, AttributeError):
        return {}


def with_arrow_types(values: Mapping[str, str], added: Mapping[int, str]) -> dict[str, str]:
    """The properties with added declarations. Declarations of dropped columns stay: tags and older
    versions may still have the columns."""
    by_text: dict[str, list[int]] = {}
    for field_id, text in sorted({**arrow_types(values), **added}.items()):
        by_text.setdefault(text, []).append(field_id)
    if not by_text:
        return dict(values)
    listed = {text: " ".join(_runs(ids)) for text, ids in by_text.items()}
    written = json.dumps(listed, separators=(",", ":"), ensure_ascii=False)
    return {**values, ARROW_TYPES: written}


def arrow_categories(values: Mapping[str, str]) -> dict[int, tuple[Any, ...]]:
    """Field id → the entries of an ordered category in their order, as values in metadata. An invalid text
    says nothing."""
    try:
        listed = json.loads(values.get(ARROW_CATEGORIES) or "{}")
        return {int(field_id): tuple(dict.fromkeys(e)) for field_id, e in listed.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def categories_text(orders: Mapping[int, Sequence[Any]]) -> str | None:
    """The property for these orders; None where there is none."""
    if not orders:
        return None
    listed = {str(field_id): list(entries) for field_id, entries in sorted(orders.items())}
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def data_in(name: str, value: str) -> str:
    """What of a property's value may be data: of the library's own not the ids of fields, which are numbers
    as rows have them."""
    if name == ARROW_TYPES:
        return "\n".join(arrow_types({name: value}).values()) or value
    if name == ARROW_CATEGORIES:
        orders = arrow_categories({name: value}).values()
        return "\n".join(str(entry) for entries in orders for entry in entries) if orders else value
    return value


def _runs(ids: list[int]) -> Iterator[str]:
    first = last = ids[0]
    for field_id in [*ids[1:], -1]:
        if field_id == last + 1:
            last = field_id
            continue
        yield f"{first}" if first == last else f"{first}-{last}"
        first = last = field_id


def check_properties(values: Mapping[str, Any]) -> dict[str, str]:
    """The values as text. Raises `InvalidRequest` naming the property and its valid values. Names
    outside Inlay's own ("my.owner") are kept unchecked: they must contain a dot."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        text = str(value)
        if name in _OWN and (text or name in STAYING):
            raise InvalidRequest(
                f"property {name} is maintained by the library",
                next_step="It stays as it is"
                if name in STAYING
                else "It can be removed, but not set",
            )
        if max(_size(name), _size(text)) > MAX_BYTES:
            raise InvalidRequest(
                f"property {name[:50]!r} is not text of at most {MAX_BYTES} bytes of UTF-8",
                next_step="Store the value elsewhere, and its location here",
            )
        known = PROPERTIES.get(name)
        if known is None:
            prefix = name.partition(".")[0]
            ours = any(p.startswith(prefix + ".") or p == prefix for p in PROPERTIES)
            if "." not in name or ours:
                raise InvalidRequest(
                    f"unknown property {name!r}",
                    next_step=f"Known ones: {', '.join(sorted(PROPERTIES))}",
                )
        elif (takes := _fault(known, text)) is not None:
            raise InvalidRequest(
                f"property {name} cannot be {text[:80]!r}", next_step=f"It takes {takes}"
            )
        texts[name] = text
    return texts


def _fault(known: Property, text: str) -> str | None:
    """What the property takes, where it does not take a text."""
    if known.choices:
        return None if text in known.choices else f"one of: {', '.join(known.choices)}"
    if known.minimum is not None:
        is_number = text.isascii() and text.isdigit()
        if is_number and known.minimum <= int(text) <= (known.maximum or int(text)):
            return None
        most = "" if known.maximum is None else f" to {known.maximum}"
        return f"a whole number from {known.minimum}{most}"
    return None if known.fault is None else known.fault(text)


def columns_of(name: str, text: str) -> Sequence[str]:
    """The columns that a property names, as they are written there; none of one that names no columns."""
    return () if name not in _OF_COLUMNS or text in _NO_COLUMNS else listed_names(text)


def check_named_columns(values: Mapping[str, str | None], schema: Schema) -> None:
    """Raises `InvalidRequest` where a property that is set names a column that the table does not have, or
    that it does not apply to. One that is dropped later is gone by."""
    for name, applies in _OF_COLUMNS.items():
        for column in columns_of(name, values.get(name) or ""):
            field = schema.column_named(column)
            if field is None or not (isinstance(field.type, Primitive) and applies(field.type)):
                known = (
                    f.name
                    for f in schema.fields
                    if isinstance(f.type, Primitive) and applies(f.type)
                )
                what = "is no column" if field is None else f"is {field.type}"
                raise InvalidRequest(
                    f"property {name} names {column[:80]!r}, which {what}",
                    next_step=schema.other_case(column) or f"It takes: {', '.join(known)}",
                )


_NO_COLUMNS = ("", "key", "none")
_OF_COLUMNS: dict[str, Callable[[Primitive], bool]] = {
    "write.bloom_filters": lambda kind: kind.is_integer or kind.family in ("text", "bytes"),
    "compact.columns": lambda _: True,
    "changes.order": lambda _: True,
    "changes.delete_to": lambda kind: kind.name in ("bool", "timestamp", "timestamptz"),
}


def _size(text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:  # an unpaired surrogate cannot be stored
        return MAX_BYTES + 1

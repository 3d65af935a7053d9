"""What may still name what was erased, and stays: how a receipt says so.

Promise: a `KeptPlace` has no value, and no name that the erasure asks for. `kept_in_metadata` finds every
place in the table's own metadata that an erasure does not rewrite: names and comments of columns, defaults,
properties, branches and tags, partition fields, streaming queries, and keys of files that the table uses
where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inlay.format.entry import DataFile
from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.properties import COMMIT_NOTE, LEDGER_SALT, PROPERTIES
from inlay.format.schema import Primitive, Value
from inlay.format.snapshot import Snapshot
from inlay.plan.erasure import named_defaults
from inlay.plan.pruning.literals import texts_of
from inlay.plan.pruning.mentions import Mentions
from inlay.plan.pruning.readings import names_any

WITHHELD = "(a name that may be data)"
# A name that programs give. Any other may be data, and a receipt stays: later erasures do not reach it.
_PROGRAMS_NAME = re.compile(r"(?!.*\d{4})[A-Za-z][A-Za-z0-9_.:#-]{0,99}")


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A place that may name what was erased and stays: `kind` of place, `name` of the file or column;
    `detail` within it. Never a value."""

    kind: str
    name: str
    detail: str

    @property
    def as_json(self) -> list[str]:
        return [self.kind, self.name, self.detail]


def pair_name(name: str, texts: frozenset[str]) -> str:
    """The name of a key-value pair, or of an object's metadata, as a receipt may have it: one as
    programs give."""
    return shown_name(name, texts) if _PROGRAMS_NAME.fullmatch(name) else WITHHELD


def shown_name(name: str, texts: frozenset[str]) -> str:
    """A name that the table or its owner needs to find the place; withheld if it is what was erased."""
    return WITHHELD if _names(name, texts) else name


def kept_in_metadata(
    predicate: Predicate, snapshot: Snapshot, files: Iterable[DataFile]
) -> Iterator[KeptPlace]:
    """Places in the metadata of a table (`snapshot` of main, with `files` of it and of all branches and
    tags) that name a value of the predicate. A range names no value, but selects defaults; for other places
    see `perhaps_in_metadata`."""
    texts = texts_of(predicate)
    seen: set[KeptPlace] = set()
    for schema in snapshot.schemas:
        for path, field in schema.walk():
            name = ".".join(path)
            shown = shown_name(name, texts)
            if shown == WITHHELD:
                seen.add(KeptPlace("column", shown, "its name"))
            if _names(field.doc or "", texts):
                seen.add(KeptPlace("column", shown, "its comment"))
    yield from sorted(seen, key=lambda place: place.as_json)
    defaults = {
        ".".join(path)
        for schema in snapshot.schemas
        for path, field in schema.walk()
        if isinstance(field.type, Primitive)
        and field.default is not None
        # Also of columns that the erasure does not ask for.
        and any(_names(text, texts) for text in _spelled(field.id, field.type, field.default))
    }
    for name in sorted(defaults | named_defaults(predicate, snapshot.schemas)):
        yield KeptPlace("default", shown_name(name, texts), "of the column")
    for name, value in sorted(snapshot.properties.items()):
        # The salt is random: a short number would be found in it by chance.
        if name != LEDGER_SALT and _names(f"{name}\n{value}", texts):
            yield KeptPlace("property", shown_name(name, texts), "of the table")
    for name, ref in sorted(snapshot.refs.items()):
        if _names(name, texts):
            yield KeptPlace(ref.kind, WITHHELD, "its name")
    for partition in {f.name for spec in snapshot.specs for f in spec.fields}:
        if _names(partition, texts):
            yield KeptPlace("partition field", WITHHELD, "its name")
    for query in snapshot.ledger.streams:
        if _names(query, texts):
            yield KeptPlace("streaming query", WITHHELD, "its name")
    for entry in files:
        if entry.adopted and _names(entry.key, texts):
            yield KeptPlace("file", WITHHELD, "the key of an adopted file")


def perhaps_in_metadata(
    mentions: Mentions, texts: frozenset[str], snapshot: Snapshot, files: Iterable[DataFile]
) -> Iterator[tuple[str, str]]:
    """(kind, name) of each place there with a number, date or word that a condition selects which names no
    value."""

    def selects(text: str) -> bool:
        return mentions.may_select(text.encode("utf-8", "surrogatepass"))

    fields = {
        (".".join(path), field.doc or "")
        for schema in snapshot.schemas
        for path, field in schema.walk()
    }
    for name, comment in sorted(fields):
        if selects(comment):
            yield "comment of column", shown_name(name, texts)
    for name, value in sorted(snapshot.properties.items()):
        # The values of others are settings, a random salt, and a note that goes with the version.
        is_free = name not in PROPERTIES and name not in (LEDGER_SALT, COMMIT_NOTE)
        if is_free and (selects(name) or selects(value)):
            yield "property", shown_name(name, texts)
    names = [
        *(("column", name) for name in sorted({name for name, _ in fields})),
        *((ref.kind, name) for name, ref in sorted(snapshot.refs.items())),
        *(("partition field", f.name) for spec in snapshot.specs for f in spec.fields),
        *(("streaming query", query) for query in snapshot.ledger.streams),
        *(("key of an adopted file", entry.key) for entry in files if entry.adopted),
    ]
    yield from ((f"name of a {kind}", "") for kind, name in names if selects(name))


def _spelled(field_id: int, kind: Primitive, value: Value) -> frozenset[str]:
    return texts_of(Comparison(field_id, "=", Literal(kind, value)))


def _names(text: str, texts: frozenset[str]) -> bool:
    return names_any(text.encode("utf-8", "surrogatepass"), texts)

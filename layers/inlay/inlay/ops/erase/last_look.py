"""The last check of an erasure: every remaining file is opened before the predicate is forgotten.

Promise: `search_files` searches every live file of main, branches and tags for values that the predicates
name, outside its rows (dictionaries, bounds, page indexes, Bloom filters, key-values, gaps; user metadata
and tags of files that came from elsewhere), and the table's own metadata, once for all erasures, and
reports each place it found and each file it could not search. A file whose rows are all older than the
erasure is rewritten if a value is found in it; values found in newer files came with newer data, and the
receipt names those files.

Why here: after the step to `purge` the values to search for are unknown. Why nothing enters afterwards:
that step is refused on a base with a live file that was not searched (`plan.erasure.validate_erasure`), and
a file made from an older object has a marker of the erasure until it has been searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote_plus

from inlay.errors import ErrorKind, InlayError
from inlay.format.entry import DataFile
from inlay.format.predicate import Predicate, field_ids
from inlay.format.schema import Schema
from inlay.format.snapshot import Erasure
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.kept import (
    KeptPlace,
    kept_in_metadata,
    pair_name,
    perhaps_in_metadata,
    shown_name,
)
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.read.ranges import Source
from inlay.parquet.read.reader import Wanted, open_file
from inlay.parquet.read.row_groups import plan_groups
from inlay.parquet.surgery.residue import Residue, Searched, search_open
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.pruning.mentions import Mentions
from inlay.plan.pruning.readings import names_any
from inlay.plan.scan.scan import FileTask
from inlay.storage.base import Head

# The names in a landed object's own metadata that are reported; never its values.
_USER = "metadata"
_HEADER = "header"


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """One live file. `how` is why it is known to hold no erased row: its "rows", "bounds" that this library
    wrote, or that it is "newer" than the erasures. `residues` are places in it that name an erased value
    which no row there has; `perhaps` places as of `Searched.perhaps`; `failure` is why it could not be
    searched."""

    entry: DataFile
    how: str
    residues: tuple[Residue, ...] = ()
    key_values: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    perhaps: tuple[tuple[str, str], ...] = ()
    failure: str | None = None
    requests: int = 0
    bytes: int = 0

    def kept(self, texts: frozenset[str]) -> tuple[KeptPlace, ...]:
        """The places, as a receipt may name them that is about `texts`."""
        key = shown_name(self.entry.key, texts) if self.entry.adopted else self.entry.key
        found = [KeptPlace("file", key, _in_words(r)) for r in self.residues]
        found += [KeptPlace("object", key, name) for name in self.described]
        if self.failure is not None:
            found.append(KeptPlace("unsearched", key, self.failure))
        return tuple(found)


def _in_words(found: Residue) -> str:
    where = "" if found.row_group is None else f" of row group {found.row_group}"
    # The name of a pair may itself be a value.
    column = f" of column {found.column}" if found.column and found.where != "key-value" else ""
    return f"{found.where}{column}{where}" + ("" if found.certain else ", perhaps")


@dataclass(slots=True)
class LastCheck:
    """What was searched, on `version`. Searched files are not searched again when the check is repeated for
    the same erasures on a later base."""

    predicate: Predicate
    opened_version: int
    version: int = 0
    date_us: int = 0
    files: dict[str, SearchedFile] = field(default_factory=dict)
    metadata: tuple[KeptPlace, ...] = ()
    columns: tuple[str, ...] = ()
    # Of the table's own metadata, as `SearchedFile.perhaps` of a file.
    table_perhaps: tuple[tuple[str, str], ...] = ()
    open_columns: tuple[str, ...] = ()
    # Objects of the landing zone that were not ingested and may name a value.
    landed_perhaps: int = 0
    # Of `originals.find_originals`, in versions from this one on.
    originals: Mapping[str, int] = field(default_factory=dict)
    originals_since: int = 0

    @property
    def texts(self) -> frozenset[str]:
        return texts_of(self.predicate)

    @property
    def perhaps(self) -> Mapping[tuple[str, str], int]:
        """Places that stay and may have a value which the condition on `open_columns` selects, each with
        the number of files, or of places in the table's metadata."""
        texts = self.texts
        return Counter(
            (kind, pair_name(name, texts) if name else "")
            for f in self.files.values()
            for kind, name in dict.fromkeys(f.perhaps)
        ) + Counter([*self.table_perhaps, *[("landed object", "")] * self.landed_perhaps])

    @property
    def requests(self) -> int:
        return sum(f.requests for f in self.files.values())

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files.values())

    @property
    def kept(self) -> list[KeptPlace]:
        return [*(k for f in self.files.values() for k in f.kept(self.texts)), *self.metadata]

    @property
    def searched_in_part(self) -> int:
        """Files of other writers of which only `columns` were searched: they lost no row."""
        return sum(f.entry.is_foreign and f.entry.origin is None for f in self.files.values())

    @property
    def key_values(self) -> Mapping[str, int]:
        """Names of key-value pairs that other writers left, and the number of files with each."""
        return Counter(name for f in self.files.values() for name in f.key_values)

    def to_write_anew(self) -> list[DataFile]:
        """Files whose rows are all older than the erasures, with erased values outside their rows."""
        return [
            f.entry
            for f in self.files.values()
            if f.how != "newer" and any(r.certain for r in f.residues)
        ]


def begin_check(erasures: Sequence[Erasure]) -> LastCheck:
    """A check for these erasures, which have their predicates."""
    asked = tuple(e.predicate for e in erasures if e.predicate is not None)
    return LastCheck(any_of(asked), min(e.opened_version for e in erasures))


def search_files(
    ctx: Context,
    look: LastCheck,
    contents: Iterable[tuple[str | None, LoadedTable]],
    table: LoadedTable,
) -> None:
    """Searches the live files of these contents that `look` has not searched. Raises what an unavailable
    store raises; a file that cannot be searched is recorded."""
    entries: dict[str, tuple[DataFile, Schema, Schema]] = {}
    for _, each in contents:
        snapshot = each.snapshot
        for entry in each.state.files():
            entries.setdefault(
                entry.key, (entry, snapshot.schema_by_id(entry.schema_id), snapshot.schema)
            )
    look.files = {key: f for key, f in look.files.items() if key in entries}
    missing = [found for key, found in entries.items() if key not in look.files]

    def search(found: tuple[DataFile, Schema, Schema]) -> SearchedFile:
        return _search_file(ctx, look, *found)

    for searched in ctx.map(search, missing):
        look.files[searched.entry.key] = searched
    look.version, look.date_us = table.snapshot.version, table.date_us
    live = [f.entry for f in look.files.values()]
    look.metadata = tuple(kept_in_metadata(look.predicate, table.snapshot, live))
    look.columns = _named(table, field_ids(look.predicate))
    mentions = Mentions.of(look.predicate)
    look.open_columns = _named(table, {field_id for field_id, _, _ in mentions.columns})
    look.table_perhaps = tuple(perhaps_in_metadata(mentions, look.texts, table.snapshot, live))


def _named(table: LoadedTable, ids: Collection[int]) -> tuple[str, ...]:
    schemas = table.snapshot.schemas
    return tuple(sorted({".".join(p) for s in schemas for p, f in s.walk() if f.id in ids}))


def _search_file(
    ctx: Context, look: LastCheck, entry: DataFile, recorded: Schema, schema: Schema
) -> SearchedFile:
    if entry.newest_rows > look.opened_version:
        how = "newer"
    elif entry.is_foreign or (entry.sequence or 0) >= look.opened_version:
        how = "rows"
    else:
        how = "bounds"
    # This runs in a task of the executor: waiting for other tasks of it could block for ever.
    inline = InlineExecutor()
    found = SearchedFile(entry, how)
    try:
        is_cached = ctx.objects.cache.get(entry.key) is not None
        task = FileTask(file=entry, schema=recorded, predicate=look.predicate)
        wanted = Wanted(schema=schema, columns=())
        opened = open_file(ctx.objects, task, wanted, inline)
        # Files of this library name nothing but their rows: if the footer rules these out, nothing is left.
        is_open = entry.is_foreign or any(True for _ in plan_groups(opened, wanted))
        searched = search_open(opened, look.predicate, inline) if is_open else Searched()
        fetched = 0 if is_cached else len(opened.tail if opened.body is None else opened.body)
        found = replace(
            found,
            residues=searched.residues,
            requests=searched.requests + (not is_cached),
            bytes=searched.bytes + fetched,
        )
        if entry.is_foreign:
            texts = look.texts
            names = tuple(pair_name(name, texts) for name in searched.key_values)
            said_outside, unread = said_of_object(
                ctx.objects.source(entry.key, entry.size, entry.etag)
            )
            mentions = Mentions.of(look.predicate)
            found = replace(
                found,
                key_values=names,
                described=tuple(
                    f"{kind} {pair_name(name, texts)}"
                    for kind, name, text in said_outside
                    if names_any(text, texts)
                ),
                perhaps=(
                    *searched.perhaps,
                    *((kind, n) for kind, n, text in said_outside if mentions.may_select(text)),
                    *([("unread tags", "")] if unread else ()),
                ),
                requests=found.requests + 1,
            )
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        text = error.message.encode("utf-8", "surrogatepass")
        is_plain = not names_any(text, look.texts)
        found = replace(found, failure=error.message if is_plain else type(error).__name__)
    return found


def said_of_object(source: Source) -> tuple[list[tuple[str, str, bytes]], bool]:
    """User metadata, tags and headers of an object: kind, name, and what it says; and whether it has tags
    that may not be read. One HEAD."""
    with source.asking():
        head = source.store.head(source.key, version_id=source.version_id)
    if not isinstance(head, Head):
        return [], False
    said = [
        *((_USER, name, f"{name} {value}") for name, value in head.info.metadata.items()),
        *((_HEADER, name, unquote_plus(value)) for name, value in head.info.headers.items()),
    ]
    found = [(kind, name, text.encode("utf-8", "surrogatepass")) for kind, name, text in said]
    return found, head.info.unread_tags

"""The last check of an erasure: every remaining file is opened before the predicate is forgotten, and what
may still name what was erased is noted for the receipt.

Promise: `search_files` searches every live file of main, branches and tags for values that the predicates
name, outside its rows (dictionaries, bounds, page indexes, Bloom filters, key-values, gaps; user metadata
and tags of files that came from elsewhere), and the table's own metadata, once for all erasures, and
reports each place it found and each file it could not search. A file whose rows are all older than the
erasure is rewritten if a value is found in it; values found in newer files came with newer data, and the
receipt names those files.

Why here: after the step to `purge` the values to search for are unknown. Why nothing enters afterwards:
that step is refused on a base with a live file that was not searched (`plan.change.OnlyFiles`), and a file
made from an older object has a marker of the erasure until it has been searched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from typing import Literal as Choice
from urllib.parse import unquote_plus

from inlay.errors import ErrorKind, InlayError
from inlay.format.entry import DataFile
from inlay.format.predicate import Comparison, Literal, Predicate, field_ids
from inlay.format.properties import COMMIT_NOTE, OPAQUE, PROPERTIES, data_in
from inlay.format.schema import Primitive
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.maintain.expire import History, Roots
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.refs import LiveFile, RefContents, live_files
from inlay.parquet.read.data_file import plan_groups
from inlay.parquet.read.ranges import Source
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import Residue, Searched, find_residue
from inlay.plan.erasure import Waiting, named_defaults
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.plan.scan import FileTask
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import Head, ObjectVersion, Upload

if TYPE_CHECKING:
    from inlay.format.landing import LandedKind

WITHHELD = "(a name that may be data)"
# A name that programs give. Any other may be data, and a receipt stays: later erasures do not reach it.
_PROGRAMS_NAME = re.compile(r"(?!.*\d{4})[A-Za-z][A-Za-z0-9_.:#-]{0,99}")


class KeptPlace(Record):
    """A place that may name what was erased and stays: `kind` of place, `name` of the file or column;
    `detail` within it. Never a value.

    It has no name that the erasure asks for. `kept_in_metadata` finds every place in the table's own
    metadata that an erasure does not rewrite: names and comments of columns, defaults, properties, branches
    and tags, partition fields, streaming queries, and keys of files that the table uses where they are.
    """

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
    predicate: Predicate,
    snapshot: Snapshot,
    files: Iterable[DataFile],
    shown: Callable[[str], str],
) -> Iterator[KeptPlace]:
    """Places in the metadata of a table (`snapshot` of main, with `files` of it and of all branches and
    tags) that name a value of the predicate. A range names no value, but selects defaults; for other places
    see `perhaps_in_metadata`. `shown` is a name as a receipt may have it."""
    texts = texts_of(predicate)
    seen: set[KeptPlace] = set()
    for schema in snapshot.schemas:
        for path, column in schema.walk():
            name = ".".join(path)
            if _names(name, texts):
                seen.add(KeptPlace("column", WITHHELD, "its name"))
            if _names(column.doc or "", texts):
                seen.add(KeptPlace("column", shown(name), "its comment"))
    yield from sorted(seen, key=lambda place: place.as_json)
    defaults = {
        ".".join(path)
        for schema in snapshot.schemas
        for path, field in schema.walk()
        if isinstance(field.type, Primitive)
        and field.default is not None
        # Also of columns that the erasure does not ask for.
        and any(
            _names(text, texts)
            for text in texts_of(Comparison(field.id, "=", Literal(field.type, field.default)))
        )
    }
    for name in sorted(defaults | named_defaults(predicate, snapshot.schemas)):
        yield KeptPlace("default", shown(name), "of the column")
    for name, value in sorted(snapshot.properties.items()):
        if name not in OPAQUE and _names(f"{name}\n{data_in(name, value)}", texts):
            yield KeptPlace("property", shown(name), "of the table")
    for kind, name in dict.fromkeys(_named_places(snapshot)):
        if _names(name, texts):
            yield KeptPlace(kind, WITHHELD, "its name")
    for entry in files:
        if entry.adopted and _names(entry.key, texts):
            yield KeptPlace("file", WITHHELD, "the key of an adopted file")


def _named_places(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """(kind, name) of what has a name in the metadata of a table, but for its columns."""
    yield from ((ref.kind, name) for name, ref in sorted(snapshot.refs.items()))
    yield from (("partition field", f.name) for spec in snapshot.specs for f in spec.fields)
    yield from (("streaming query", query) for query in snapshot.ledger.streams)


def perhaps_in_metadata(
    mentions: Mentions,
    snapshot: Snapshot,
    files: Iterable[DataFile],
    shown: Callable[[str], str],
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
            yield "comment of column", shown(name)
    for name, value in sorted(snapshot.properties.items()):
        # The values of others are settings, a random salt, and a note that goes with the version.
        is_free = name not in PROPERTIES and name not in (*OPAQUE, COMMIT_NOTE)
        if is_free and (selects(name) or selects(data_in(name, value))):
            yield "property", shown(name)
    names = [
        *(("column", name) for name in sorted({name for name, _ in fields})),
        *_named_places(snapshot),
        *(("key of an adopted file", entry.key) for entry in files if entry.adopted),
    ]
    yield from ((f"name of a {kind}", "") for kind, name in names if selects(name))


def _names(text: str, texts: frozenset[str]) -> bool:
    return names_any(text.encode("utf-8", "surrogatepass"), texts)


_VALUE = re.compile(r"=[^/]*")
HIDDEN = "*"

Said = Choice["nothing", "names", "perhaps", "waived"]
Presence = Choice["there", "gone", "unknown"]


def find_originals(
    ctx: Context, look: LastCheck, since_us: int, history: History
) -> Mapping[str, int]:
    """The names of originals as a receipt may have them, and the number of each. `since_us` is how long ago
    readers of a version may have begun. Needs each version that is still there: a GET, which the collection
    of garbage that follows in the run does not repeat.

    Originals are files that the table adopted where they are, and no longer uses; an erasure leaves them.
    This finds every such file that a version still there names, on main, branches and tags, whatever
    replaced it: the erasure, a compaction before it, a drop. Which of them hold erased rows is not judged:
    they may no longer be readable from here. Their owner has to delete them, and the rest of the table they
    came from. No value is written down: `shown_original` has `*` for the values in a path.
    """
    roots = Roots(ctx, since_us, history)
    roots.add(look.table.state)
    originals, texts = roots.needed - look.files.keys(), look.texts
    shown = (shown_original(name, texts) for name in originals if "://" in name)
    return dict(sorted(Counter(shown).items()))


def shown_original(uri: str, texts: frozenset[str]) -> str:
    """
    >>> shown_original("s3://b/people/mail=ada%40example.org/part-0.parquet", frozenset())
    's3://b/people/mail=*/part-0.parquet'
    """
    return shown_name(_VALUE.sub("=" + HIDDEN, uri), texts)


def look_for(ctx: Context, names: Iterable[str]) -> Mapping[str, Presence]:
    """Whether the originals of these names exist now; "unknown" where a name is not a whole one, or the
    place cannot be looked at. One HEAD each."""

    def look(name: str) -> Presence:
        if "://" not in name or HIDDEN in name:
            return "unknown"
        try:
            source = ctx.objects.source(name)
            return "there" if isinstance(source.store.head(source.key), Head) else "gone"
        except InlayError as error:
            if error.kind is ErrorKind.RETRY:
                raise
            return "unknown"

    listed = list(names)
    return dict(zip(listed, ctx.map(look, listed), strict=True))


# The names in a landed object's own metadata that are reported; never its values.
_USER = "metadata"
_HEADER = "header"


class SearchedFile(Record):
    """One live file. `residues` are places in it that name an erased value which no row there has;
    `perhaps` places as of `Searched.perhaps`; `failure` is why it could not be searched."""

    live: LiveFile
    residues: tuple[Residue, ...] = ()
    key_values: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    perhaps: tuple[tuple[str, str], ...] = ()
    failure: str | None = None
    requests: int = 0
    bytes: int = 0

    @property
    def names_any(self) -> bool:
        return bool(self.residues or self.described or self.perhaps)

    def kept(self, texts: frozenset[str]) -> tuple[KeptPlace, ...]:
        """The places, as a receipt may name them, by none of `texts`."""
        entry = self.live.entry
        key = shown_name(entry.key, texts) if entry.adopted else entry.key
        places = [KeptPlace("file", key, _in_words(r)) for r in self.residues]
        places += [KeptPlace("object", key, name) for name in self.described]
        if self.failure is not None:
            places.append(KeptPlace("unsearched", key, self.failure))
        return tuple(places)


def _in_words(residue: Residue) -> str:
    where = "" if residue.row_group is None else f" of row group {residue.row_group}"
    # The name of a pair may itself be a value.
    column = (
        f" of column {residue.column}" if residue.column and residue.where != "key-value" else ""
    )
    return f"{residue.where}{column}{where}" + ("" if residue.certain else ", perhaps")


class NeverTaken(Record):
    """An object of the landing zone that ingestion will never take, or that an operator waived. It stays:
    whether it names what was erased, `where` in it, or why that is uncertain."""

    version: ObjectVersion
    kind: LandedKind
    said: Said
    where: str = ""


class Landing(Record):
    """Objects in the landing zone from before an erasure: `dead` and `ingested` versions can be deleted;
    `waiting` says why some must wait; `perhaps` are data that may name erased rows, `others` what ingestion
    will never take: both are kept."""

    dead: tuple[ObjectVersion, ...] = ()
    uploads: tuple[Upload, ...] = ()
    ingested: tuple[ObjectVersion, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    perhaps: tuple[ObjectVersion, ...] = ()
    others: tuple[NeverTaken, ...] = ()


How = Choice["rows", "bounds", "newer"]


def how_known(newest_rows: int, sequence: int, is_foreign: bool, opened_version: int) -> How:
    """Why a live file is known to hold no row of an erasure that no file has to be rewritten for: its rows
    were read, bounds that this library wrote rule it out, or all of its rows are newer."""
    if newest_rows > opened_version:
        return "newer"
    return "rows" if is_foreign or sequence >= opened_version else "bounds"


class Findings(Record, kw_only=True):
    """What the last look found of one erasure: nothing of others that take the step with it.

    `columns` are those that its condition names; `perhaps` are places that stay and may have a value which
    the condition on `open_columns` selects, each with the number of files, or of places in the table's
    metadata; `landed` are objects of the landing zone that stay."""

    columns: tuple[str, ...]
    open_columns: tuple[str, ...]
    kept: tuple[KeptPlace, ...]
    perhaps: tuple[tuple[str, str, int], ...]
    landed: tuple[NeverTaken, ...]
    # Of the property `erasure.search`: column, rows, files. None: not searched.
    rows_with: tuple[tuple[str, int, int], ...] | None = None


class LastCheck(Mutable):
    """What was searched, of `table`, for all of `asked` at once: conditions by erasure, with the versions
    that opened them. Searched files are not searched again when the check is repeated for the same erasures
    on a later base."""

    asked: Mapping[str, Predicate]
    opened: Mapping[str, int]
    table: LoadedTable
    files: dict[str, SearchedFile] = field(default_factory=dict)
    # What is left in the landing zone, by erasure.
    landed: Mapping[str, Landing] = field(default_factory=dict)
    # Of `find_originals`.
    originals: Mapping[str, int] = field(default_factory=dict)
    # Rows with a text of a condition, by file (`ops.erase.subject`), where they are searched for.
    rows: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    # Of searches that told apart which erasure a finding is of.
    more_requests: int = 0
    more_bytes: int = 0

    @property
    def predicate(self) -> Predicate:
        return any_of(list(self.asked.values()))

    @property
    def texts(self) -> frozenset[str]:
        """What no place may be named by."""
        return texts_of(self.predicate)

    @property
    def requests(self) -> int:
        return sum(f.requests for f in self.files.values()) + self.more_requests

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files.values()) + self.more_bytes

    @property
    def searched_in_part(self) -> int:
        """Files of other writers of which only the condition's columns were searched: they lost no row."""
        entries = (f.live.entry for f in self.files.values())
        return sum(entry.is_foreign and entry.origin is None for entry in entries)

    @property
    def key_values(self) -> Mapping[str, int]:
        """Names of key-value pairs that other writers left, and the number of files with each."""
        return Counter(name for f in self.files.values() for name in f.key_values)


def search_files(ctx: Context, look: LastCheck, contents: RefContents) -> None:
    """Searches the live files of these contents that `look` has not searched. Raises what an unavailable
    store raises; a file that cannot be searched is recorded."""
    live = live_files(contents)
    look.files = {key: replace(f, live=live[key]) for key, f in look.files.items() if key in live}
    search = _search(ctx, look, sorted(look.asked))
    for searched in ctx.map(search, [file for key, file in live.items() if key not in look.files]):
        look.files[searched.live.entry.key] = searched


def named_by_older_files(ctx: Context, look: LastCheck) -> dict[str, list[str]]:
    """By file, the erasures that it names a value of beside its rows, although it is older than them: it
    has to be written again. Values in newer files came with newer rows."""
    names_by_file: dict[str, list[str]] = {}
    for file in look.files.values():
        if any(r.certain for r in file.residues):
            entry = file.live.entry
            older = [n for n in sorted(look.asked) if entry.newest_rows <= look.opened[n]]
            named = _told_apart(ctx, look, file, older) if older else ()
            names = [n for n, own in named if any(r.certain for r in own.residues)]
            if names:
                names_by_file[entry.key] = names
    return names_by_file


def findings_of(ctx: Context, look: LastCheck) -> dict[str, Findings]:
    """What was found, by erasure. A file with a finding is searched again with half of the erasures, until
    it is known whose it is: few files have any."""
    table, hidden = look.table, look.texts
    # Each name is held to all texts once, not once for each erasure.
    shown = cache(lambda name: shown_name(name, hidden))
    entries = [f.live.entry for f in look.files.values()]
    by_erasure: dict[str, list[SearchedFile]] = {name: [] for name in look.asked}
    for file in look.files.values():
        if not file.names_any:
            continue
        for name, own in _told_apart(ctx, look, file, sorted(look.asked)):
            by_erasure[name].append(own)
    unsearched = [f for f in look.files.values() if f.failure is not None and not f.names_any]
    findings = {}
    for name, predicate in look.asked.items():
        mentions = Mentions.of(predicate)
        places = [*by_erasure[name], *unsearched]
        perhaps = Counter(
            (kind, pair_name(place, hidden) if place else "")
            for file in places
            for kind, place in dict.fromkeys(file.perhaps)
        )
        perhaps.update(perhaps_in_metadata(mentions, table.snapshot, entries, shown))
        landing = look.landed.get(name)
        if landing is not None and landing.perhaps:
            perhaps["landed object", ""] += len(set(landing.perhaps))
        findings[name] = Findings(
            columns=_named(table, field_ids(predicate)),
            open_columns=_named(table, {field_id for field_id, _, _ in mentions.columns}),
            kept=(
                *(place for file in places for place in file.kept(hidden)),
                *kept_in_metadata(predicate, table.snapshot, entries, shown),
            ),
            perhaps=tuple(sorted((*place, n) for place, n in perhaps.items())),
            landed=() if landing is None else landing.others,
        )
    return findings


def _told_apart(
    ctx: Context, look: LastCheck, searched: SearchedFile, names: Sequence[str]
) -> Iterator[tuple[str, SearchedFile]]:
    """Of these erasures each that has findings in a file, with them; `searched` is of all together."""
    if len(names) == len(look.asked) == 1:
        yield names[0], searched
        return
    own = _search(ctx, look, names)(searched.live)
    look.more_requests += own.requests
    look.more_bytes += own.bytes
    if not own.names_any:
        return
    if len(names) == 1:
        yield names[0], own
        return
    half = len(names) // 2
    for part in (names[:half], names[half:]):
        yield from _told_apart(ctx, look, own, part)


def _search(
    ctx: Context, look: LastCheck, names: Sequence[str]
) -> Callable[[LiveFile], SearchedFile]:
    """The search of a file for these erasures."""
    predicate = any_of([look.asked[name] for name in names])
    newest = max(look.opened[name] for name in names)
    return partial(_search_file, ctx, predicate, newest, look.texts)


def _named(table: LoadedTable, ids: Collection[int]) -> tuple[str, ...]:
    schemas = table.snapshot.schemas
    return tuple(sorted({".".join(p) for s in schemas for p, f in s.walk() if f.id in ids}))


def _search_file(
    ctx: Context, predicate: Predicate, opened_version: int, hidden: frozenset[str], file: LiveFile
) -> SearchedFile:
    entry = file.entry
    # This runs in a task of the executor: waiting for other tasks of it could block for ever.
    inline = InlineExecutor()
    outcome = SearchedFile(file)
    texts = texts_of(predicate)
    try:
        is_cached = ctx.objects.cache.get(entry.key) is not None
        task = FileTask(file=entry, schema=file.recorded, predicate=predicate)
        projection = Projection(schema=file.schema, columns=())
        opened = Reader(ctx.objects, inline).open(task, projection)
        # Files of this library name nothing but their rows: if the footer rules these out, nothing is left.
        is_open = entry.is_foreign or any(True for _ in plan_groups(opened, projection))
        # A Bloom filter of this library has the rows of its file and no others, so what it seems to have
        # besides is chance; and so is what one of a newer file seems to have, whoever wrote it.
        filters = entry.is_foreign and entry.newest_rows <= opened_version
        searched = (
            find_residue(opened, predicate, inline, filters=filters) if is_open else Searched()
        )
        fetched = 0 if is_cached else len(opened.tail if opened.body is None else opened.body)
        outcome = replace(
            outcome,
            residues=searched.residues,
            requests=searched.requests + (not is_cached),
            bytes=searched.bytes + fetched,
        )
        if entry.is_foreign:
            names = tuple(pair_name(name, hidden) for name in searched.key_values)
            source = ctx.objects.source(entry.key, entry.size, entry.etag)
            said_outside, unread = said_of_object(source)
            mentions = Mentions.of(predicate)
            outcome = replace(
                outcome,
                key_values=names,
                described=tuple(
                    f"{kind} {pair_name(name, hidden)}"
                    for kind, name, text in said_outside
                    if names_any(text, texts)
                ),
                perhaps=(
                    *searched.perhaps,
                    *((kind, n) for kind, n, text in said_outside if mentions.may_select(text)),
                    *([("unread tags", "")] if unread else ()),
                ),
                requests=outcome.requests + 1,
            )
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        text = error.message.encode("utf-8", "surrogatepass")
        is_plain = not names_any(text, hidden)
        outcome = replace(outcome, failure=error.message if is_plain else type(error).__name__)
    return outcome


def said_of_object(source: Source) -> tuple[list[tuple[str, str, bytes]], bool]:
    """User metadata, tags and headers of an object: kind, name, and what it says; and whether it has tags
    that may not be read. One HEAD."""
    with source.asking():
        head = source.store.head(source.key, version_id=source.version_id)
    if not isinstance(head, Head):
        return [], False
    texts = [
        *((_USER, name, f"{name} {value}") for name, value in head.info.metadata.items()),
        *((_HEADER, name, unquote_plus(value)) for name, value in head.info.headers.items()),
    ]
    pairs = [(kind, name, text.encode("utf-8", "surrogatepass")) for kind, name, text in texts]
    return pairs, head.info.unread_tags

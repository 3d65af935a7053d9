"""Verify: checks a whole table and reports what is wrong with it.

Promise: reads only, trusts no metadata that it has not checked, and does not stop at the first damage. A
table that only this library wrote has no errors, whatever crashed in between.

1. pointer    whole, of a known format
2. versions   the archive of each retained version, oldest first: whole, rising
3. segments   each once: there, whole, as its references say
4. entries    the newest version's against each other: sequences, markers, totals
5. listing    one LIST of the table: every object that a retained version needs, with its size
6. files      footers against entries, or every page (`depth`)
7. markers    vectors and keys decoded
8. the rest   commits by path upon what is published; objects that nothing needs, unknown objects,
              unfinished uploads

The listing comes after the pointer: what a writer adds meanwhile is younger than that read, and is not
reported as an orphan.

Each step: what cannot be read is reported, and the check continues with the rest; where that
leaves open what the table needs, nothing is reported as an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from inlay.arguments import one_of
from inlay.errors import (
    CorruptTable,
    ForeignCommit,
    InvalidRequest,
    NewerFormat,
    TableNotFound,
    UnreadableFile,
    UnsupportedFile,
)
from inlay.format import keys
from inlay.format.codec import decode_head, decode_snapshot
from inlay.format.entry import (
    DataFile,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Types,
    Vector,
    Where,
)
from inlay.format.keys import ObjectKind, archive_version, classify, segment_key
from inlay.format.schema import Schema
from inlay.format.snapshot import (
    Content,
    HeadObject,
    Segment,
    Snapshot,
    with_content,
)
from inlay.ops.context import Context
from inlay.ops.maintain.expire import DAY_US, list_objects
from inlay.ops.metadata.load import LoadedTable, count_of, decode_segment, resolved, schemas_of
from inlay.parquet.check import Problem, check_footer, check_keys, check_vector
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.plan.change import SegmentKind
from inlay.plan.maintain.roots import MAX_NAMES, Listed, Reachable, Tally, expired_before, tallied
from inlay.plan.metadata.state import Contents, State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.refs import heads, held_versions
from inlay.plan.verify import (
    MAX_VERSIONS,
    Finding,
    Findings,
    Severity,
    check_file_segment,
    check_ledger_segment,
    check_node,
    check_partition,
    check_reference,
    check_refs,
    check_state,
    check_succession,
    check_time_index,
    finding,
    until_expired,
)
from inlay.record import Mutable, Record, field
from inlay.storage.base import Got, Head

T = TypeVar("T")


class BrokenPointer(Record):
    """`etag` and `raw` of the existing bytes; None when there are none."""

    etag: str | None
    raw: bytes
    reason: str
    newest_archive: int | None
    date_us: int


def read_pointer(ctx: Context) -> LoadedTable | BrokenPointer:
    """The pointer, or what is wrong with it. Raises `NewerFormat`: what a later version wrote
    is sound; `TableReplaced` when it is not of the context's table.

    For a check and for a repair: only what decodes as a whole is used.
    """
    answer = ctx.store.get(ctx.key(keys.POINTER))
    if isinstance(answer, Got):
        try:
            return resolved(ctx, answer)
        except CorruptTable as error:
            etag, body, reason = answer.etag, answer.body, error.message
    else:
        etag, body, reason = None, b"", "the pointer does not exist"
    newest = max(archived_versions(ctx), default=None)
    return BrokenPointer(etag, body, reason, newest, answer.date_us)


def archived_versions(ctx: Context) -> list[int]:
    """All versions that have an archive object, in order, by a listing."""
    archives = ctx.store.list(ctx.key(keys.ARCHIVES + "v"))
    versions = (archive_version(ctx.relative(info.key)) for info in archives)
    return sorted(v for v in versions if v is not None)


def check_archive(ctx: Context, data: bytes, version: int, table_id: str) -> Snapshot | str:
    """The snapshot in the archive of `version`, or why these bytes are not it."""
    try:
        snapshot = decode_snapshot(data, key=keys.archive_key(version), apart=schemas_of(ctx))
    except CorruptTable as error:
        return error.message
    if snapshot.version != version:
        return f"holds version {snapshot.version}"
    if snapshot.table_id != table_id:
        return "belongs to another table"
    return snapshot


class TableCheck(Mutable):
    """One check of one table; each step fills in what the next one needs."""

    ctx: Context
    current: Snapshot
    raw: bytes
    date_us: int
    findings: Findings
    reachable: Reachable = field(default_factory=Reachable)
    # Of versions in their grace: nothing is promised for them.
    ending: Reachable = field(default_factory=Reachable)
    segments_read: int = 0
    data: dict[str, DataFile] = field(default_factory=dict)
    marks: dict[str, Marker] = field(default_factory=dict)
    # The content of refs that have their own; None until it was read.
    heads: dict[HeadObject, Content | None] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    contents: Contents = field(default_factory=Contents)
    listed: dict[str, Listed] = field(default_factory=dict)
    # Files and delete objects of the newest version and of refs; None when they cannot be known.
    live: set[str] | None = None
    # Objects known to be broken, which are not worth reading.
    broken: set[str] = field(default_factory=set)
    # Something is missing, so what the rest of the table needs cannot be known.
    blind: bool = False

    @property
    def grace_us(self) -> int:
        return self.current.settings.number("gc.grace_days") * DAY_US

    def versions(self, most: int) -> None:
        current = self.current
        self.findings.extend(check_refs(current))
        held = {v for v in held_versions(current) if 1 <= v < current.version}
        retained = range(current.oldest_version, current.version)
        versions = sorted(held | set(retained[-most:]))
        if len(retained) > most:
            self.blind = True
            skipped = len(retained) - most
            self.findings.add("versions_not_checked", None, f"older versions: {skipped}")
        older: Snapshot | None = None
        for done, read in enumerate(self.ctx.map(self._archive, versions)):
            self.ctx.progress("versions", done + 1, len(versions))
            if (snapshot := self._sound(read)) is not None:
                self._take(snapshot, older)
                older = snapshot
        self._take(current, older)
        self._read_heads()
        self.findings.extend(check_time_index(current, self.times))
        self._expired(most)

    def _read_heads(self) -> None:
        """The contents of branches and tags, as of every version that was read."""
        heads = sorted(self.heads, key=lambda head: head.id)
        for head, read in zip(heads, self.ctx.map(self._head, heads), strict=True):
            if (content := self._sound(read)) is not None:
                self.heads[head] = content
                self.reachable.keys.add(segment_key(head.id))
                self._share(with_content(self.current, content))

    def _sound(self, read: T | Finding) -> T | None:
        """What was read. Where it could not be that is reported, and what it would need stays unknown."""
        if not isinstance(read, Finding):
            return read
        self.blind = True
        self.findings.extend([read])
        return None

    def _segment_as(
        self, segment_id: str, lacks: str, decode: Callable[[bytes, str], T]
    ) -> T | Finding:
        key = segment_key(segment_id)
        answer = self.ctx.get(key)
        if answer is None:
            return finding("segment_missing", key, f"{lacks} cannot be read")
        try:
            return decode(answer.body, key)
        except (CorruptTable, NewerFormat) as error:
            return finding("segment_corrupt", key, error.message)

    def _head(self, head: HeadObject) -> Content | Finding:
        types = Types(self.current.schemas)
        return self._segment_as(
            head.id,
            "the content of a tag or branch",
            lambda body, key: decode_head(body, key=key, types=types),
        )

    def _archive(self, version: int) -> Snapshot | Finding:
        key = keys.archive_key(version)
        answer = self.ctx.get(key)
        if answer is None:
            return finding("archive_missing", key, f"version {version} cannot be read")
        read = check_archive(self.ctx, answer.body, version, self.current.table_id)
        return finding("archive_corrupt", key, read) if isinstance(read, str) else read

    def _take(self, snapshot: Snapshot, older: Snapshot | None) -> None:
        if older is not None:
            self.findings.extend(check_succession(older, snapshot))
        self.times[snapshot.version] = snapshot.commit.time_us
        if snapshot.version >= self.current.oldest_version:
            self.heads |= dict.fromkeys(heads(snapshot))
        tiers = (snapshot.files, snapshot.markers, snapshot.ledger.records)
        for segment in (s for tier in tiers for s in tier.segments):
            self.findings.extend(check_reference(segment, snapshot.version))
        self._share(snapshot)

    def _share(self, snapshot: Snapshot) -> None:
        self.reachable.add(snapshot)
        self.data |= {f.key: f for f in snapshot.files.inline}
        self.marks |= {m.id: m for m in snapshot.markers.inline}

    def _expired(self, most: int) -> None:
        """Versions that expired less than the grace ago: their objects are not orphans yet. Any of them may
        be gone, archives too: a collection with a shorter grace or an erasure ended them."""
        first = expired_before(self.current, before_us=self.date_us - self.grace_us + 1) + 1
        young = [v for v in range(first, self.current.oldest_version) if v not in self.times]
        ending = [s for s in self.ctx.map(self._archive, young[-most:]) if isinstance(s, Snapshot)]
        for snapshot in ending:
            self.ending.add(snapshot)
        for head in set().union(*map(heads, ending)) - self.heads.keys():
            content = self._head(head)
            if isinstance(content, Content):
                self.ending.keys.add(segment_key(head.id))
                self.ending.add(with_content(self.current, content))

    def segments(self) -> None:
        nodes = self._read("nodes", self.reachable.nodes)
        self.reachable.nodes = {i: s for i, s in self.reachable.nodes.items() if i in nodes}
        for node_id, leaves in nodes.items():
            self.findings.extend(check_node(self.reachable.nodes[node_id], leaves))
        self.reachable.open(nodes)
        self.contents = Contents(
            files=self._read("files", self.reachable.files),
            markers=self._read("markers", self.reachable.markers),
            ledger=self._read("ledger", self.reachable.ledger),
            nodes=nodes,
        )
        evidence = Evidence.of_snapshot(self.current)
        for id_, files in self.contents.files.items():
            segment = self.reachable.files[id_]
            self.findings.extend(check_file_segment(segment, files, evidence))
            self.data |= {files[n].key: files[n] for n in self.reachable.live(segment)}
        for id_, marks in self.contents.markers.items():
            live = self.reachable.live(self.reachable.markers[id_])
            self.marks |= {marks[n].id: marks[n] for n in live}
        for id_, records in self.contents.ledger.items():
            self.findings.extend(check_ledger_segment(self.reachable.ledger[id_], records))

    def _read(
        self, kind: SegmentKind, segments: Mapping[str, Segment]
    ) -> dict[str, tuple[Any, ...]]:
        """Those that can be read; the others are reported."""
        items = list(segments.values())
        entries: dict[str, tuple[Any, ...]] = {}
        for segment, read in zip(
            items, self.ctx.map(partial(self._segment, kind), items), strict=True
        ):
            self.segments_read += 1
            self.ctx.progress("segments", self.segments_read, None)
            if (sound := self._sound(read)) is not None:
                entries[segment.id] = sound
        return entries

    def _segment(self, kind: SegmentKind, segment: Segment) -> tuple[Any, ...] | Finding:
        def decode(body: bytes, key: str) -> tuple[Any, ...]:
            entries = decode_segment(kind, body, key=key, types=Types(self.current.schemas))
            count = count_of(kind, entries)
            if (count, len(body)) != (segment.count, segment.size):
                raise CorruptTable(
                    f"holds {count} entries in {len(body)} bytes, its reference says {segment.count} in "
                    f"{segment.size}"
                )
            return tuple(entries)

        return self._segment_as(segment.id, f"{segment.count} entries", decode)

    def entries(self) -> None:
        """Of main, and of each ref with content of its own."""
        live: set[str] = set()
        for state in self._states(self.current):
            if state.missing_files() or state.missing_markers():
                return
            self.findings.extend(check_state(state))
            live |= _objects_of(state)
        self.live = live

    def _states(self, snapshot: Snapshot) -> Iterator[State]:
        yield State(snapshot, self.contents)
        for head in sorted(heads(snapshot), key=lambda h: h.id):
            content = self.heads.get(head)
            if content is not None:
                yield State(with_content(snapshot, content), self.contents)

    def until_they_expire(self) -> None:
        """Of what only older versions need, the finding says up to which, and which ref keeps one."""
        known = {*self.data, *(m.object_key for m in self.marks.values())}
        old = {f.key for f in self.findings.kept if f.key in known} - (self.live or known)
        last: dict[str | None, int] = {}
        for version in sorted(self.times, reverse=True):  # the newest that needs it is mostly near
            if len(last) == len(old):
                break
            needed = self._needed_by(version) & (old - last.keys())
            last |= dict.fromkeys(needed, version)
        kept: dict[str | None, str] = {}
        for name, ref in sorted(self.current.refs.items()) if last else ():
            version = ref.version if ref.head is None else ref.base
            kept |= dict.fromkeys(self._needed_by(version) & last.keys(), name)
        self.findings.kept = [
            until_expired(f, last[f.key], kept.get(f.key)) if f.key in last else f
            for f in self.findings.kept
        ]

    def _needed_by(self, version: int) -> set[str]:
        older = self._archive(version) if 1 <= version < self.current.version else None
        if not isinstance(older, Snapshot):
            return set()
        return set().union(*map(_objects_of, self._states(older)))

    def objects(self) -> None:
        """Whether what is needed exists, with the size in its entry. Adopted files are anywhere: they are
        requested one by one, and by ETag."""
        for item in list_objects(self.ctx):
            self.listed[item.key] = item
        for entry in self.data.values():
            if "://" not in entry.key:
                self._present("file", entry.key, entry.size)
        for marker in self.marks.values():
            if marker.object_key is not None:
                # Of another kind the object may hold more than this marker: its size is not compared.
                size = marker.body.size if isinstance(marker.body, Keys) else None
                self._present("marker", marker.object_key, size)
        adopted = [f for f in self.data.values() if "://" in f.key]
        for entry, problems in zip(adopted, self.ctx.map(self._adopted, adopted), strict=True):
            self._report(entry.key, problems)
        self._archives_ahead()

    def _present(self, what: str, key: str, size: int | None) -> None:
        item = self.listed.get(key)
        if item is None:
            self._report(key, [(f"{what}_missing", "the object does not exist")])
        elif size is not None and item.size != size:
            detail = f"has {item.size} bytes, its entry says {size}"
            self._report(key, [(f"{what}_changed", detail)])

    def _adopted(self, entry: DataFile) -> list[Problem]:
        source = Objects(self.ctx.store, self.ctx.root).source(entry.key)
        with source.asking():
            answer = source.store.head(source.key)
        if not isinstance(answer, Head):
            return [("file_missing", "the adopted object does not exist")]
        if answer.info.size != entry.size or entry.etag not in (None, answer.info.etag):
            return [("file_changed", "the adopted object was overwritten")]
        return []

    def _archives_ahead(self) -> None:
        """An archive of the current version is left by a writer that crashed before its swap. Commits use
        it as their own, so it must have the pointer's exact bytes. One beyond it means that the pointer
        went back, unless commits have landed since it was read."""
        versions = {v: key for key in self.listed if (v := archive_version(key)) is not None}
        own = versions.get(self.current.version)
        if own is not None:
            answer = self.ctx.get(own)
            if answer is not None and answer.body != self.raw:
                self.findings.add("archive_differs", own, "is not the pointer's version")
        if max(versions, default=0) <= self.current.version:
            return
        now = read_pointer(self.ctx)
        newest = self.current.version if isinstance(now, BrokenPointer) else now.snapshot.version
        for version in sorted(v for v in versions if v > newest):
            detail = f"the pointer is at version {newest}, an archive is beyond it"
            self.findings.add("pointer_behind", versions[version], detail)

    def files(self, *, pages: bool) -> None:
        # Never from the context's cache: what counts is what the store has now.
        objects = Objects(self.ctx.store, self.ctx.root)
        reader = Reader(objects, self.ctx.executor)
        schemas = {s.id: s for s in self.current.schemas}
        entries = [f for f in self.data.values() if f.key not in self.broken]

        def footer(entry: DataFile) -> list[Problem]:
            if entry.schema_id not in schemas:
                return [("file_contradicts", f"its entry names schema {entry.schema_id}")]
            return check_footer(objects, entry, schemas[entry.schema_id])

        for done, problems in enumerate(self.ctx.map(footer, entries)):
            self.ctx.progress("footers", done + 1, len(entries))
            self._report(entries[done].key, problems)
        if not pages:
            return
        # Most checks read no page.
        from inlay.parquet.check_pages import check_dictionaries, check_page_index, check_pages

        sound = [f for f in entries if f.key not in self.broken]
        specs = {s.id: s for s in self.current.specs}
        for done, entry in enumerate(sound):
            schema = schemas[entry.schema_id]
            if check_partition(entry, self.current.specs, self.current.schemas) is not None:
                continue  # reported already
            spec = specs[entry.spec_id]
            self._report(entry.key, check_pages(reader, entry, schema, spec=spec))
            if entry.is_foreign and entry.key not in self.broken:
                for kind, message in check_dictionaries(reader, entry, schema):
                    self.findings.add(kind, entry.key, message)
                self._report(entry.key, self._denied(reader, entry, schema))
                self._report(entry.key, check_page_index(reader, entry, schema))
            self.ctx.progress("pages", done + 1, len(sound))

    def _denied(self, reader: Reader, entry: DataFile, schema: Schema) -> list[Problem]:
        """Row groups whose statistics leave out rows, of columns not compared when the file came."""
        from inlay.ops.read.compare_statistics import denied_rows

        columns = tuple(schema.types)
        try:
            names = denied_rows(reader, entry, schema, schema, columns)
        except (UnreadableFile, UnsupportedFile):
            return []  # reported already, or nothing is known of it
        if names is None:
            return []
        return [("statistics_wrong", "a row group's statistics leave out rows that it has")]

    def marker_objects(self) -> None:
        objects = Objects(self.ctx.store, self.ctx.root)
        markers = [
            m for m in self.marks.values() if m.object_key and m.object_key not in self.broken
        ]

        def check(marker: Marker) -> list[Problem]:
            match marker.body:
                case Keys() as body:
                    return check_keys(objects, body, self._schema_with(body.field_ids))
                case Vector() as body:
                    entry = self.data.get(marker.file or "")
                    return check_vector(objects, body, None if entry is None else entry.rows)
                case RowGroups() | KeyRange() | Where() | Rows():
                    return []  # no object: checked with its entry (`plan.verify.check_marker`)

        for done, problems in enumerate(self.ctx.map(check, markers)):
            self.ctx.progress("markers", done + 1, len(markers))
            self._report(markers[done].object_key or "", problems)

    def _schema_with(self, field_ids: Iterable[int]) -> Schema:
        """The newest schema with these columns: a marker of an older version may be of a column that was
        dropped later, once no file was left that the marker could match."""
        known = sorted(self.current.schemas, key=lambda schema: schema.id, reverse=True)
        holding = (s for s in known if s.fields_by_id.keys() >= set(field_ids))
        return next(holding, self.current.schema)

    def _report(self, key: str, problems: list[Problem]) -> None:
        if problems:
            self.broken.add(key)
        for kind, message in problems:
            self.findings.add(kind, key, message)

    def published(self) -> None:
        """Only what is wrong with it: how far it is behind is no fault."""
        if keys.PUBLISHED_POINTER not in self.listed:
            return
        from inlay.ops.metadata.publication import load_hint, load_publication, refuse_foreign

        try:
            publication = load_publication(self.ctx).publication
            refuse_foreign(self.ctx, publication, load_hint(self.ctx), look_ahead=True)
        except ForeignCommit as error:
            key = error.key and self.ctx.relative(error.key)
            self.findings.add("foreign_commit", key, error.message)
        except CorruptTable as error:
            self.findings.add("publication_corrupt", keys.PUBLISHED_POINTER, error.message)

    def rest(self) -> tuple[dict[str, Tally], tuple[str, ...], int]:
        unknown = [k for k in self.listed if classify(k) is ObjectKind.UNKNOWN]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            self.findings.add("unknown_objects", None, f"not of this format: {unknown[0]}{more}")
        before_us = self.date_us - self.grace_us
        uploads = [
            u for u in self.ctx.store.list_uploads(self.ctx.key("")) if u.started_us < before_us
        ]
        if uploads:
            detail = f"older than the grace: {len(uploads)}, the first of {uploads[0].key}"
            self.findings.add("stale_uploads", None, detail)
        orphans = {} if self.blind else self._orphans()
        if self.blind:
            detail = "orphans cannot be determined while metadata cannot be read"
            self.findings.add("orphans_unknown", None, detail)
        for kind, tally in orphans.items():
            detail = f"of kind {kind}, needed by no version: {tally.objects}, {tally.bytes:,} bytes"
            self.findings.add("orphans", None, detail)
        return orphans, tuple(unknown[:MAX_NAMES]), len(unknown)

    def _left(
        self, segments: dict[str, Segment], kind: SegmentKind, known: Mapping[str, Sequence[Any]]
    ) -> dict[str, tuple[Any, ...]]:
        """What can be read of these segments; the others are ignored."""
        entries_of = {i: tuple(entries) for i, entries in known.items()}
        for segment in [s for i, s in segments.items() if i not in known]:
            read = self._segment(kind, segment)
            if isinstance(read, tuple):
                entries_of[segment.id] = read
            else:
                del segments[segment.id]
        return entries_of

    def _orphans(self) -> dict[str, Tally]:
        inside = self.ctx.location("")
        needed = {name.removeprefix(inside) for name in self.reachable.resolve(self.contents)}
        self.ending.open(self._left(self.ending.nodes, "nodes", self.contents.nodes))
        ending = Contents(
            files=self._left(self.ending.files, "files", self.contents.files),
            markers=self._left(self.ending.markers, "markers", self.contents.markers),
        )
        needed |= {name.removeprefix(inside) for name in self.ending.resolve(ending)}
        ours = (ObjectKind.SEGMENT, ObjectKind.DATA, ObjectKind.TOMBSTONE)
        # What is younger is being written.
        old = (item for item in self.listed.values() if item.modified_us < self.date_us)
        return tallied(i for i in old if i.key not in needed and classify(i.key) in ours)


def _objects_of(state: State) -> set[str]:
    return {f.key for f in state.files()} | {m.object_key for m in state.markers() if m.object_key}


DEPTHS = ("metadata", "footers", "pages")
# Repetitions on a table that others change while something seems to be missing.
MAX_WALKS = 3


class Verified(Record, kw_only=True):
    """What was checked and what was found. `version` is 0 when the pointer could not be read.

    At most 100 findings of a kind are listed; `counts` has them all. `orphans` are by kind of object.
    """

    version: int
    depth: str
    versions: int = 0
    segments: int = 0
    files: int = 0
    markers: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    orphans: Mapping[str, Tally] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """No error: every retained version can be read and answers correctly, as far as was checked."""
        return not self.errors


def verify(ctx: Context, *, depth: str = "footers", max_versions: int = MAX_VERSIONS) -> Verified:
    """Checks the table at `ctx`.

    `depth`: "metadata" reads metadata and lists objects; "footers" also reads each data file's footer
    and each marker object; "pages" decodes every page and checks every value against the statistics.
    Raises `TableNotFound` where there is no trace of a table, `NewerFormat`, and what the store raises.
    """
    one_of(depth, "depth", DEPTHS)
    if max_versions < 1:
        raise InvalidRequest("max_versions must be 1 or more", table=ctx.uri)
    for _ in range(MAX_WALKS):
        verified, etag = _walk(ctx, depth, max_versions)
        if verified.ok or etag is None:
            break
        after = read_pointer(ctx)
        if isinstance(after, BrokenPointer) or after.etag == etag:
            break
        # Others are at work: what is missing may have expired and been collected meanwhile.
    return verified


def _walk(ctx: Context, depth: str, max_versions: int) -> tuple[Verified, str | None]:
    """One pass, and the ETag of the pointer that it began at."""
    findings = Findings()
    read = read_pointer(ctx)
    if isinstance(read, BrokenPointer):
        if read.etag is None and read.newest_archive is None:
            raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
        kind = "pointer_missing" if read.etag is None else "pointer_corrupt"
        newest = read.newest_archive
        archives = "there are no archives" if newest is None else f"the newest archive is v{newest}"
        findings.add(kind, keys.POINTER, f"{read.reason}; {archives}")
        return _report(findings, version=0, depth=depth), None
    if read.open_for is not None:
        from inlay.ops.metadata.lost_decision import gone_on

        if (lost := gone_on(ctx, read.open_for)) is not None:
            at = f"{lost.uri} has version {lost.version + 1} of this transaction"
            findings.add("decision_missing", read.open_for.decision, f"{at}, which nothing decides")
    walk = TableCheck(ctx, read.snapshot, read.raw, read.date_us, findings)
    walk.versions(max_versions)
    walk.segments()
    walk.entries()
    walk.objects()
    if depth != "metadata":
        walk.files(pages=depth == "pages")
        walk.marker_objects()
    walk.until_they_expire()
    walk.published()
    orphans, unknown, unknown_count = walk.rest()
    needed = walk.reachable
    report = _report(
        findings,
        version=read.snapshot.version,
        depth=depth,
        versions=len(walk.times),
        segments=sum(map(len, (needed.nodes, needed.files, needed.markers, needed.ledger))),
        files=len(walk.data),
        markers=len(walk.marks),
        bytes=sum(f.size for f in walk.data.values()),
        orphans=orphans,
        unknown=unknown,
        unknown_count=unknown_count,
    )
    return report, read.etag


def _report(collected: Findings, **facts: Any) -> Verified:
    order = {severity: n for n, severity in enumerate(Severity)}
    findings = sorted(collected.kept, key=lambda f: order[f.severity])
    return Verified(findings=tuple(findings), counts=dict(collected.counts), **facts)

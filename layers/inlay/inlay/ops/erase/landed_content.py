"""What a landed content that was not ingested yet means for erasures: whether they wait for it.

Promise: it is waited for if it holds rows of an erasure as ingestion would have them, or names their values
beside its rows; CSV and JSON are read as ingestion reads them. What ingestion will never take, whoever put
it there, keeps no erasure waiting: it is searched as it is (`ops.erase.landed_search`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from inlay.errors import ErrorKind, InlayError
from inlay.format.landing import LandedKind, landed_object
from inlay.format.predicate import Predicate, field_ids
from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.landed_search import search_never_taken
from inlay.ops.erase.last_look import NeverTaken, Said, said_of_object
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import InspectedRecords, identify, inspect_rows, inspect_source
from inlay.parquet.arrow.evaluate import columns_of, evaluate
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import find_residue
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.plan.scan import FileTask
from inlay.record import Record, replace
from inlay.storage.base import NULL_VERSION, Location, ObjectVersion

_HOLDS_ROWS = "it holds rows of the erasure and was not ingested yet: ingest it, or delete it"
_MAY_HOLD_ROWS = (
    "by its folders it may hold rows of the erasure, and was not ingested yet: "
    "ingest it, or delete it"
)
_NAMES = (
    "it names what is erased, beside its rows, and was not ingested yet: ingest it, or delete it"
)


class Judged(Record):
    """What a content that was not ingested holds: `waits` says why the erasure waits for it, if it does;
    `perhaps` that it may name what is erased; `others`, by erasure, that ingestion will never take it."""

    waits: str | None = None
    perhaps: bool = False
    others: Mapping[str, NeverTaken] | None = None

    @property
    def is_of_erasure(self) -> bool:
        """Whether it waits for what the content holds, not for a look at it."""
        return self.waits in (_HOLDS_ROWS, _MAY_HOLD_ROWS, _NAMES)


def judge_contents(
    ctx: Context,
    loaded: LoadedTable,
    prefix: str,
    versions: Sequence[ObjectVersion],
    predicates: Mapping[str, Predicate],
) -> dict[ObjectVersion, Judged]:
    """Reads each of these contents once, for conditions by erasure."""

    def judged(version: ObjectVersion) -> Judged:
        try:
            return _judged(ctx, loaded, prefix, version, predicates)
        except InlayError as error:
            if error.kind is ErrorKind.RETRY:
                raise
            # The role, the storage class, the store: what it holds is unknown.
            return Judged(waits=f"it cannot be read ({error.message}): replace or delete it")

    return dict(zip(versions, ctx.map(judged, versions), strict=True))


def _judged(
    ctx: Context,
    loaded: LoadedTable,
    prefix: str,
    version: ObjectVersion,
    predicates: Mapping[str, Predicate],
) -> Judged:
    """What a content that was not ingested means for the erasures."""
    location = Location(ctx.store.scheme, ctx.store.bucket, version.key)
    version_id = None if version.version_id == NULL_VERSION else version.version_id
    source = IngestSource(location, etag=version.etag or None, version_id=version_id)
    # This runs in a task of the executor: waiting for other tasks of it could block for ever.
    versions = {} if version_id is None else {location.uri: version_id}
    # A cache of its own: it knows objects by name, and a name may have many versions here.
    objects = Objects(ctx.store, ctx.root, ObjectCache(), versions=versions)
    path = version.key[len(prefix) :]
    by_name = landed_object(path, size=version.size)

    def never_taken(kind: LandedKind) -> Judged:
        return Judged(others=search_never_taken(objects, location, version, kind, predicates))

    if by_name.is_ignored:
        return never_taken(by_name.kind)
    try:
        inspected = inspect_source(ctx, source, loaded.snapshot)
    except InlayError as error:
        if error.kind in (ErrorKind.RETRY, ErrorKind.PAGE):
            raise
        return never_taken(identify(ctx, source.content, path, loaded.snapshot).kind)
    if inspected is None:
        return Judged(waits="it changed while it was read")
    if isinstance(inspected, InspectedRecords):
        try:
            return _judge_records(objects, loaded, inspected, location, version, predicates)
        except InlayError as error:
            if error.kind is not ErrorKind.INPUT:
                raise
        return never_taken(LandedKind.DATA)  # refused by what is in it: no event will bring it in

    def judge(predicate: Predicate) -> Judged:
        task = FileTask(
            file=replace(
                inspected.entry, key=location.uri, etag=version.etag or None, adopted=True
            ),
            schema=loaded.snapshot.schema,
            predicate=predicate,
        )
        return _judge_data(objects, loaded, task, location, predicate)

    judged = judge(any_of(list(predicates.values())))
    # Its folders say what its rows will have there, whatever the condition selects by it.
    if any(inspected.folders & field_ids(predicate) for predicate in predicates.values()):
        judged = Judged(waits=_MAY_HOLD_ROWS)
    if judged.waits is None or inspect_rows(ctx, source, loaded.snapshot) is None:
        return judged
    # Refused by its rows: no event will bring it in.
    refused = {name: _refused_by_rows(version, judge(predicates[name])) for name in predicates}
    return Judged(others=refused)


def _refused_by_rows(version: ObjectVersion, judged: Judged) -> NeverTaken:
    verdict: Said = "names" if judged.waits else "perhaps" if judged.perhaps else "nothing"
    where = "its rows" if judged.waits == _HOLDS_ROWS else "beside its rows"
    return NeverTaken(version, LandedKind.DATA, verdict, "" if verdict == "nothing" else where)


def _judge_data(
    objects: Objects, loaded: LoadedTable, task: FileTask, location: Location, predicate: Predicate
) -> Judged:
    inline, schema = InlineExecutor(), loaded.snapshot.schema
    if task.file.rows and any(True for _ in Reader(objects, inline).positions([task], schema)):
        return Judged(waits=_HOLDS_ROWS)
    searched = find_residue(
        Reader(objects, inline).open(task, Projection(schema=schema, columns=())), predicate, inline
    )
    texts, mentions = texts_of(predicate), Mentions.of(predicate)
    outside, unread = said_of_object(objects.source(location.uri))
    said = [text for *_, text in outside]
    if any(r.certain for r in searched.residues) or any(names_any(t, texts) for t in said):
        return Judged(waits=_NAMES)
    unsure = searched.residues or searched.perhaps or unread
    return Judged(perhaps=bool(unsure or any(map(mentions.may_select, said))))


def _judge_records(
    objects: Objects,
    loaded: LoadedTable,
    inspected: InspectedRecords,
    location: Location,
    version: ObjectVersion,
    predicates: Mapping[str, Predicate],
) -> Judged:
    """By its rows as ingestion would have them, to the last: it is refused for any of them. Raises what it
    is refused for. Then by all it says: what would be refused one by one, or is the row before a change,
    ingestion does not mark. It is waited for: the first is listed then, and what was ingested deleted."""
    predicate = any_of(list(predicates.values()))
    columns = columns_of(loaded.snapshot.schema)
    rows = inspected.rows()
    holds = [evaluate(predicate, batch, columns).true_count > 0 for batch in rows.batches]
    if any(holds):
        return Judged(waits=_HOLDS_ROWS)
    texts, mentions = texts_of(predicate), Mentions.of(predicate)
    for one in rows.refused.listed if rows.refused is not None else ():
        record = json.dumps(one.record, default=str, ensure_ascii=False)
        text = record.encode("utf-8", "surrogatepass")
        if names_any(text, texts) or mentions.may_select(text):
            return Judged(waits=_NAMES)
    searched = search_never_taken(objects, location, version, LandedKind.DATA, predicates).values()
    if any(outcome.said == "names" for outcome in searched):
        return Judged(waits=_NAMES)
    return Judged(perhaps=any(outcome.said == "perhaps" for outcome in searched))

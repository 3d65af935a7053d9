"""Tables: what users call. Everything here forwards to `inlay.ops`.

::

    import inlay

    t = inlay.create("s3://bucket/tables/events", schema, primary_key="id", sort_by=["event_time"])
    t.append(rows)
    t.delete("user_id = 42 AND event_time < TIMESTAMP '2026-01-01'")
    t.scan(columns=["id"], where="status = 'open'").to_arrow()

A `Table` is one snapshot: what it reads does not change under it. Its own writes move it on; others'
are seen after `refresh()`. The everyday verbs are its methods; the others are in three groups:
`t.inspect` (what it consists of), `t.maintain` (what keeps it fast and small) and `t.refs` (tags and
branches).

Tables, scans, feeds and results pickle, as the URI, the version, the ref and the settings of the store,
never with credentials; they may be carried to other processes, forked, spawned or on other machines.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from inlay import arguments
from inlay.errors import (
    InlayError,
    InvalidPredicate,
    InvalidRequest,
    SchemaMismatch,
    StaleUpload,
    TableExists,
    a_type,
)
from inlay.format.predicate import TRUE, Predicate
from inlay.format.properties import settings
from inlay.format.snapshot import Note, Snapshot, make_note
from inlay.lazy import LazyModule
from inlay.ops import context as context_op
from inlay.ops.context import Context, Progress
from inlay.ops.metadata.load import (
    LoadedTable,
    Pinned,
    find_ref,
    load_as_of,
    load_content,
    load_entries,
    load_pointer,
    load_seen,
    load_version,
    on_branch,
)
from inlay.ops.read.plan import load_plan
from inlay.plan.metadata.state import State
from inlay.plan.refs import MAIN, past_view, ref_view
from inlay.record import LATER, Mutable, replace
from inlay.storage.open import parse_location
from inlay.storage.wrapped import Usage

# Arrow and the operations are imported when first used: a process that only reads starts sooner, and one
# that only asks metadata, sooner still.
if TYPE_CHECKING:
    import pyarrow as pa

    from inlay import parse
    from inlay.ops.commit import driver as commit_op
    from inlay.ops.commit.driver import Committed, Skipped, WriteResult
    from inlay.ops.copy import Copied
    from inlay.ops.feed import Changes
    from inlay.ops.publish.publish import PublishResult
    from inlay.ops.read import conditions
    from inlay.ops.read import scan as scan_op
    from inlay.ops.read.dataset import TableDataset
    from inlay.ops.read.scan import Scan
    from inlay.ops.schema import alter as alter_op
    from inlay.ops.schema import create as create_op
    from inlay.ops.write import append as append_op
    from inlay.ops.write import apply_changes as changes_op
    from inlay.ops.write import delete as delete_op
    from inlay.ops.write import ingest as ingest_op
    from inlay.ops.write import overwrite as overwrite_op
    from inlay.ops.write import true_statistics as keyed_op
    from inlay.ops.write import update as update_op
    from inlay.ops.write import upsert as upsert_op
    from inlay.parquet.arrow import declared
    from inlay.parse import Condition
    from inlay.plan import change as change_plan
    from inlay.plan import change_records
    from inlay.table.inspect import Inspect
    from inlay.table.maintain import Maintain
    from inlay.table.refs import Refs
else:
    pa = LazyModule("pyarrow")
    parse = LazyModule("inlay.parse")
    declared = LazyModule("inlay.parquet.arrow.declared")
    conditions = LazyModule("inlay.ops.read.conditions")
    scan_op = LazyModule("inlay.ops.read.scan")
    upsert_op = LazyModule("inlay.ops.write.upsert")
    alter_op = LazyModule("inlay.ops.schema.alter")
    keyed_op = LazyModule("inlay.ops.write.true_statistics")
    create_op = LazyModule("inlay.ops.schema.create")
    append_op = LazyModule("inlay.ops.write.append")
    changes_op = LazyModule("inlay.ops.write.apply_changes")
    delete_op = LazyModule("inlay.ops.write.delete")
    ingest_op = LazyModule("inlay.ops.write.ingest")
    overwrite_op = LazyModule("inlay.ops.write.overwrite")
    update_op = LazyModule("inlay.ops.write.update")
    change_plan = LazyModule("inlay.plan.change")
    change_records = LazyModule("inlay.plan.change_records")
    commit_op = LazyModule("inlay.ops.commit.driver")

# Values for `?`, in their order, or for `:name`.
Params = Sequence[Any] | Mapping[str, Any] | None
_LOG = logging.getLogger("inlay.table")


@arguments.checked
def create(
    uri: str | os.PathLike[str],
    schema: pa.Schema | str | Any,
    *,
    primary_key: str | Sequence[str] = (),
    sort_by: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    properties: Mapping[str, object] | None = None,
    exist_ok: bool = False,
    storage_options: Mapping[str, str] | None = None,
    context: Context | None = None,
) -> Table:
    """Create a table. `uri` is s3://, file:///, memory:// or a local path. Of a schema, also as text
    ("id bigint not null, name string"), it is empty; rows, of all kinds that `append` takes, a file among
    them, give it their schema and are in it from its first version on.

    `primary_key` names what ranges and upserts use (it is not enforced); `sort_by` orders written
    files; `partition_by` cuts them: `["day(ts)", "bucket(16, id)"]`. `exist_ok` opens a table that is
    there already, if its columns are those of `schema`; with rows it is refused. Raises `TableExists`,
    `UnsupportedType`, `InvalidRequest`, `SchemaMismatch`.
    """
    ctx = context or connect(uri, storage_options=storage_options)
    if isinstance(schema, os.PathLike):
        schema = _new_rows(os.fspath(schema))
    elif isinstance(schema, str):
        schema = _columns_of(schema, ctx.uri)
    if exist_ok and not isinstance(schema, pa.Schema):
        raise InvalidRequest(
            "exist_ok opens a table as it is: rows would be in it or not",
            next_step="Give exist_ok the schema alone, and append the rows with a request id",
            table=ctx.uri,
        )
    arrow = schema if isinstance(schema, pa.Schema) else getattr(schema, "schema", None)
    lost = declared.metadata_not_kept(arrow) if isinstance(arrow, pa.Schema) else []
    if lost:
        warnings.warn(
            f"Arrow metadata is not kept by a table: {', '.join(lost)[:300]}. Comments of columns are kept "
            '(b"comment" of a field), and properties of the table',
            stacklevel=3,
        )
    try:
        loaded = create_op.create(
            ctx,
            schema,
            primary_key=arguments.names(primary_key, "primary_key"),
            sort_by=arguments.names(sort_by, "sort_by"),
            partition_by=arguments.names(partition_by, "partition_by"),
            properties=properties,
        )
    except TableExists:
        if not exist_ok:
            raise
        table = Table(ctx, load_pointer(ctx))
        if not table.schema.equals(schema):
            raise SchemaMismatch(
                f"the table at {ctx.uri} has other columns than those asked for",
                next_step="Open it, and alter() what differs",
                table=ctx.uri,
            ) from None
        return table
    return Table(ctx, loaded)


def _columns_of(text: str, uri: str) -> pa.Schema:
    """The columns that a text names. Raises `InvalidRequest`."""
    from inlay.ops.schema.columns_text import parse_schema

    if len(text.split()) == 1:
        raise InvalidRequest(
            f"{text[:80]!r} is no list of columns",
            next_step='Write it as "id bigint not null, name string"; a file is given as a pathlib.Path',
            table=uri,
        )
    return parse_schema(text)


def _new_rows(path: str) -> pa.RecordBatchReader:
    """The rows of a file for a new table, in the types that `inlay create --like` gives it."""
    from inlay.ops.local_files import LocalFiles
    from inlay.parquet.arrow.types import schema_from_arrow

    file = LocalFiles.of(path)
    columns = file.columns()
    if columns.dates:
        warnings.warn(
            f"{', '.join(columns.dates)} of {path}: dates that are not in ISO's form are texts. For dates, "
            "create the table with the columns' types, and `inlay append --date-format`",
            stacklevel=4,
        )
    return file.rows(schema_from_arrow(columns.schema))


@arguments.checked
def open(
    uri: str | os.PathLike[str],
    *,
    version: int | None = None,
    as_of: datetime | date | str | None = None,
    ref: str | None = None,
    progress: bool | Progress = False,
    storage_options: Mapping[str, str] | None = None,
    context: Context | None = None,
) -> Table:
    """Open a table at its newest version (one GET), at an earlier one by number or time, or at a tag or
    branch. What a branch's table writes goes to the branch; versions and tags are read only. `progress`
    and `storage_options` are as for `connect`.

    Raises `TableNotFound`, `VersionNotFound`, `RefNotFound`, `CorruptTable`, `NewerFormat`.
    """
    ctx = context or connect(uri, progress=progress, storage_options=storage_options)
    if sum(x is not None for x in (version, as_of, ref)) > 1:
        raise InvalidRequest("give one of version=, as_of= and ref=")
    version = None if version is None else arguments.whole_number(version, "version")
    time_us = None if as_of is None else arguments.time_us(as_of)
    loaded = load_pointer(ctx)
    current = loaded.snapshot
    if ref is not None and ref != MAIN:
        return _at_ref(ctx, loaded, ref)
    if time_us is not None:
        past = load_as_of(ctx, current, time_us)
    elif version is not None:
        past = load_version(ctx, current, version)
    else:
        return Table(ctx, loaded)
    return Table(ctx, loaded, at=None if past is current else past_view(past, current))


def _at_ref(ctx: Context, loaded: LoadedTable, name: str) -> Table:
    table = loaded.pointer
    ref = find_ref(ctx, table, name)
    if ref.is_branch:
        ctx = replace(ctx, branch=name)
        return Table(ctx, on_branch(ctx, loaded))
    content = load_content(ctx, table, ref)
    return Table(ctx, loaded, at=replace(ref_view(table, content), version=ref.version), tag=name)


def connect(
    uri: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    progress: bool | Progress = False,
    storage_options: Mapping[str, str] | None = None,
) -> Context:
    """A context for the table at `uri`, with this process's environment and threads. `progress` True draws
    bars for long work (by rich or tqdm); a function `(what, done, total)` is called instead.
    `storage_options`: `endpoint_url`, of S3 `region` too, of Azure `account_name` too; everything else is
    the environment's of its maker (docs/STORES.md)."""
    return context_op.connect(
        arguments.location(uri),
        executor=executor,
        progress=_progress_of(progress),
        storage_options=storage_options,
    )


def _progress_of(progress: bool | Progress) -> Progress:
    """What `progress=` means: a function that is called, True for bars, False for nothing."""
    if progress is True:
        from inlay.progress import Bars  # most work is too short to be shown

        return Bars()
    return context_op.no_progress if progress is False else progress


class Table:
    """A table at one snapshot. See the module's head; all options are keyword-only."""

    def __init__(
        self,
        context: Context,
        loaded: LoadedTable,
        *,
        at: Snapshot | None = None,
        tag: str | None = None,
    ) -> None:
        self._ctx = replace(context, table_id=loaded.pointer.table_id)
        self._loaded = loaded
        self._at = at  # in the past
        self._tag = tag

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_pinned, (self._pinned(),)

    def _pinned(self) -> Pinned:
        table = self._loaded.pointer
        return Pinned(
            context=self._ctx,
            table_id=table.table_id,
            version=table.version,
            at=None if self._at is None or self._tag else self._at.version,
            tag=self._tag,
        )

    # -- what it is ---------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        return self._ctx.uri

    @property
    def snapshot(self) -> Snapshot:
        return self._at or self._loaded.snapshot

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def ref(self) -> str:
        """The branch, or the tag, that this is the table of: "main" unless another was opened."""
        return self._tag or self._ctx.ref

    @property
    def schema(self) -> pa.Schema:
        return declared.Declared.of(self.snapshot).arrow

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.snapshot.schema.names)

    @property
    def properties(self) -> Mapping[str, str]:
        return settings(self.snapshot.properties)

    @property
    def read_us(self) -> int:
        """The store's clock when this table was last read, in microseconds since 1970."""
        return self._loaded.date_us

    @property
    def usage(self) -> Usage:
        """Requests and bytes of this table object so far."""
        return self._ctx.usage

    def refresh(self) -> Table:
        """Move to the newest version, of the branch where one is open (one GET, on a branch two). Raises
        `TableReplaced` for another table's."""
        self._loaded = commit_op.current_base(self._ctx, self._loaded)
        self._at = self._tag = None
        return self

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # without rows, too: nothing is counted where a table is asked for

    def __repr__(self) -> str:
        ref = "" if self.ref == MAIN else f", ref={self.ref!r}"
        return f"Table({self.uri!r}, version={self.version}{ref})"

    def _repr_html_(self) -> str:
        """What a notebook shows: columns, version, size, open deletes and live rows; these are counted
        where deletes are open and the table is not large."""
        from inlay.table.notebook import shown_table

        return shown_table(self)

    # -- the other operations, by what they are about ------------------------------------------

    @property
    def inspect(self) -> Inspect:
        """What the table consists of: `files()`, `history()`, `partitions()`, `tombstones()`, …"""
        from inlay.table.inspect import Inspect

        return Inspect(self)

    @property
    def maintain(self) -> Maintain:
        """What keeps it fast and small, checks and mends it: `compact()`, `rewrite()`, `expire()`,
        `collect_garbage()`, `verify()`, `repair()`, …"""
        from inlay.table.maintain import Maintain

        return Maintain(self)

    @property
    def refs(self) -> Refs:
        """Tags, branches, and going back: `tag()`, `branch()`, `merge()`, `restore()`, …"""
        from inlay.table.refs import Refs

        return Refs(self)

    # -- reading ------------------------------------------------------------------------------

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | Predicate | Any | None = None,
        params: Params = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        on_damaged: str = "raise",
    ) -> Scan:
        """Rows of this snapshot. `where` is SQL text, a predicate, or an expression of pyarrow or (where it
        compares columns with literals) Polars. Values that come from elsewhere are bound, never pasted into
        the text: `params=[5]` for each `?`, `params={"id": 5}` for each `:id`; a list may stand after IN.

        In SQL, NaN is greater than every number and equals itself, as in DuckDB, Polars and Spark:
        `"x > 100"` finds it. A pyarrow expression keeps to pyarrow's rules: `field("x") > 100` does not.

        `order_by` with a `limit` gives the first rows of an order, `"price DESC, id"` for example, and
        reads little more than these: statistics exclude the others. NULLs come last (unless it says
        `NULLS FIRST`), NaN is greater than every number, rows with equal keys keep the scan's order.

        `on_damaged="skip"` leaves out files that cannot be read (of the columns asked for), each with all
        of its rows, which are held in memory meanwhile: the scan's `damaged` names them, and a warning
        each. By default the first raises `UnreadableFile`, which says how it is taken out of the table.
        """
        return self._scan_of(
            columns=columns,
            where=where if params is None else self._condition(where, params),
            order_by=order_by,
            limit=limit,
            on_damaged=on_damaged,
            pinned=self._pinned(),
        )

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows, in the order of files."""
        return self.scan(limit=rows).to_arrow()

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame; `scan().to_pandas(…)` takes the options of pyarrow's."""
        return self.scan().to_pandas()

    def to_dataset(self, *, on_damaged: str = "raise") -> TableDataset:
        """This snapshot as a pyarrow Dataset, deletes applied: DuckDB and whatever else takes one reads
        only the columns and files that a query needs. `on_damaged`: see `scan`; a warning names each file.

        ::

            people = t.to_dataset()
            duckdb.sql("SELECT sum(distance) FROM people WHERE month = 2")
        """
        from inlay.ops.read.dataset import TableDataset

        return TableDataset(partial(self._scan_of, on_damaged=on_damaged))

    def to_lazy(self, *, on_damaged: str = "raise") -> Any:
        """This snapshot as a Polars LazyFrame, which reads what its query needs. `on_damaged`: see
        `to_dataset`."""
        from inlay.ops.read.frames import installed
        from inlay.ops.read.polars_source import lazy_frame

        installed("polars")
        return lazy_frame(partial(self._scan_of, on_damaged=on_damaged), self.snapshot.schema)

    def _unread(self) -> State:
        """What is shown. A scan loads the segments that may match, and no others."""
        return self._loaded.state if self._at is None else State(self._at)

    def _scan_of(self, **options: Any) -> Scan:
        return scan_op.Scan(self._ctx, self._unread(), **options, newest=self._loaded.pointer)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scan().__arrow_c_stream__(requested_schema)

    def count(
        self,
        where: str | Predicate | Any | None = None,
        *,
        params: Params = None,
        on_damaged: str = "raise",
    ) -> int:
        """How many rows; answered from metadata alone where that is possible. With `on_damaged="skip"` by
        reading all columns, without the files that cannot be read. `params`: see `scan`."""
        if where is not None or params is not None or on_damaged != "raise":
            return self.scan(where=where, params=params, on_damaged=on_damaged).count()
        plan = load_plan(self._ctx, self._unread())
        known = plan.live_rows
        return self._scan_of(plan=plan).count() if known is None else known

    def changes(
        self,
        since_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | Predicate | Any | None = None,
        net: bool = False,
        on_damaged: str = "raise",
    ) -> Changes:
        """The rows added and removed after version `since_version` (0: since the table was made), up to
        and with `to_version` (None: this one); see `inlay.ops.feed.Changes`.

        ::

            for batch in t.changes(last_seen, where="country = 'CH'").to_reader(): ...

        `net` cancels rows that came and went. `on_damaged="skip"` leaves damaged files out of all versions
        and names them as `scan` does; each file is read once more to know. Raises `VersionNotFound` for
        expired versions.
        """
        since = arguments.whole_number(since_version, "since_version")
        to = self.snapshot
        if to_version is not None:
            version = arguments.whole_number(to_version, "to_version")
            to = load_seen(self._ctx, self._loaded.pointer, version)
        from inlay.ops.feed import Changes

        return Changes(
            self._ctx,
            self._loaded.pointer,
            to,
            since,
            columns=columns,
            where=where,
            net=net,
            on_damaged=on_damaged,
            pinned=self._pinned(),
        )

    @property
    def partitioning(self) -> tuple[str, ...]:
        """How new rows are partitioned, as `create` takes it."""
        from inlay.parse.partitioning import spec_text

        return spec_text(self.snapshot.spec, self.snapshot.schema)

    def _state(self) -> State:
        if self._at is not None:
            return load_entries(self._ctx, State(self._at))
        self._loaded = replace(self._loaded, state=load_entries(self._ctx, self._loaded.state))
        return self._loaded.state

    def copy_to(
        self,
        into: str | os.PathLike[str],
        *,
        context: Context | None = None,
        report: Callable[[Copied], object] | None = None,
    ) -> Table:
        """A new table at `into`, in any store, with the rows of this version: a tag's or a past one's, too.

        Columns, key, partitions and settings come along; history, branches and what change streams remember
        do not. Files without deletes are copied by the store, others are written with their live rows: the
        copy needs nothing of this table, and an erasure here does not reach it (docs/BACKUP.md). The same
        call goes on with a copy that was killed. `report` is called with what was done, its notes with it;
        without it they are warnings."""
        from inlay.ops.copy import copy

        target = context or connect(arguments.location(into))
        return self._told("copying", target, copy(self._ctx, self._state(), target), report)

    def clone_to(
        self,
        into: str | os.PathLike[str],
        *,
        context: Context | None = None,
        report: Callable[[Copied], object] | None = None,
    ) -> Table:
        """As `copy_to`, over the same files, in the same store: only those under deletes are written. The
        version is put under a legal hold here, which keeps the files and refuses erasures that concern
        them, until you lift it: a warning names the tag (docs/BACKUP.md)."""
        from inlay.ops.clone import clone

        target = context or connect(arguments.location(into))
        done = clone(self._ctx, self._state(), self.refs._source(None), target)
        return self._told("cloning", target, done, report)

    def _told(
        self, what: str, target: Context, done: Copied, report: Callable[[Copied], object] | None
    ) -> Table:
        if report is not None:
            report(done)
        else:
            for note in done.notes:
                warnings.warn(f"{what} {self.uri}: {note}", stacklevel=3)
        return Table(target, done.loaded)

    # -- writing ------------------------------------------------------------------------------

    def append(
        self,
        data: Any,
        *,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Append rows: a pyarrow Table, RecordBatchReader, Dataset, anything with `__arrow_c_stream__`, or
        a local file as a `pathlib.Path`, which is read as `inlay append` reads it.

        With a `request_id` that was used before, nothing happens. The id alone decides: rows may come
        as a stream that can be read once, so they are not compared with those of the first time.

        Of this and every other write, `message` and `metadata` (names and texts, of the job or ticket
        that asked for it) are kept in the version that it makes, and shown by `inspect.history()`: 2 KB at
        most.
        """
        data = self._rows(data)
        with self._writing("append", make_note(message, metadata)) as write:
            request = change_plan.Request.named(request_id, append_op.request_shape("append", data))
            write.outcome = append_op.append(write.ctx, data, base=self._loaded, request=request)
        return write.result

    def ingest(
        self,
        uris: Sequence[str | os.PathLike[str]],
        *,
        adopt: bool = False,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ingest_op.IngestResult:
        """Existing Parquet objects become data files byte for byte, each once. The result says what
        became of each."""
        if isinstance(uris, str | os.PathLike):
            raise InvalidRequest("uris is one location", next_step=f"Give a list: [{str(uris)!r}]")
        sources = [append_op.IngestSource(parse_location(arguments.location(uri))) for uri in uris]
        ctx = self._with_note(make_note(message, metadata))
        self._writable()
        before = self._ctx.usage
        result = ingest_op.ingest(ctx, sources, adopt=adopt, base=self._loaded)
        self._loaded = result.loaded
        return replace(result, write=replace(result.write, usage=self._ctx.usage - before))

    def delete(
        self,
        where: str | Predicate | None = None,
        *,
        params: Params = None,
        keys: Any | None = None,
        ids: Sequence[str] | None = None,
        mode: str | None = None,
        file: str | None = None,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Delete the rows for which `where` is TRUE, or whose columns equal a row of `keys`. `params` are
        values for the `?` or `:name` of `where`: see `scan`. Here and wherever a condition changes rows, an
        expression of pyarrow or Polars selects what its library selects, if it compares columns with
        literals, and is refused if not.

        `mode`: tombstone (constant time), vector, surgery, rewrite, or erase (`docs/ERASURE.md`);
        None is the table's `delete.mode`. `file` limits it to one data file. A condition that calculates
        (`lower(name) = 'ada'`) cannot be kept as a tombstone: the rows that it finds are marked as by
        "vector", and the result's `note` says so.

        `mode="erase"` with `keys` opens an erasure for each key, with a receipt each, in one commit: under
        the ids `REQUEST.1`, `REQUEST.2` …, or `ids`, one for each key (keys with the same id are erased
        together).
        """
        if (where is None) == (keys is None):
            raise InvalidRequest("give either where= or keys= to delete", table=self.uri)
        note = make_note(message, metadata)
        if keys is not None and params is not None:
            raise InvalidRequest("params= are values of a condition", next_step="Give where=")
        if ids is not None and (keys is None or mode != "erase"):
            raise InvalidRequest(
                "ids= names the erasures of keys=", next_step='Give keys= and mode="erase"'
            )
        if keys is not None:
            return self._delete_keys(_key_table(keys), ids, mode, file, request_id, note)
        condition = self._condition(where, params)
        request = change_plan.Request.named(
            request_id, f"{mode}:{file}:{_asked(condition, params)}"
        )
        if condition.calculated is not None and mode in ("tombstone", "erase"):
            raise InvalidPredicate(
                f"mode={mode!r} keeps its condition, and one that calculates cannot be kept",
                next_step="Compare columns with literals, or find the rows first and name their keys"
                if mode == "erase"
                else 'Leave out mode=, or give "vector", "surgery" or "rewrite"',
                text=condition.text,
                table=self.uri,
            )
        if mode == "erase":
            if file is not None:
                raise InvalidRequest(
                    "an erasure is of the whole table, not of one file=",
                    next_step="Leave out file=",
                    table=self.uri,
                )
            erasure = self._ctx.new_id() if request is None else request.text
            return self._erase({erasure: condition.predicate}, request, note)
        with self._writing("delete", note) as write:
            write.outcome = delete_op.delete(
                write.ctx, condition, mode=mode, file=file, base=self._loaded, request=request
            )
        return _noted(write.result, condition, mode or self.snapshot.settings.text("delete.mode"))

    def _delete_keys(
        self,
        keys: pa.Table,
        ids: Sequence[str] | None,
        mode: str | None,
        file: str | None,
        request_id: str | None,
        note: Note | None,
    ) -> WriteResult:
        is_erasure = mode == "erase"
        if not (is_erasure or mode in (None, "tombstone")) or file is not None:
            raise InvalidRequest(
                "keys= deletes from the whole table, by a tombstone or an erasure: it takes no other "
                "mode= and no file=",
                next_step='Write the keys as a condition: "id IN (1, 2)"',
                table=self.uri,
            )
        # A million values as text are not made for nothing.
        body = f"{keys.schema}:{_as_text(keys)}" if request_id is not None or is_erasure else ""
        if is_erasure:
            from inlay.ops.erase.several import conditions_of_keys

            body = f"erase keys:{body}:{ids and list(ids)}"
            asked_as = change_plan.Request.named(
                self._ctx.new_id() if request_id is None else request_id, body
            )
            assert asked_as is not None
            conditions = conditions_of_keys(self.snapshot.schema, keys, asked_as, ids)
            return self._erase(conditions, asked_as, note)
        with self._writing("delete", note) as write:
            request = change_plan.Request.named(request_id, f"keys:{body}")
            write.outcome = delete_op.delete_keys(
                write.ctx, keys, base=self._loaded, request=request
            )
        return write.result

    def _erase(
        self,
        asked: Mapping[str, Predicate],
        request: change_plan.Request | None,
        note: Note | None,
    ) -> WriteResult:
        """An erasure is of all branches, whichever is open."""
        from inlay.ops.erase.request import open_each

        if self._ctx.branch is not None:
            return self._edit("erase", lambda ctx: open_each(ctx, asked, request=request), note)
        with self._writing("erase", note) as write:
            write.outcome = open_each(write.ctx, asked, base=self._loaded, request=request)
        return write.result

    def update(
        self,
        assignments: Mapping[str, Any],
        *,
        where: str | Predicate = TRUE,
        params: Params = None,
        mode: str | None = None,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Set columns to SQL expressions: `t.update({"status": "'closed'"}, where="id = 7")`. What is not
        a text is the value itself (`{"mass": 3800, "at": None}`), as is `inlay.lit("a text")`. `params` are
        values for the `?` (of the assignments, then of `where`) or the `:name` of these texts: see `scan`.
        """
        clock, schema = self._ctx.clock.now_us, self.snapshot.schema
        values = None if params is None else parse.Values(params)
        parsed = parse.parse_assignments(assignments, schema, now=clock, values=values)
        condition = conditions.bound(where, self.snapshot, clock, values)
        if values is not None:
            values.check_used()
        body = f"{_as_text(sorted(assignments.items()))}:{_asked(condition, params)}"
        with self._writing("update", make_note(message, metadata)) as write:
            request = change_plan.Request.named(request_id, body)
            write.outcome = update_op.update(
                write.ctx, parsed, condition, mode=mode, base=self._loaded, request=request
            )
        return _noted(write.result, condition, mode or self.snapshot.settings.text("update.mode"))

    def upsert(
        self,
        data: Any,
        *,
        on: str | Sequence[str] = (),
        on_duplicate: str = "refuse",
        order: str | None = None,
        when: str = "always",
        nulls: str = "distinct",
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Insert rows, replacing those with equal values of `on` (default: the primary key).

        Columns that `data` lacks keep their values; new rows have the default there, else NULL. Several
        rows of one key in `data` are refused (`InvalidRequest`); with `on_duplicate="last"` the one with
        the greatest value of the column `order` counts, of equals or without `order` the last.

        `when="newer"` compares `order` with the table's rows, too: a row that is older than what is there
        is left out. It is `apply_changes` without deletes. `nulls`: a NULL in a key equals nothing, so each
        such row is inserted ("distinct"; the result's `note` counts them), or it equals another NULL
        ("equal").
        """
        if when not in ("always", "newer") or (when == "newer" and order is None):
            raise InvalidRequest(
                "upsert's when= is always, or newer with order=",
                next_step='As in when="newer", order="lsn"',
                table=self.uri,
            )
        if when == "newer" and order is not None:
            return self.apply_changes(
                data,
                order=order,
                on=on,
                nulls=nulls,
                request_id=request_id,
                message=message,
                metadata=metadata,
            )
        columns = arguments.names(on, "on")
        data = self._rows(data)
        request = change_plan.Request.named(request_id, append_op.request_shape("upsert", data))
        with self._writing("upsert", make_note(message, metadata)) as write:
            write.outcome = upsert_op.upsert(
                write.ctx,
                data,
                on=columns,
                on_duplicate=on_duplicate,
                order=order,
                nulls=nulls,  # type: ignore[arg-type]  # checked there
                base=self._loaded,
                request=request,
            )
        return write.result

    def overwrite(
        self,
        data: Any,
        *,
        where: str | Predicate | None = None,
        params: Params = None,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Put rows in place of those for which `where` is TRUE (None: all), in one commit.

        Every row of `data` must make `where` TRUE (`InvalidRequest`), so that the same call replaces what
        it wrote: `t.overwrite(day, where="day = ?", params=[day])`. Rows that others commit before it are
        replaced, too; those after it stay.
        """
        condition = self._condition(where, params)
        data = self._rows(data)
        request = change_plan.Request.named(
            request_id, f"{append_op.request_shape('overwrite', data)}:{_asked(condition, params)}"
        )
        with self._writing("overwrite", make_note(message, metadata)) as write:
            write.outcome = overwrite_op.overwrite(
                write.ctx, data, condition, base=self._loaded, request=request
            )
        return write.result

    @arguments.checked
    def apply_changes(
        self,
        data: Any,
        *,
        order: str | Sequence[str],
        op: str | None = None,
        operations: str | Mapping[str, Sequence[str]] | None = None,
        delete_when: str | None = None,
        delete_to: str | None = None,
        on: str | Sequence[str] = (),
        nulls: str = "refuse",
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> changes_op.ChangesResult:
        """Apply the inserts, updates and deletes of a change stream, in the order of their events.

        ::

            t.apply_changes(batch, order="lsn", op="op")
            t.apply_changes(batch, order=["ts", "seq"], operations="dms", request_id=batch_id)
            t.apply_changes(batch, order="version", delete_when="state = 'closed'")

        Of all records of a key (`on`, default: the primary key) that ever come, the one with the greatest
        `order` counts, in whatever order, batches and repetitions they come: a late record is left out, and
        counted. NULL is below every order; of equal orders a delete counts, of equal rows the later one.

        `op` is the column that says what a record does, in the values of `operations`: the producer's name
        (`common`, the default, `debezium`, `debezium-flat`, `dms`, `snowflake`, `canal`, `delta`,
        `kafka-connect`, `kafka-tombstones`), or `{"rows": [...], "deletes": [...]}`. Another value refuses
        the batch. `delete_when` is a condition in their place; without any of these no record is a delete.

        A delete removes the row, and is remembered for `changes.remember_days`, so that older records that
        come later find it; with `delete_to` it sets that column (a boolean, or a timestamp) instead.
        Columns that `data` lacks keep their values. `nulls`: a NULL in a key is refused, or as in `upsert`.
        """
        if delete_when is not None and (op is not None or operations is not None):
            raise InvalidRequest(
                "delete_when= says what is a delete, and so does op= or operations=",
                next_step="Give one of them",
                table=self.uri,
            )
        has_operations = op is not None or operations is not None
        rules = changes_op.Rules(
            order=arguments.names(order, "order"),
            operations=change_records.Operations.of(operations, column=op)
            if has_operations
            else None,
            delete_when=delete_when,
            delete_to=delete_to,
            on=arguments.names(on, "on"),
            nulls=nulls,  # type: ignore[arg-type]  # checked there
        )
        request = change_plan.Request.named(
            request_id, append_op.request_shape("apply_changes", data)
        )
        with self._writing("apply_changes", make_note(message, metadata)) as write:
            done = changes_op.apply_changes(
                write.ctx, data, rules, base=self._loaded, request=request
            )
            write.outcome = done.outcome
        return changes_op.changes_result(write.result, done.counts)

    def alter(
        self,
        *,
        add: Mapping[str, pa.DataType | pa.Field | str] | pa.Schema | None = None,
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, pa.DataType | str] | None = None,
        optional: Sequence[str] = (),
        order: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None,
        comment: Mapping[str, str] | None = None,
        primary_key: str | Sequence[str] | None = None,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Change the columns, all at once, in constant time: no data file is touched, but by a new key.

        ::

            t.alter(add={"email": pa.string()}, rename={"ts": "at"}, widen={"n": pa.int64()})
            t.alter(add={"qty": pa.field("qty", pa.int32(), nullable=False)}, defaults={"qty": 1})
            t.alter(add={"qty": "int not null default 1"}, widen={"n": "bigint"})  # the same, as text
            t.alter(add={"address.zip": pa.string()}, drop=["lines.element.note"])
            t.alter(comment={"qty": "pieces, not boxes"}, primary_key=["id"])

        `primary_key` is what ranges and upserts use from now on; like that of `create` it is not enforced,
        and rows that are there may share one. Its columns are read of files that other writers wrote: one
        whose statistics leave out rows of its own is written again first, and an adopted one is refused by
        name (`UntrueStatistics`). "" as a comment removes it.
        Rows that are there have the default of an added column, NULL without one. Names are those before
        the change, but for `add`, `order` (the columns that come first) and comments of added columns.
        What would lose or change a value is refused (`InvalidRequest`), and `ConcurrentChange` says that
        the schema is another one than this table object has, unless it is the one asked for: then nothing
        is committed.
        """
        evolution = alter_op.evolution_of(
            self.snapshot.schema,
            add=add,
            drop=drop,
            rename=rename,
            widen=widen,
            optional=optional,
            order=order,
            defaults=defaults,
            comment=comment,
            primary_key=None
            if primary_key is None
            else arguments.names(primary_key, "primary_key"),
        )
        request = change_plan.Request.named(request_id, str(evolution))
        with self._writing("alter", make_note(message, metadata)) as write:
            write.outcome = keyed_op.alter(write.ctx, evolution, base=self._loaded, request=request)
        return write.result

    def set_partitioning(
        self,
        *partition_by: str | Sequence[str],
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Partition what is written from now on: `t.set_partitioning("day(ts)", "bucket(16, id)")`, or a
        list as `create` takes; by nothing, not at all. Existing files stay as they are, and queries need
        not change."""
        listed = partition_by[0] if len(partition_by) == 1 else partition_by
        texts = arguments.names(listed, "partition_by")  # type: ignore[arg-type]
        request = change_plan.Request.named(request_id, f"partition:{texts}")
        with self._writing("set_partitioning", make_note(message, metadata)) as write:
            write.outcome = create_op.set_partitioning(
                write.ctx, texts, base=self._loaded, request=request
            )
        return write.result

    @arguments.checked
    def set_properties(
        self,
        named: Mapping[str, object] | None = None,
        /,
        *,
        message: object = None,
        metadata: object = None,
        **properties: object,
    ) -> WriteResult:
        """Set table properties (dots as `__`: `delete__mode="vector"`, or by their names in a mapping);
        None removes one."""
        from inlay.format.properties import (
            PROPERTIES,
            STAYING,
            check_named_columns,
            check_properties,
        )

        named = {**(named or {}), **{k.replace("__", "."): v for k, v in properties.items()}}
        unknown = (k for k, v in named.items() if v is None and k not in PROPERTIES)
        check_properties(
            dict.fromkeys((k for k in unknown if k not in self.snapshot.properties), "")
        )
        checked: dict[str, str | None] = dict(
            check_properties({k: v for k, v in named.items() if v is not None or k in STAYING})
        )
        checked |= {k: None for k, v in named.items() if v is None}
        check_named_columns(checked, self.snapshot.schema)
        updates = (change_plan.SetProperties(checked),)
        change = change_plan.Change(operation="set_properties", updates=updates)
        with self._writing("set_properties", make_note(message, metadata)) as write:
            done = commit_op.commit(write.ctx, change, base=self._loaded)
            write.outcome = commit_op.expect_committed(write.ctx, done)
        return write.result

    def _main(self) -> LoadedTable:
        return load_pointer(replace(self._ctx, branch=None))

    def _edit(
        self,
        operation: str,
        run: Callable[[Context], Committed | Skipped],
        note: Note | None = None,
    ) -> WriteResult:
        """A commit that is about refs; a table in the past stays where it is."""
        before = self._ctx.usage
        outcome = run(self._with_note(note))
        result = commit_op.write_result(operation, outcome, self._ctx.usage - before)
        if self._at is None:
            self._move_on(outcome.loaded)
        return result

    def publish(
        self, *, format: str | None = None, rebuild: bool = False, take_over: bool = False
    ) -> PublishResult:
        """Show the newest version to engines that read Apache Iceberg, beside the table (docs/INTEROP.md):
        the same files and deletion vectors, by metadata of their own. Deletes are settled first.

        `format` "v3" or "v2" sets the property `publish.format`; a table that has none is published as v3.
        `rebuild` starts afresh, whatever was published. `take_over` first commits what another engine has
        committed by path. Raises `Unpublishable`, which names what stands in the way; readers then see the
        last publication.
        """
        if rebuild and take_over:
            raise InvalidRequest(
                "rebuild and take_over are two things", next_step="Take over first"
            )
        main = Table(replace(self._ctx, branch=None), self._main())
        chosen = main.properties.get("publish.format", "none")
        new = format or ("v3" if chosen == "none" else chosen)
        if new != chosen:
            main.set_properties(publish__format=new)
        if take_over:
            from inlay.ops.catalog.take_over import take_over as taken

            result = taken(self._ctx)
        else:
            from inlay.ops.publish.publish import publish

            result = publish(self._ctx, rebuild=rebuild)
        if self._at is None:
            self._move_on()
        return result

    # -- inside -------------------------------------------------------------------------------

    def _move_on(self, main: LoadedTable | None = None) -> None:
        """To what is there after an operation: `main`, as it was left, or what a read finds. What was
        done is not reported as an error because it cannot be read: the table then stays where it was."""
        try:
            if main is None:
                self.refresh()
            elif self._ctx.branch is None:
                self._loaded = main
            else:
                self._loaded = on_branch(self._ctx, main, carried=self._loaded.state.contents)
        except InlayError as error:
            _LOG.warning("%s stays at version %d: %s", self.uri, self.version, error)

    def _condition(self, where: str | Predicate | None, params: Params = None) -> Condition:
        now = self._ctx.clock.now_us
        if params is None:
            return conditions.bound(where, self.snapshot, now)
        if not isinstance(where, str):
            raise InvalidRequest(
                "params= are values for the ? or :name of a text",
                next_step='Give where= as SQL text: "id = ?"',
                table=self.uri,
            )
        values = parse.Values(params)
        condition = conditions.bound(where, self.snapshot, now, values)
        values.check_used()
        return condition

    def _rows(self, data: Any) -> Any:
        """Rows of a file in the table's types; all other kinds are as Arrow has them."""
        if not isinstance(data, os.PathLike):
            return data
        from inlay.ops.local_files import LocalFiles

        return LocalFiles.of(os.fspath(data)).rows(self.snapshot.schema)

    def _writable(self) -> None:
        if self._at is not None:
            what = f"version {self.version}" if self._tag is None else f"the tag {self._tag!r}"
            raise InvalidRequest(
                f"{what} of {self.uri} is in the past and cannot be written to",
                next_step="Open the table without version=, as_of= or a tag, call refresh(), or begin a "
                "branch here: t.refs.branch(name)",
                table=self.uri,
            )

    def _with_note(self, note: Note | None) -> Context:
        """The context whose commits bear this note."""
        return self._ctx if note is None else replace(self._ctx, note=note)

    @contextmanager
    def _writing(self, operation: str, note: Note | None) -> Iterator[_Write]:
        """Inside, the operation is done in `ctx` on what is loaded, and its `outcome` set; afterwards the
        table is at what it left, and `result` is set."""
        self._writable()
        before = self._ctx.usage
        write = _Write(self._with_note(note))
        try:
            yield write
        except StaleUpload:
            self._move_on()  # so that the next try uploads after the boundary that it knows then
            raise
        self._loaded = write.outcome.loaded
        result = write.result = commit_op.write_result(
            operation, write.outcome, self._ctx.usage - before
        )
        _LOG.info(
            "%s of %s: %s, version %d, rows added: %d, requests: %d",
            operation,
            self.uri,
            "committed"
            if result.committed
            else "applied before"
            if result.applied_before
            else "nothing to do",
            result.version,
            result.added_rows,
            result.requests,
        )


class _Write(Mutable):
    """One write: see `Table._writing`."""

    ctx: Context
    outcome: Committed | Skipped = LATER
    result: WriteResult = LATER


def _of_pinned(pinned: Pinned) -> Table:
    loaded, at = pinned.load()
    return Table(pinned.context, loaded, at=at, tag=pinned.tag)


def _noted(done: WriteResult, condition: Condition, mode: str) -> WriteResult:
    if condition.calculated is None or mode != "tombstone" or not done.committed:
        return done
    note = "the condition calculates, so the rows that it found were marked (mode=vector)"
    return replace(done, note=note)


def _asked(condition: Condition, params: Params) -> object:
    """What makes two requests of one id the same: not the moment at which `now()` was read."""
    if not condition.timed and not condition.calculated:
        return condition.predicate
    return condition.text if params is None else _as_text((condition.text, params))


def _as_text(asked: Any) -> str:
    """What makes two requests of one id the same, in any process: where pandas is installed pyarrow has
    times in nanoseconds as its own, elsewhere as Python's or not at all."""
    is_table = isinstance(asked, pa.Table)
    if is_table and any(getattr(field.type, "unit", "") == "ns" for field in asked.schema):
        return str(_by_number(asked))
    try:
        return str(asked.to_pydict() if is_table else asked)
    except (ValueError, OverflowError):  # pyarrow's dates and times that Python has no value for
        return str(_by_number(asked))


def _by_number(asked: Any) -> Any:
    match asked:
        case pa.Table():
            return {
                name: _by_number(list(column))
                for name, column in zip(asked.column_names, asked.columns, strict=True)
            }
        case Mapping():
            return {name: _by_number(value) for name, value in asked.items()}
        case list() | tuple():
            return [_by_number(value) for value in asked]
        case pa.Scalar():
            is_time = pa.types.is_temporal(asked.type)
            return f"{asked.type} {asked.value}" if is_time else asked.as_py()
        case _:  # as it is compared
            return asked


def _key_table(keys: Any) -> pa.Table:
    try:
        return keys if isinstance(keys, pa.Table) else pa.table(keys)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"keys cannot be read as a table from {a_type(keys)}",
            next_step="Give a pyarrow Table, or columns with lists of values: {'id': [1, 2]}",
        ) from error


__all__ = ["Table", "connect", "create", "open"]

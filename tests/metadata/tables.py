"""Tables of entries without data files, changed through the real planner and commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from inlay.format import keys
from inlay.format.entry import ColumnStats, DataFile, LedgerRecord, Marker, Rows
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import LoadedTable, load_entries, load_ledger, load_pointer
from inlay.ops.schema.create import create
from inlay.plan.change import AddFiles, AddMarkers, Change, PackMetadata, RemoveFiles, Request
from inlay.plan.metadata.state import State, ledger_records, open_tree
from inlay.plan.pruning.prune import Evidence
from inlay.plan.verify import Finding, check_file_segment, check_node, check_reference, check_state
from inlay.storage.memory import MemoryStore
from inlay.storage.open import open_store
from inlay.storage.wrapped import MeteredStore, Usage

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


class Table:
    """One table; `forget` makes the next operation start from nothing but the pointer."""

    def __init__(self, now_us: Callable[[], int] | None = None, uri: str = "") -> None:
        """In memory, unless `uri` says where."""
        self.rng = random.Random(1)
        clock = {} if now_us is None else {"now_us": now_us}
        store, self.root = open_store(uri) if uri else (MemoryStore("m", **clock), "t")
        self.uri = uri or "memory://m/t"
        self.store = MeteredStore(store)
        self.ctx = self.fresh()
        self.loaded: LoadedTable = create(self.ctx, SCHEMA, primary_key=["k"], sort_by=["k"])
        self.made = 0

    def fresh(self) -> Context:
        return Context(
            store=self.store,
            root=self.root,
            uri=self.uri,
            executor=InlineExecutor(),
            random=self.rng,
        )

    def forget(self) -> None:
        self.ctx = self.fresh()
        self.loaded = load_pointer(self.ctx)

    def load(self) -> State:
        ctx = self.fresh()
        return load_ledger(ctx, load_entries(ctx, load_pointer(ctx).state))

    def records(self) -> Iterator[LedgerRecord]:
        state = self.load()
        records = state.snapshot.ledger.records
        for leaf in open_tree(records.segments, state.contents.nodes).leaves:
            yield from ledger_records(leaf, state.contents.ledger[leaf.id])
        yield from records.inline

    # -- changes ------------------------------------------------------------------------------

    def file(self, low: int | None = None) -> DataFile:
        self.made += 1
        low = self.rng.randrange(10**6) if low is None else low
        stats = {
            1: ColumnStats(low, low + 9, 0),
            2: ColumnStats(f"a{low % 7}", f"z{low % 11}", self.rng.randrange(3)),
        }
        return DataFile(
            key=f"data/{self.made:05}-{self.rng.getrandbits(32):08x}.parquet",
            size=self.rng.randrange(100, 10_000),
            footer_size=90,
            rows=10,
            row_groups=1,
            schema_id=0,
            stats=stats,
        )

    def files(self, count: int) -> tuple[DataFile, ...]:
        return tuple(self.file() for _ in range(count))

    def commit(self, change: Change) -> int:
        done = commit(self.ctx, change, base=self.loaded)
        assert isinstance(done, Committed)
        self.loaded = done.loaded
        return done.loaded.snapshot.version

    def append(self, files: Sequence[DataFile]) -> tuple[int, list[bytes]]:
        events = tuple(Request.of(f.key) for f in files)
        version = self.commit(
            Change(operation="ingest", events=events, updates=(AddFiles(tuple(files)),))
        )
        return version, [e.id for e in events]

    def replace(self, gone: tuple[str, ...], files: Sequence[DataFile]) -> int:
        return self.commit(
            Change(
                operation="delete",
                updates=(
                    RemoveFiles(gone),
                    AddFiles(tuple(files)),
                ),
            )
        )

    def mark(self, keys: Sequence[str]) -> list[str]:
        markers = tuple(Marker(id=self.ctx.new_id(), body=Rows((1,)), file=k) for k in keys)
        self.commit(Change(operation="delete", updates=(AddMarkers(markers),)))
        return [m.id for m in markers]

    def tidy(self) -> None:
        self.commit(Change(operation="compact", updates=(PackMetadata(),)))

    def used(self, before: Usage) -> Usage:
        return self.store.usage() - before

    # -- what must hold -----------------------------------------------------------------------

    def unsound(self) -> Iterator[Finding]:
        state = self.load()
        snapshot, contents = state.snapshot, state.contents
        evidence = Evidence.of_snapshot(snapshot)
        yield from check_state(state)
        for tier in (snapshot.files, snapshot.markers, snapshot.ledger.records):
            for top in tier.segments:
                yield from check_reference(top, snapshot.version)
                if top.level:
                    yield from check_node(top, contents.nodes[top.id])
        for leaf in state.open_files().leaves:
            yield from check_file_segment(leaf, contents.files[leaf.id], evidence)


class Named(Table):
    """Its files are named as the library names them: half of a name is random, and does not compress."""

    def file(self, low: int | None = None) -> DataFile:
        key = keys.data_key(self.loaded.date_us, self.ctx.new_id())
        return replace(super().file(low), key=key)

"""A table small enough to keep in mind: a memory store that records its requests."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.entry import DataFile, Marker
from inlay.format.puffin import encode_puffin
from inlay.format.schema import Schema
from inlay.ops.context import InlineExecutor
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.ranges import Cache, NoCache, Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.statistics import entry_of_file
from inlay.parquet.write.writer import Layout, Target, write_files
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import ScanPlan, plan_scan
from inlay.storage.base import ByteRange, Got
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import WrappedStore

# The model of rows is imported by other tests, by name.
sys.path.insert(0, str(Path(__file__).parent))

ROOT = "tables/t"


@dataclass(frozen=True)
class Request:
    verb: str
    key: str
    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


class Recorded(WrappedStore):
    """A store that remembers each read: which bytes of which object."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.reads: list[Request] = []
        self.before_read: Callable[[str], None] = lambda key: None

    def at(self, bucket: str) -> Recorded:
        other = Recorded(self.inner.at(bucket))
        other.reads = self.reads
        return other

    def get(self, key: str, *, byte_range: ByteRange | None = None, **pins: Any) -> Any:
        self.before_read(key)
        got = super().get(key, byte_range=byte_range, **pins)
        if isinstance(got, Got):
            start = byte_range.start if byte_range else 0
            self.reads.append(Request("GET", key, start, start + len(got.body)))
        return got

    def get_suffix(self, key: str, length: int, **pins: Any) -> Any:
        self.before_read(key)
        got = super().get_suffix(key, length, **pins)
        if isinstance(got, Got):
            self.reads.append(Request("SUFFIX", key, got.size - len(got.body), got.size))
        return got

    @property
    def bytes_read(self) -> int:
        return sum(read.bytes for read in self.reads)


@dataclass
class Lake:
    """One table's objects, without its metadata."""

    store: Recorded
    executor: Executor
    names: Any = field(default_factory=itertools.count)
    cache: Cache = field(default_factory=NoCache)

    @property
    def objects(self) -> Objects:
        return Objects(self.store, ROOT, self.cache)  # type: ignore[arg-type]

    @property
    def reader(self) -> Reader:
        return Reader(self.objects, self.executor)

    def target(self) -> Target:
        new_key = (f"data/{i}.parquet" for i in self.names).__next__
        return Target(self.store, f"{ROOT}/{{}}".format, new_key, self.executor)  # type: ignore[arg-type]

    def write(
        self, data: pa.Table, schema: Schema | None = None, **layout: Any
    ) -> tuple[DataFile, ...]:
        """Through the library's own writer."""
        schema = schema or schema_from_arrow(data.schema)
        batches = list(conformed(data.to_batches(), schema, schema, by_value=True))
        layout.setdefault("stats_columns", tuple(f.id for _, f in schema.walk()))
        return tuple(write_files(self.target(), batches, schema, Layout(**layout)))

    def adopt(self, body: bytes, schema: Schema, key: str | None = None) -> DataFile:
        """A file of some other writer, as ingest would describe it."""
        key = key or f"data/{next(self.names)}.parquet"
        self.store.put(f"{ROOT}/{key}", body)
        metadata = pq.read_metadata(pa.BufferReader(body))
        return entry_of_file(
            metadata,
            key=key,
            size=len(body),
            footer_size=metadata.serialized_size + 8,
            schema=schema,
            stats_columns=tuple(f.id for _, f in schema.walk()),
        )

    def puffin(self, vectors: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
        key = f"tombstone/{next(self.names)}.puffin"
        body, blobs = encode_puffin(vectors)
        self.store.put(f"{ROOT}/{key}", body)
        return key, blobs

    def put(self, key: str, body: bytes) -> None:
        self.store.put(f"{ROOT}/{key}", body)

    def body(self, key: str) -> bytes:
        got = self.store.inner.get(f"{ROOT}/{key}")
        assert isinstance(got, Got)
        return got.body

    def plan(
        self,
        files: Iterable[DataFile],
        schema: Schema,
        markers: Iterable[Marker] = (),
        schemas: Iterable[Schema] = (),
        **options: Any,
    ) -> ScanPlan:
        return plan_scan(files, markers, evidence=Evidence(schema, schemas), **options)

    def read(
        self,
        files: Iterable[DataFile],
        schema: Schema,
        markers: Iterable[Marker] = (),
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        position: bool = False,
        **options: Any,
    ) -> pa.Table:
        """All rows, planned and read."""
        plan = self.plan(files, schema, markers, **options)
        names = schema.names if columns is None else columns
        ids = tuple(schema.column(name).id for name in names)  # type: ignore[union-attr]
        projection = Projection(
            schema=schema, columns=ids, where=where, position=position, file=position
        )
        batches = list(self.reader.rows(plan.tasks, projection))
        if not names and not position:
            return sum(b.num_rows for b in batches)  # type: ignore[no-any-return]
        return pa.Table.from_batches(batches, schema=projection.result)


@pytest.fixture
def lake() -> Lake:
    return Lake(Recorded(MemoryStore("lake")), InlineExecutor())


@pytest.fixture(scope="session")
def new_lake() -> Callable[[], Lake]:
    """For Hypothesis: a fresh one for each example."""
    return lambda: Lake(Recorded(MemoryStore("lake")), InlineExecutor())


@pytest.fixture
def threads() -> Iterable[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def committed() -> Callable[..., tuple[DataFile, ...]]:
    """Files as of the version that committed them."""
    return lambda files, sequence=1: tuple(replace(f, sequence=sequence) for f in files)

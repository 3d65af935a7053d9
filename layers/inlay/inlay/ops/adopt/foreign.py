"""A table of another format as it is handed over, and the objects it consists of.

Promise: nothing of the source is read that the caller did not allow, whatever its metadata names: every
path is of the store of the new table, has no step upwards, and matches `Sources.granted`, which is the
source's own folder unless the caller says more. No object is fetched beyond the bound that its reader
gives.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyroaring import BitMap64

from inlay.errors import InlayError, InvalidRequest, NotGranted, ObjectGone, UnsupportedTable
from inlay.format.partition import Written
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import PartitionSpec
from inlay.ops.context import Context
from inlay.parquet.arrow.types import FIELD_ID
from inlay.parquet.read.ranges import Objects, Source, merge_ranges
from inlay.parquet.read.reader import Reader
from inlay.record import Record, field
from inlay.storage.base import ByteRange, Got, Location, Missing
from inlay.storage.open import named_location

# Deletes by position of a whole table: as bitmaps at most a few hundred MB.
MAX_POSITIONS = 100_000_000
# Vectors of one object; they are held while they are read.
MAX_BLOB_BYTES = 256 * 1024 * 1024
# Data files of a table: some 2 KB each while they are looked at.
MAX_FILES = 500_000
# Markers of one table: each is some 200 bytes, and every scan plans with them.
MAX_MARKERS = 100_000


class ForeignFile(Record, kw_only=True):
    """A live data file. `uri` is absolute; `rows` None: the source does not say. `constants` are values, by
    field id, that are in the source's metadata: files have them as columns too, or are written again."""

    uri: str
    size: int
    rows: int | None
    spec_id: int = 0
    partition: tuple[Written | None, ...] = ()
    constants: Mapping[int, Value | None] = field(default_factory=dict)


class KeyDelete(Record):
    """Rows of `files` whose columns equal a row of `keys`, which are named as the table's columns; NULL
    equals NULL."""

    keys: pa.Table
    files: tuple[str, ...]


class Naming(Record):
    """How columns are found in files: by field id (`ids`), or by the names that a field id has there. With
    both, names are for files that have no ids. Names None: such files cannot be read. `inner_ids`: elements
    of lists and maps have ids as well. `no_column`: what files have of that name is no column. `last_id`:
    the last one that the table has given, where files are new: one with others, or without any column of
    the table, is another table's, and would read as NULL."""

    ids: bool
    names: Mapping[int, tuple[str, ...]] | None
    inner_ids: bool = True
    no_column: str | None = None
    last_id: int | None = None


def no_casts(stored: Primitive, read_as: Primitive) -> bool:
    return False


class Foreign(Record, kw_only=True):
    """A table at one version, whole. `schema` has id 0; `declared` are Arrow types of fields beyond the
    format's own; `positions` are deleted rows by URI of the data file; `notes` say what stays behind."""

    kind: str
    version: str
    schema: Schema
    last_field_id: int
    naming: Naming
    files: tuple[ForeignFile, ...]
    specs: tuple[PartitionSpec, ...]
    spec_id: int
    primary_key: tuple[int, ...] = ()
    declared: Mapping[int, str] = field(default_factory=dict)
    positions: Mapping[str, BitMap64] = field(default_factory=dict)
    keys: tuple[KeyDelete, ...] = ()
    notes: tuple[str, ...] = ()
    casts: Callable[[Primitive, Primitive], bool] = no_casts


class PositionCount:
    """Deletes by position so far, within `MAX_POSITIONS`."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, rows: int) -> None:
        self.rows += rows
        if self.rows > MAX_POSITIONS:
            raise UnsupportedTable(
                f"more than {MAX_POSITIONS} rows are deleted by position",
                next_step="Compact the source first, which carries its deletes out",
            )


def field_id_of(arrow: pa.Field) -> int | None:
    """The id that a file gives to a column; None if it has none."""
    text = (arrow.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


def joined(*parts: str) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))


class Sources(Record):
    """The objects of a source table under `root`, a location of its folder. `granted` are patterns of
    `bucket/key`."""

    ctx: Context
    root: Location
    granted: tuple[str, ...]

    @staticmethod
    def of(ctx: Context, root: Location, granted: tuple[str, ...]) -> Sources:
        if root.scheme != ctx.store.scheme:
            raise UnsupportedTable(
                f"the source is on {root.scheme}://, the new table on {ctx.store.scheme}://",
                next_step="Files are adopted where they are: put the new table on the same store",
            )
        theirs = f"{root.bucket}/{root.key}".rstrip("/") + "/"
        ours = f"{ctx.store.bucket}/{ctx.root}".rstrip("/") + "/"
        if theirs.startswith(ours) or ours.startswith(theirs):
            raise InvalidRequest(
                f"{ctx.uri} and the source are within one folder",
                next_step="Put the new table elsewhere: the source's VACUUM or remove_orphan_files would "
                "delete its objects",
                table=ctx.uri,
            )
        own = glob.escape(f"{root.bucket}/{root.key}".rstrip("/")) + "/*"
        return Sources(ctx, root, (own, *granted))

    def uri(self, path: str) -> str:
        """The URI of a path as the source's metadata spells it: absolute, or relative to its folder."""
        text = path
        if text.startswith("/"):
            text = f"file://{text}" if self.root.scheme == "file" else ""
        elif "://" not in text and not text.startswith("file:/"):
            text = f"{self.root.scheme}://{self.root.bucket}/{joined(self.root.key, text)}"
        try:
            location = named_location(text)
        except InlayError:
            raise UnsupportedTable(
                f"the source names {path[:200]!r}, which is not on {self.root.scheme}://"
            ) from None
        steps = location.key.split("/")
        if location.scheme != self.root.scheme or "." in steps or ".." in steps or not location.key:
            raise UnsupportedTable(
                f"the source names {path[:200]!r}: not a plain path on {self.root.scheme}://",
                next_step="A path has no steps such as '..', and is on the store of the table",
            )
        return location.uri

    def source(self, uri: str, size: int | None = None) -> Source:
        """Raises `NotGranted` for what is outside the folders that were allowed."""
        try:
            return self.objects.source(uri, size)
        except NotGranted:
            raise NotGranted(
                "the source table has a file outside its own folder",
                key=uri,
                next_step="If it is yours, allow its folder: adopt_from=['bucket/folder/*'], or "
                "--adopt-from 'bucket/folder/*'",
            ) from None

    @property
    def objects(self) -> Objects:
        return Objects(self.ctx.store, "", adopt_from=self.granted)

    @property
    def reader(self) -> Reader:
        return Reader(self.objects, self.ctx.executor)

    def read(self, uri: str, limit: int, what: str) -> bytes:
        """A whole object of at most `limit` bytes, in one request."""
        source = self.source(uri)
        got = source.store.get_suffix(source.key, limit)
        return self._whole(got, uri, limit, what)

    def find(self, relative: str, limit: int, what: str) -> bytes | None:
        """As `read`, of a path below the folder; None where there is nothing."""
        source = self.source(self.uri(relative))
        got = source.store.get_suffix(source.key, limit)
        return None if isinstance(got, Missing) else self._whole(got, source.name, limit, what)

    def read_blobs(self, uri: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at (offset, length) of one object; near ones share a request."""
        source = self.source(uri)
        merged = merge_ranges((ByteRange(at, at + n) for at, n in places), most=None)
        if sum(r.length for r in merged) > MAX_BLOB_BYTES:
            raise UnsupportedTable(
                f"the deletion vectors of one object have more than {MAX_BLOB_BYTES} bytes", key=uri
            )
        bodies: list[tuple[int, bytes]] = []
        for span in merged:
            got = source.store.get(source.key, byte_range=span)
            if not isinstance(got, Got):
                raise ObjectGone(f"{uri}, which the source table needs, no longer exists", key=uri)
            bodies.append((span.start, got.body))
        blobs = []
        for at, length in places:
            start, body = next(b for b in reversed(bodies) if b[0] <= at)
            blobs.append(body[at - start : at - start + length])
        return blobs

    def _whole(self, got: Got | Missing, uri: str, limit: int, what: str) -> bytes:
        if isinstance(got, Missing):
            raise ObjectGone(
                f"{what} of the source table is gone",
                key=uri,
                next_step="Its writer may have expired it: take the newest version of the table",
            )
        if got.size > limit:
            raise UnsupportedTable(
                f"{what} of the source table has {got.size} bytes, more than {limit}", key=uri
            )
        return got.body

"""The world the steps act in: the local AWS with the table, and the truth beside it.

The truth is DuckDB on the source files, with the same deletes applied there. Nothing of Inlay has a part in
it but the SQL text of the conditions, which is DuckDB's too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import inlay
from inlay import Table
from inlay.engine import EmbeddedS3
from inlay.local.demo.figures import SQL, Figures
from inlay.local.runtime_api import Failed
from inlay.local.stack import LocalStack

if TYPE_CHECKING:
    from inlay.local.demo.readers import Engines


class Truth:
    """What the table must hold."""

    def __init__(self, like: Path) -> None:
        import duckdb

        self._db: Any = duckdb.connect()
        self._db.execute(f"CREATE TABLE truth AS SELECT * FROM read_parquet({_text(like)}) LIMIT 0")

    def add(self, files: Iterable[Path]) -> None:
        for file in files:
            self._db.execute(f"INSERT INTO truth SELECT * FROM read_parquet({_text(file)})")

    def delete(self, where: str) -> None:
        self._db.execute(f"DELETE FROM truth WHERE {where}")

    def figures(self) -> Figures:
        (row,) = self._rows(f"SELECT {SQL} FROM truth")
        return Figures.of(row)

    def count(self, where: str) -> int:
        ((count,),) = self._rows(f"SELECT count(*) FROM truth WHERE {where}")
        return int(count)

    def orders(self, share: float, *, limit: int = 1) -> Sequence[int]:
        """Order keys that are there: from `share` of the way through them, every 37th, at most
        `limit`."""
        rows = self._rows("SELECT DISTINCT l_orderkey FROM truth ORDER BY 1")
        first = int(len(rows) * share)
        return [key for (key,) in rows[first::37][:limit]]

    def add_orders(self, orders: Sequence[int], source: Path) -> pa.Table:
        """The rows of `orders` in a source file, which are added; as nullable as there."""
        files, keys = _text(source), ", ".join(map(str, orders))
        query = f"SELECT * FROM read_parquet({files}) WHERE l_orderkey IN ({keys})"
        self._db.execute(f"INSERT INTO truth {query}")
        rows, like = self._db.sql(query).to_arrow_table(), pq.read_schema(source)
        return rows.cast(
            pa.schema(
                [field.with_nullable(like.field(field.name).nullable) for field in rows.schema]
            )
        )

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._db.execute(sql).fetchall()
        return rows


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


class Mismatch(Exception):
    """The product did not do what it should; the message says what."""


@dataclass(frozen=True, slots=True)
class State:
    """What the table is after a step; `objects` counts all under the table's root, data or not."""

    version: int
    files: int
    bytes: int
    markers: int
    objects: int


@dataclass(slots=True)
class World:
    """`table` is its name in the bucket; `history` is what each version held when it was the newest;
    `requests` the delete requests by their ids, for sending one again; `erased` the order that must be
    nowhere in the end; `engines` are others, which read the table from its first version, and write."""

    stack: LocalStack
    table: str
    truth: Truth
    sources: Sequence[Path]
    history: dict[int, Figures] = field(default_factory=dict)
    requests: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    erased: int | None = None
    engines: Engines | None = None

    @property
    def published(self) -> bool:
        return self.engines is not None

    @property
    def uri(self) -> str:
        return self.stack.table_uri(self.table)

    def open(self) -> Table:
        return inlay.open(self.uri)

    def state(self) -> State:
        snapshot = self.open().snapshot
        totals = snapshot.totals
        objects = len(self._keys(f"tables/{self.table}/"))
        return State(snapshot.version, totals.files, totals.bytes, totals.markers, objects)

    # -- acting, each beside the truth ------------------------------------------------------------

    def land(self, sources: Sequence[Path]) -> None:
        """Upload files into the landing zone and wait until the functions have done with them."""
        for source in sources:
            self.stack.s3.upload_file(str(source), self.stack.bucket, self._landing_key(source))
        self.stack.drain()
        self.truth.add(sources)

    def send_event_again(self, source: Path) -> None:
        """Send the event of a landed file once more, as S3 and SQS may."""
        key = self._landing_key(source)
        head = self.stack.s3.head_object(Bucket=self.stack.bucket, Key=key)
        # The first event named it, unless another S3 server's landing zone is listed instead.
        version_id = None if self.stack.options.endpoint_url else head.get("VersionId")
        landed = EmbeddedS3.event_of(self.stack.bucket, key, head, version_id=version_id)
        self.stack.send("IngestQueue", landed)

    def request_delete(self, request_id: str, **request: Any) -> None:
        """Queue a delete request and wait for it. Conditions are put to the truth as they are."""
        self.requests[request_id] = {"id": request_id, "table": self.table, **request}
        self.repeat_delete(request_id)
        if "where" in request:
            self.truth.delete(request["where"])
        else:
            ((column, values),) = request["keys"].items()
            self.truth.delete(f"{column} IN ({', '.join(map(str, values))})")

    def repeat_delete(self, request_id: str) -> None:
        """Send a request again, word for word."""
        request = self.requests[request_id]
        self.stack.send("EraseQueue" if request.get("mode") == "erase" else "DeleteQueue", request)
        self.stack.drain()

    def run(self, function: str, **event: Any) -> Mapping[str, Any]:
        """Run a maintenance function on the table; returns what it says it did."""
        answer = self.stack.invoke(function, {"table": self.table, **event})
        if isinstance(answer, Failed):
            raise Mismatch(f"the function {function} failed: {answer.message}")
        said: Mapping[str, Any] = answer.payload
        return said

    def await_publication(self) -> None:
        """Until the newest version is published, as far as the publish function can."""
        if self.stack.options.endpoint_url:
            # No event of that server reaches the function: its schedule does.
            self.stack.invoke("publish")
        self.stack.drain()

    def create(self) -> None:
        inlay.create(
            self.uri,
            pq.read_schema(self.sources[0]),
            primary_key=["l_orderkey", "l_linenumber"],
            sort_by=["l_orderkey"],
            properties={"publish.format": "v3"} if self.published else {},
        )

    # -- looking ----------------------------------------------------------------------------------

    def open_deletes(self) -> int:
        """Delete markers but those of erasures, which stay until their erasure ends."""
        return sum(
            erasure is None for erasure in self.open().inspect.tombstones()["erasure"].to_pylist()
        )

    def receipts(self) -> Sequence[str]:
        """The receipts of erasures that have ended."""
        return self._keys(f"tables/{self.table}/erasure/")

    def holders(self) -> Sequence[str]:
        """Parquet objects and old versions of them, landed or the table's, that hold the erased order.
        Read by pyarrow, object by object."""
        return [
            f"{key} ({version})" for key, version in self._versions() if self._holds(key, version)
        ]

    def _versions(self) -> Iterator[tuple[str, str]]:
        lister = self.stack.s3.get_paginator("list_object_versions")
        for prefix in (f"tables/{self.table}/", f"ingest/{self.table}/"):
            for page in lister.paginate(Bucket=self.stack.bucket, Prefix=prefix):
                for version in page.get("Versions", []):
                    if version["Key"].endswith(".parquet"):
                        yield version["Key"], version["VersionId"]

    def _holds(self, key: str, version: str) -> bool:
        answer = self.stack.s3.get_object(Bucket=self.stack.bucket, Key=key, VersionId=version)
        rows = pq.read_table(pa.BufferReader(answer["Body"].read()), columns=["l_orderkey"])
        return bool(pc.any(pc.equal(rows["l_orderkey"], self.erased)).as_py())

    def dead_letters(self) -> Sequence[str]:
        """Why messages could not be dealt with; in this demo each can."""
        return [
            f"{queue}: {letter.reasons or letter.body[:200]}"
            for queue in (
                "IngestQueue",
                "DeleteQueue",
                "EraseQueue",
                "RewriteQueue",
                "PublishQueue",
            )
            for letter in self.stack.dead_letters(queue)
        ]

    def _landing_key(self, source: Path) -> str:
        return f"ingest/{self.table}/{source.name}"

    def _keys(self, prefix: str) -> list[str]:
        pages = self.stack.s3.get_paginator("list_objects_v2")
        return [
            item["Key"]
            for page in pages.paginate(Bucket=self.stack.bucket, Prefix=prefix)
            for item in page.get("Contents", [])
        ]

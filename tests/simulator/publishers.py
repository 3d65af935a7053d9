"""Publishers and Iceberg readers: who shows the table to other engines, and an engine.

Promise: the reader knows nothing of Inlay's metadata. It goes from the published pointer through manifest
list and manifests to data files and deletion vectors, as the specification of Iceberg v3 says, and must see
the rows of the one version that was published, however long it takes within a reader's life; and the
publication never goes back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.simulator.cast import COLUMNS, ROUNDS, crowd, enter, tidier
from tests.simulator.fates import CALM
from tests.simulator.model import Violation
from tests.simulator.stage import LIFE_SECONDS, Simulation

from inlay.errors import ErrorKind, InlayError
from inlay.format import keys
from inlay.format.puffin import decode_vector
from inlay.iceberg.avro import decode_avro
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context
from inlay.ops.publish.publish import publish
from inlay.plan.change import Change, SetProperties
from inlay.storage.base import Missing, Refused

publisher = tidier(publish, times=2 * ROUNDS, pause=30)


def publishers_cast(sim: Simulation) -> None:
    """A crowd on a table that is shown to other engines all the while."""
    published(sim)
    enter(sim, {**crowd(sim), "append": 1})
    show(sim)


def show(sim: Simulation) -> None:
    """Two publishers and two readers."""
    for n in range(2):
        sim.spawn(f"publish-{n}", partial(publisher, sim, f"publish-{n}"))
        sim.spawn(f"iceberg-{n}", partial(iceberg_reader, sim, f"iceberg-{n}"))


def published(sim: Simulation) -> None:
    """Let the table be published from now on."""
    sim.world.odds = CALM
    allow_publishing(sim.actor_context("owner"))
    sim.world.odds = sim.odds
    sim.published = True


def allow_publishing(ctx: Context) -> None:
    wanted = SetProperties({"publish.format": "v3"})
    commit(ctx, Change(operation="set_properties", updates=(wanted,)))


class Gone(Exception):
    """An object that the publication names is not there."""


def iceberg_reader(
    sim: Simulation, name: str, *, times: int = 2 * ROUNDS, pause: float = 60
) -> None:
    for _ in range(times):
        sim.scheduler.sleep(sim.rng.uniform(0, pause))
        sim.attempt(name, None, lambda ctx: look_by_iceberg(sim, ctx))


def look_by_iceberg(sim: Simulation, ctx: Context) -> None:
    """Read what is published; raises `Violation` where that is not the version it says."""
    opened_us, shown = sim.scheduler.now_us, sim.shown
    pointer = ctx.store.get(ctx.key(keys.PUBLISHED_POINTER))
    if isinstance(pointer, Missing | Refused):
        return
    metadata = json.loads(pointer.body)["metadata"]
    version = metadata["last-sequence-number"]
    if version < shown:
        raise Violation(f"version {version} is published, after {shown} was seen")
    sim.shown = max(sim.shown, version)
    try:
        rows = Counter(rows_of(ctx, metadata))
    except Gone as gone:
        if sim.scheduler.now_us - opened_us <= LIFE_SECONDS * 1_000_000:
            raise Violation(f"a reader of the publication of version {version}: {gone}") from gone
        return
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            return
        raise
    if rows != sim.model.rows_at[version]:
        raise Violation(f"a reader of the publication of version {version} saw other rows")


def rows_of(ctx: Context, metadata: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of the current snapshot, by the specification."""
    [snapshot] = [
        s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    ]
    [schema] = [s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"]]
    wanted = [f for name in COLUMNS.names for f in schema["fields"] if f["name"] == name]
    files: list[Mapping[str, Any]] = []
    deleted: dict[str, set[int]] = {}
    for manifest in decode_avro(_get(ctx, snapshot["manifest-list"])).records:
        for record in decode_avro(_get(ctx, manifest["manifest_path"])).records:
            file = record["data_file"]
            if manifest["content"] == 0:
                files.append(file)
                continue
            at, length = file["content_offset"], file["content_size_in_bytes"]
            blob = _get(ctx, file["file_path"])[at : at + length]
            deleted[file["referenced_data_file"]] = set(decode_vector(blob))
    for file in files:
        table = pq.ParquetFile(pa.BufferReader(_get(ctx, file["file_path"]))).read()
        by_id = {
            int((field.metadata or {}).get(b"PARQUET:field_id", -1)): at
            for at, field in enumerate(table.schema)
        }
        columns = [table.column(by_id[field["id"]]).to_pylist() for field in wanted]
        gone = deleted.get(file["file_path"], set())
        yield from (row for at, row in enumerate(zip(*columns, strict=True)) if at not in gone)


def _get(ctx: Context, uri: str) -> bytes:
    answer = ctx.store.get(ctx.key(uri.removeprefix(ctx.location(""))))
    if isinstance(answer, Missing | Refused):
        raise Gone(uri)
    return answer.body

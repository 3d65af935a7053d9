"""Engines: clients of a catalog that takes commits, as Iceberg's REST specification has them.

Promise: an engine knows nothing of Inlay's metadata. It loads the table, writes a data file, a manifest and
a list, and asks for a snapshot; it asks again with the same words while it does not know the answer, now
and then also when it does; when it is told that others were first it begins again, now and then after
having asked once more in vain. What it asks for is in the table exactly once, or was refused.

Engine and catalog are one process here: both die together, and the engine's words survive.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.simulator import model
from tests.simulator.cast import ROUNDS, as_table, crowd, enter, some_predicate, some_rows
from tests.simulator.model import Intent, Row, Violation
from tests.simulator.publishers import Gone, iceberg_reader, published, publisher, rows_of
from tests.simulator.stage import Simulation

from inlay.errors import ConcurrentChange, InvalidRequest, OutcomeUnknown, StoreUnavailable
from inlay.iceberg.commit import commit_request
from inlay.iceberg.manifest import Entry, Manifest, decode_list, encode_list, encode_manifest
from inlay.iceberg.schema import UNPARTITIONED
from inlay.ops.catalog.commit import commit_table, load
from inlay.ops.context import Context
from inlay.storage.base import Got


def engines_cast(sim: Simulation) -> None:
    """A crowd on a table that two engines write, too, and another one reads."""
    published(sim)
    enter(sim, {**crowd(sim), "append": 1})
    for n in range(2):
        sim.spawn(f"engine-{n}", partial(engine, sim, f"engine-{n}"))
    sim.spawn("publish-0", partial(publisher, sim, "publish-0"))
    sim.spawn("iceberg-0", partial(iceberg_reader, sim, "iceberg-0"))


def engine(sim: Simulation, name: str) -> None:
    for _ in range(ROUNDS):
        sim.scheduler.sleep(sim.rng.uniform(0, 120))
        statement = _insert(sim) if sim.rng.random() < 0.7 else _delete(sim)
        sim.attempt(name, None, statement.run)


def _insert(sim: Simulation) -> Statement:
    rows = some_rows(sim, sim.rng.randint(1, 6))
    return Statement(sim, model.insert(rows), lambda ctx, metadata: rows, adds=True)


def _delete(sim: Simulation) -> Statement:
    """All that is left, as a new file."""
    _, matches = some_predicate(sim)

    def kept(ctx: Context, metadata: Mapping[str, Any]) -> list[Row]:
        try:
            return [row for row in rows_of(ctx, metadata) if not matches(row)]
        except Gone as error:  # it took longer than what is published lives
            raise StoreUnavailable(str(error)) from error

    return Statement(sim, model.delete(matches), kept, adds=False)


@dataclass
class Statement:
    """What an engine wants: `rows` of a new file, by what is published, which is added or replaces all."""

    sim: Simulation
    intent: Intent
    rows: Callable[[Context, Mapping[str, Any]], list[Row]]
    adds: bool
    asked: str | None = None
    snapshot_id: int = 0

    def run(self, ctx: Context) -> None:
        self.prepare(ctx)
        again = self.sim.rng.random() < 0.25
        try:
            self._ask(ctx)
        except ConcurrentChange:
            if not again:
                self.asked = None
            raise
        if self.name not in self.sim.model.applied:
            raise Violation(f"{self.name} was answered, and is not applied")
        self.sim.model.acknowledge(self.name, self.sim.model.applied[self.name])
        if again:
            self._ask(ctx)

    def prepare(self, ctx: Context) -> None:
        """Write what it takes, and find the words, unless that is done."""
        if self.asked is None:
            metadata = json.loads(load(ctx))["metadata"]
            self.snapshot_id = self.sim.rng.getrandbits(62) | 2**61
            asked = json.dumps(self._request(ctx, metadata))
            self.sim.model.intend(self.name, self.intent)
            self.asked = asked

    @property
    def name(self) -> str:
        return f"iceberg snapshot {self.snapshot_id}"

    def _ask(self, ctx: Context) -> None:
        assert self.asked is not None
        try:
            commit_table(ctx, commit_request(json.loads(self.asked)))
        except OutcomeUnknown as error:  # it is asked again
            raise StoreUnavailable(error.message) from error
        except (ConcurrentChange, InvalidRequest) as error:
            if self.name in self.sim.model.applied:
                raise Violation(f"{self.name} was applied, and is refused: {error}") from None
            raise

    def _request(self, ctx: Context, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        current = metadata["current-snapshot-id"]
        [before] = [s for s in metadata["snapshots"] if s["snapshot-id"] == current]
        sequence = metadata["last-sequence-number"] + 1
        file = self._data_file(ctx, metadata)
        manifest = self._manifest(ctx, metadata, sequence, file)
        kept = _list_of(ctx, before["manifest-list"]) if self.adds else ()
        listed = encode_list(
            [*kept, manifest],
            version=sequence,
            snapshot_id=self.snapshot_id,
            parent=current,
            first_row_id=metadata.get("next-row-id", 0),
            format_version=metadata["format-version"],
            sync=bytes(16),
        )
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": current,
            "sequence-number": sequence,
            "timestamp-ms": metadata["last-updated-ms"] + 1,
            "manifest-list": _put(ctx, f"metadata/snap-{ctx.new_id()}.avro", listed),
            "summary": {"operation": "append" if self.adds else "overwrite"},
            "schema-id": metadata["current-schema-id"],
        }
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": self.snapshot_id}
        there = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current}
        same = {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}
        return {
            "requirements": [same, there],
            "updates": [
                {"action": "add-snapshot", "snapshot": snapshot},
                {"action": "set-snapshot-ref", **ref},
            ],
        }

    def _data_file(self, ctx: Context, metadata: Mapping[str, Any]) -> Entry:
        ids = {f["name"]: f["id"] for f in _schema_of(metadata)["fields"]}
        rows = as_table(self.rows(ctx, metadata))
        fields = [f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) for f in rows.schema]
        sink = io.BytesIO()
        pq.write_table(rows.cast(pa.schema(fields)), sink)
        path = _put(ctx, f"data/{ctx.new_id()}.parquet", sink.getvalue())
        return Entry(path=path, size=len(sink.getvalue()), rows=rows.num_rows)

    def _manifest(
        self, ctx: Context, metadata: Mapping[str, Any], sequence: int, file: Entry
    ) -> Manifest:
        name = f"metadata/{ctx.new_id()}-m0.avro"
        data, manifest = encode_manifest(
            [file],
            path=ctx.location(name),
            spec=UNPARTITIONED,
            schema=_schema_of(metadata),
            content=0,
            version=sequence,
            snapshot_id=self.snapshot_id,
            format_version=metadata["format-version"],
            sync=bytes(16),
        )
        _put(ctx, name, data)
        return manifest


def _schema_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    current = metadata["current-schema-id"]
    [found] = [s for s in metadata["schemas"] if s["schema-id"] == current]
    return dict(found)


def _put(ctx: Context, name: str, body: bytes) -> str:
    ctx.store.put(ctx.key(name), body)
    return ctx.location(name)


def _list_of(ctx: Context, uri: str) -> tuple[Manifest, ...]:
    answer = ctx.store.get(ctx.key(uri.removeprefix(ctx.location(""))))
    if not isinstance(answer, Got):
        raise StoreUnavailable(f"{uri} is gone: it took longer than what is published lives")
    return decode_list(answer.body)

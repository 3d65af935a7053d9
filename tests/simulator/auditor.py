"""The auditor: looks at the store after every write, beside the actors and without faults.

Promise: whatever is checked is checked on the bytes in the store, by decoding them, never on what an
actor believes.

* versions rise by one, each with one winner; times rise; the table id stays
* the archive of a version is in the store, byte for byte, before its successor is the pointer
* every version holds exactly the rows that the model says
* every object that a retained version reaches exists
* totals are the sums of what is live
* every tag and branch holds the rows that the model says
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.simulator.model import INTO_MAIN, Expected, Model, RefModel, Row, Rows, Violation

from inlay.errors import InlayError
from inlay.format import keys
from inlay.format.codec import decode_snapshot
from inlay.format.entry import DataFile, Keys, Vector
from inlay.format.schema import Schema
from inlay.format.snapshot import Ref, Snapshot
from inlay.iceberg.avro import decode_avro
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    frame_of,
    load_content,
    load_entries,
    load_ledger,
    read_main,
    schemas_of,
)
from inlay.parquet.read.selection import Projection
from inlay.plan.change import Request
from inlay.plan.metadata.state import State, ledger_records, open_tree
from inlay.plan.pruning.prune import Evidence
from inlay.plan.refs import heads, held_versions, ref_view
from inlay.plan.scan import FileTask, plan_scan
from inlay.storage.base import Got, Head

# Field ids of the columns that the model's rows have.
COLUMNS = (1, 2, 3)


class Auditor:
    """Watches one table. `ctx` reads the store directly."""

    def __init__(
        self, ctx: Context, model: Model, now_us: Callable[[], int], grace_us: int, life_us: int
    ) -> None:
        self.ctx = ctx
        self.model = model
        self.now_us = now_us
        self.grace_us = grace_us
        self.life_us = life_us
        self.snapshots: dict[int, Snapshot] = {}
        self.bytes_of: dict[int, bytes] = {}
        self.newest = 0
        self.expired_at: dict[int, int] = {}
        self.ended_by_erasure: set[int] = set()
        self.landed_us: dict[str, int] = {}  # by event
        self.seen_us: dict[int, int] = {}  # when a version came
        self.refs = RefModel(model)
        # Where an operator moves the pointer: every commit's state, and in which commit each request was
        # acknowledged.
        self.operated = False
        self.former: dict[str, Model] = {}  # of tables that were here before, by their ids
        self.states: dict[str, Auditor] = {}
        self.acknowledged_by: dict[str, str] = {}
        self.who: Callable[[], str] = lambda: (
            ""
        )  # sends a request; "": somebody who has given it up
        self._deeds = 0
        self._is_behind = False  # the pointer, and archives of what followed are there
        self._archived: dict[str, tuple[int, str]] = {}  # by whom: after which deed, and what
        self._reached: dict[int, frozenset[str]] = {}
        self._reached_by_refs: dict[int, frozenset[str]] = {}
        self._busy = False
        self._rows: dict[tuple[object, ...], Rows] = {}

    def go_on_from(self, other: Auditor) -> None:
        """Takes over what another auditor knows of the table that this one's began as."""
        self.snapshots, self.bytes_of = dict(other.snapshots), dict(other.bytes_of)
        self.newest, self.expired_at = other.newest, dict(other.expired_at)
        self.ended_by_erasure = set(other.ended_by_erasure)
        self.landed_us, self.seen_us = dict(other.landed_us), dict(other.seen_us)
        self.refs = other.refs.copy(self.model)
        self._reached_by_refs = dict(other._reached_by_refs)
        self._reached, self._rows = dict(other._reached), dict(other._rows)

    # -- a pointer that is moved by hand --------------------------------------------------------

    def expect_operators(self, who: Callable[[], str]) -> None:
        """From here on the pointer may be moved by hand. `who` sends the request that is applied."""
        self.operated, self.who = True, who
        self._remember(self.snapshots[self.newest])

    @property
    def table_id(self) -> str:
        """ "" while there is none."""
        return self.snapshots[self.newest].table_id if self.newest else ""

    def replaced(self) -> None:
        """The table was removed in one step. What is created next is another one."""
        if self.newest:
            self.former[self.table_id] = self.model.copy()
        self.model.begin()
        landed_us = self.landed_us
        self.go_on_from(Auditor(self.ctx, self.model, self.now_us, self.grace_us, self.life_us))
        self.landed_us, self.refs = landed_us, RefModel(self.model)
        self.states, self.acknowledged_by, self._archived = {}, {}, {}
        self._is_behind = False

    def acknowledge(self, request: str, version: int, commit_id: str | None, table_id: str) -> None:
        """A caller learned that its request is part of this version of this table, by this commit."""
        if table_id in self.former:
            self.former[table_id].acknowledge(request, version)
            return
        if self.operated:
            there = self.snapshots.get(version)
            if (
                commit_id is None
                and there is not None
                and self.model.applied.get(request) == version
            ):
                commit_id = there.commit.id  # by the ledger
            if commit_id is not None:
                self.acknowledged_by.setdefault(request, commit_id)
            if there is None or there.commit.id != commit_id:
                return  # the pointer was moved before the caller came to hear of it
        self.model.acknowledge(request, version)

    def rewind(self, commit_id: str) -> None:
        """The pointer is again what this commit had made of the table, or a repair goes on from that."""
        landed_us, rows, then = self.landed_us, self._rows, self.states[commit_id]
        self.go_on_from(then)
        self.landed_us, self._rows = landed_us, rows
        # Numbers that a repair has passed over stand for what was before them.
        versions = {s.commit.id: s.version for s in self.snapshots.values()}
        landed = {
            request: versions[c] for request, c in self.acknowledged_by.items() if c in versions
        }
        self.model.go_on_from(then.model, landed)
        after = self.ctx.key(keys.archive_key(self.newest + 1))
        self._is_behind = isinstance(self.ctx.store.get(after), Got)

    def moved(self, commit_id: str | None) -> None:
        """An operator has put the pointer of this commit back, or has deleted it."""
        self._deeds += 1
        if commit_id is not None:
            self.rewind(commit_id)

    def _check_not_behind(self, snapshot: Snapshot) -> None:
        """Who has archived its base after the last deed could see that the pointer went back."""
        base = keys.archive_key(snapshot.version - 1)
        if self._is_behind and self._archived.get(self.who()) == (self._deeds, self.ctx.key(base)):
            raise Violation(f"version {snapshot.version} was committed on a pointer that went back")

    def _is_new(self, snapshot: Snapshot, raw: bytes) -> bool:
        """Whether the pointer is a commit of its own; what it was made on is then what is known here."""
        if snapshot.commit.id in self.states:
            self.rewind(snapshot.commit.id)
            return False
        if snapshot.commit.operation == "repair":
            own = self.ctx.store.get(self.ctx.key(keys.archive_key(snapshot.version)))
            if not isinstance(own, Got) or own.body != raw:
                raise Violation(
                    f"the repair {snapshot.version} is not archived before it is written"
                )
            self._go_to_base_of(snapshot)
            self._is_behind = False
        else:
            self._check_not_behind(snapshot)
        return True

    def _go_to_base_of(self, mended: Snapshot) -> None:
        """Where a repair goes on from: the newest archive, or the pointer past the numbers that are taken.
        An archive that never was the pointer is that of a repair which ended there."""
        between: list[tuple[Snapshot, bytes]] = []
        at = mended
        while not skips(at):
            archive = self.ctx.store.get(self.ctx.key(keys.archive_key(at.version - 1)))
            if not isinstance(archive, Got):
                raise Violation(f"the repair {at.version} goes on from no archive")
            at = decode_snapshot(archive.body, key="", apart=schemas_of(self.ctx))
            if at.commit.id in self.states:
                self.rewind(at.commit.id)
                break
            if at.commit.operation != "repair":
                raise Violation(f"version {at.version}, which is repaired, never was")
            between.append((at, archive.body))
        last = self.newest
        for version in range(last + 1, mended.version):
            self.snapshots[version] = self.snapshots[last]
            self.bytes_of[version] = self.bytes_of[last]
            self.model.rows_at[version] = self.model.rows_at[last]
        for each, raw in between:
            self.snapshots[each.version], self.bytes_of[each.version] = each, raw
        self.newest = mended.version - 1

    def _remember(self, snapshot: Snapshot) -> None:
        then = Auditor(self.ctx, self.model.copy(), self.now_us, self.grace_us, self.life_us)
        then.go_on_from(self)
        self.states[snapshot.commit.id] = then

    # -- hooks --------------------------------------------------------------------------------

    def after_write(self, verb: str, key: str) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            if verb == "put" and (key == self.ctx.key(keys.POINTER) or f"/{keys.DECISIONS}" in key):
                self._pointer_written()
                self._check_transfers()
            elif verb == "put" and self.operated and "/manifest/v" in key:
                self._archived[self.who()] = (self._deeds, key)
            elif verb == "delete":
                self.check_reachable()
        except InlayError as error:
            # The actor whose request this was must not take it for an answer of the store.
            raise Violation(f"after {verb}: {type(error).__name__}: {error}") from error
        finally:
            self._busy = False

    # -- versions -----------------------------------------------------------------------------

    def _pointer_written(self) -> None:
        got = self.ctx.store.get(self.ctx.key(keys.POINTER))
        if not isinstance(got, Got):
            if self.operated:
                return
            raise Violation("the pointer is gone")
        # Prepared for a transaction it is one of two versions, as the decision says that is there now.
        body = frame_of(self.ctx, got.body)[0]
        snapshot = decode_snapshot(body, key=keys.POINTER, apart=schemas_of(self.ctx))
        version = snapshot.version
        if version == self.newest and body == self.bytes_of.get(version):
            return  # the same swap, answered twice, or a transaction that has changed nothing yet
        if self.operated and not self._is_new(snapshot, body):
            return
        if version != self.newest + 1:
            raise Violation(f"version {version} follows version {self.newest}")
        if version > 1:
            self._check_succession(snapshot)
        self.newest = version
        self.model.table_id = snapshot.table_id
        self.snapshots[version] = snapshot
        self.seen_us[version] = self.now_us()
        self.bytes_of[version] = body
        self._note_expiry(snapshot)
        self._check_content(snapshot)
        if self.operated:
            self._remember(snapshot)

    def _check_succession(self, snapshot: Snapshot) -> None:
        before = self.snapshots[snapshot.version - 1]
        if snapshot.table_id != before.table_id:
            raise Violation("the table id changed")
        if snapshot.commit.time_us <= before.commit.time_us:
            raise Violation(f"time does not rise at version {snapshot.version}")
        if snapshot.commit.id in {s.commit.id for s in self.snapshots.values()}:
            raise Violation(f"commit id of version {snapshot.version} was used before")
        archive = self.ctx.store.get(self.ctx.key(keys.archive_key(before.version)))
        archived = isinstance(archive, Got) and archive.body == self.bytes_of[before.version]
        if not archived and not (self.operated and skips(snapshot)):
            raise Violation(
                f"version {before.version} was superseded and is not archived as it was"
            )
        known = (before.boundary.time_us, snapshot.boundary.time_us)
        if known[0] is not None and known[1] is not None and known[1] < known[0]:
            raise Violation("the GC boundary went back")
        if snapshot.ledger.horizon_us < before.ledger.horizon_us:
            raise Violation("the ledger's horizon went back")

    def _note_expiry(self, snapshot: Snapshot) -> None:
        for version in range(1, snapshot.oldest_version):
            if snapshot.commit.operation == "erase":
                self.ended_by_erasure.add(version)
            self.expired_at.setdefault(version, self.now_us())

    def _check_content(self, snapshot: Snapshot) -> None:
        state = load_entries(self.ctx, State(snapshot))
        live = list(state.files())
        before = self.snapshots.get(snapshot.version - 1)
        known = set() if before is None else {f.key for f in self._files(before)}
        operation, request = snapshot.commit.operation, snapshot.commit.request
        # A landing file that spans partitions becomes several files of one event.
        events = [f.event for f in live if f.event is not None and f.key not in known]
        fresh = {e: self._late(e, before) for e in events} if operation == "ingest" else {}
        added = self._rows_of([f for f in live if f.key not in known], snapshot)
        together = self._requests_of(state) if operation == "append" and request is None else []
        found = self.rows(snapshot)
        if snapshot.commit.branch is not None:
            rows = self.model.rows_at[snapshot.version - 1]
            expected = Expected(rows, rows)
            self.refs.on_branch(snapshot, snapshot.commit.branch)
        elif operation in INTO_MAIN and before is not None:
            expected = self.refs.main(before, snapshot, found)
        else:
            expected = self.model.advance(
                snapshot.version, operation, request, fresh, added, together
            )
        if not expected.allows(found):
            raise Violation(
                f"version {snapshot.version} ({operation} {request}) holds other rows than it must: "
                f"missing {_few(expected.least - found)}, too many {_few(found - expected.most)}"
            )
        self.model.rows_at[snapshot.version] = found
        self.refs.advance(before, snapshot)
        self.check_refs(snapshot)
        totals = snapshot.totals
        sums = (len(live), sum(f.rows for f in live), sum(f.size for f in live))
        if (totals.files, totals.rows, totals.bytes) != sums:
            raise Violation(f"totals of version {snapshot.version} are {totals}, not {sums}")

    def check_refs(self, snapshot: Snapshot) -> None:
        """Every tag and branch holds the rows that it must."""
        for name, ref in snapshot.refs.items():
            found = self.rows(self._seen(snapshot, ref))
            expected = self.refs.rows[name]
            if found != expected:
                raise Violation(
                    f"{ref.kind} {name} in version {snapshot.version} ({snapshot.commit.operation}): "
                    f"missing {_few(expected - found)}, too many {_few(found - expected)}"
                )

    def _seen(self, snapshot: Snapshot, ref: Ref) -> Snapshot:
        return ref_view(snapshot, load_content(self.ctx, snapshot, ref), ref.since)

    def _late(self, event: str, before: Snapshot | None) -> list[str]:
        """The erasures that were open, and were opened after the event's object had landed: its rows
        were there by then."""
        landed_us = self.landed_us[event]
        erasures = () if before is None else before.erasures
        return [e.id for e in erasures if e.predicate is not None and landed_us <= e.opened_us]

    def _requests_of(self, state: State) -> list[str]:
        """The requests that this version says it applied, by its ledger."""
        records = state.snapshot.ledger.records
        state = load_ledger(self.ctx, state)
        found = list(records.inline)
        for leaf in open_tree(records.segments, state.contents.nodes).leaves:
            found += ledger_records(leaf, state.contents.ledger[leaf.id])
        names = {Request.of(name).id: name for name in self.model.intents}
        return [names[r.id] for r in found if r.version == state.snapshot.version]

    def _check_transfers(self) -> None:
        """Where there is a table beside this one, each transfer is in both or in neither."""
        from tests.simulator.transfers import TRANSFER, beside, compare

        asked = [name for name in self.model.intents if name.startswith(TRANSFER)]
        other = beside(self.ctx)
        if asked and isinstance(self.ctx.store.head(other.key(keys.POINTER)), Head):
            mine, its = read_main(self.ctx), read_main(other)
            for name in asked:
                compare(self.ctx, mine, its, name)

    def _files(self, snapshot: Snapshot) -> list[Any]:
        return list(load_entries(self.ctx, State(snapshot)).files())

    def rows(self, snapshot: Snapshot) -> Rows:
        """The live rows of a version, by the real planner and reader. A file under the same deletes is
        read once: neither ever changes."""
        return self._rows_of(load_entries(self.ctx, State(snapshot)).files(), snapshot)

    def _rows_of(self, files: Iterable[DataFile], snapshot: Snapshot) -> Rows:
        state = load_entries(self.ctx, State(snapshot))
        schema = snapshot.schema
        plan = plan_scan(files, state.markers(), evidence=Evidence.of_snapshot(snapshot))
        found: Rows = Counter()
        for task in plan.tasks:
            known = (task.file.key, task.file.sequence, tuple(m.id for m in task.markers))
            if known not in self._rows:
                self._rows[known] = self._read(task, schema)
            found += self._rows[known]
        return found

    def _read(self, task: FileTask, schema: Schema) -> Rows:
        # What the table was created with; the model does not know columns that came later.
        projection = Projection(schema=schema, columns=COLUMNS)
        rows: Rows = Counter()
        for batch in self.ctx.reader.rows([task], projection):
            rows.update(zip(*(c.to_pylist() for c in batch.columns), strict=True))
        return rows

    def grace_of(self, version: int) -> int:
        """How long a reader of an expired version keeps its objects: an erasure waits for the longest
        life of a reader only."""
        return self.life_us if version in self.ended_by_erasure else self.grace_us

    # -- objects ------------------------------------------------------------------------------

    def check_reachable(self) -> None:
        """Everything that a version in its life, or dead for less than the grace period, needs."""
        present = {o.key for o in self.ctx.store.list(self.ctx.key(""))}
        # No version from before a repair that skips numbers can be opened; what it went on from may have
        # stood in the pointer alone. Who has opened one is still reading its files.
        openable = max((v for v, s in self.snapshots.items() if skips(s)), default=0)
        for version, snapshot in self.snapshots.items():
            gone_us = self.expired_at.get(version)
            if gone_us is not None and self.now_us() - gone_us > self.grace_of(version):
                continue
            missing = self._needs(snapshot) - present
            if openable <= version < self.newest:
                missing |= {self.ctx.key(keys.archive_key(version))} - present
            # Whoever has opened a ref of it a moment ago is still reading; longer is not promised.
            superseded_us = self.seen_us.get(version + 1)
            if superseded_us is None or self.now_us() - superseded_us <= self.life_us:
                missing |= self._refs_need(version) - present
            if missing:
                raise Violation(
                    f"version {version} of {self.newest} needs what was deleted: {sorted(missing)[:3]}"
                )

    def _needs(self, snapshot: Snapshot) -> frozenset[str]:
        if snapshot.version not in self._reached:
            self._reached[snapshot.version] = self._needed_by(snapshot)
        return self._reached[snapshot.version]

    def _needed_by(self, snapshot: Snapshot) -> frozenset[str]:
        tiers = (snapshot.files, snapshot.markers, snapshot.ledger.records)
        state = load_ledger(self.ctx, load_entries(self.ctx, State(snapshot)))
        found = {keys.segment_key(s.id) for t in tiers for s in t.segments}
        for tier in tiers:
            opened = open_tree(tier.segments, state.contents.nodes)
            found |= {keys.segment_key(leaf.id) for leaf in opened.leaves}
        live = {f.key for f in state.files()}
        found |= {f.key for f in state.files() if not f.adopted}
        found |= {
            m.body.key
            for m in state.markers()
            if isinstance(m.body, Keys | Vector) and (m.file is None or m.file in live)
        }
        return frozenset(self.ctx.key(k) for k in found)

    def _refs_need(self, version: int) -> frozenset[str]:
        """What the tags and branches that `version` names need."""
        if version not in self._reached_by_refs:
            table = self.snapshots[version]
            held = {v for v in held_versions(table) if v < version}
            found = {keys.archive_key(v) for v in held}
            found |= {keys.segment_key(head.id) for head in heads(table)}
            reached = frozenset(self.ctx.key(k) for k in found)
            for ref in table.refs.values():
                reached |= self._needed_by(self._seen(table, ref))
            self._reached_by_refs[version] = reached
        return self._reached_by_refs[version]

    def orphans(self) -> set[str]:
        """Data, marker and segment objects that no retained version needs."""
        needed = {
            key
            for version, snapshot in self.snapshots.items()
            if version not in self.expired_at
            for key in self._needs(snapshot)
        }
        needed |= self._refs_need(self.newest)
        for version in held_versions(self.snapshots[self.newest]):
            needed |= self._needs(self.snapshots[version])  # the ledger that it names as well
        kinds = (keys.ObjectKind.DATA, keys.ObjectKind.TOMBSTONE, keys.ObjectKind.SEGMENT)
        root = self.ctx.key("")
        return {
            o.key
            for o in self.ctx.store.list(root)
            if keys.classify(o.key[len(root) :]) in kinds and o.key not in needed
        }


def skips(snapshot: Snapshot) -> bool:
    """Whether it is a repair that goes on past the numbers of another history."""
    return snapshot.commit.operation == "repair" and snapshot.oldest_version == snapshot.version


def find_bytes(objects: Iterable[tuple[str, bytes]], token: str) -> list[str]:
    """Keys of objects in which a text can be found: in the bytes as they are, in frames that are
    compressed, in the values of Parquet and Avro files."""
    found: list[str] = []
    for key, body in objects:
        plain = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        inside = token.encode() in plain
        if not inside and body[:4] == b"PAR1":
            inside = token in str(pq.read_table(pa.BufferReader(body)).to_pydict())
        if not inside and body[:4] == b"Obj\x01":
            inside = token.encode() in repr(decode_avro(body).records).encode()
        if inside:
            found.append(key)
    return found


def _few(rows: Rows) -> list[Row]:
    return sorted(rows.elements(), key=repr)[:4]

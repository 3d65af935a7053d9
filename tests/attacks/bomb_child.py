"""One operation on files that it may have no memory for: prints what became of each, as JSON."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import sys
from pathlib import Path

import pyarrow.parquet as pq

from inlay.errors import InlayError
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.write.append import IngestSource
from inlay.ops.write.delete import delete
from inlay.ops.write.ingest import Ingested, Rejected, ingest
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import find_residue
from inlay.plan.scan import FileTask
from inlay.storage.base import Location
from inlay.storage.memory import MemoryStore

MORE = 400 << 20
WHO = Comparison(2, "=", Literal(Primitive("string"), "ada@example.com"))
FEW = Comparison(1, "=", Literal(Primitive("int64"), 1))


class Clock:
    seconds = 1_800_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        Clock.seconds += seconds

    def now_us(self) -> int:
        return int(self.seconds) * 1_000_000


def table(operation: str, body: bytes) -> tuple[Context, object]:
    clock = Clock()
    store = MemoryStore("b", now_us=clock.now_us)
    ctx = Context(
        store=store,
        root="tables/t",
        uri="memory://b/tables/t",
        executor=InlineExecutor(),
        clock=clock,
        random=random.Random(1),
    )
    settings = {"ingest.unused_dictionary_entries": "reencode"} if operation == "ingest" else {}
    cuts = ("bucket(2, id)",) if operation == "split" else ()
    create(ctx, pq.read_schema(io.BytesIO(body)), properties=settings, partition_by=cuts)
    clock.sleep(1)
    store.put("in/x.parquet", body)
    clock.sleep(1)
    [outcome] = ingest(ctx, [IngestSource(Location("memory", "b", "in/x.parquet"))]).outcomes
    clock.sleep(1)
    return ctx, outcome


def carry_out(operation: str, body: bytes) -> str:
    ctx, outcome = table(operation, body)
    if isinstance(outcome, Rejected):
        return type(outcome.error).__name__
    assert isinstance(outcome, Ingested), outcome
    if operation in ("ingest", "split"):
        return "done"
    loaded = load_pointer(ctx)
    state = load_entries(ctx, loaded.state)
    schema = state.snapshot.schema
    if operation == "scan":
        Scan(ctx, state).to_arrow()
        return "done"
    if operation == "search":
        [entry] = state.files()
        task = FileTask(file=entry, schema=schema)
        opened = ctx.reader.open(task, Projection(schema=schema, columns=()))
        is_text = schema.fields[1].type == Primitive("string")
        find_residue(opened, WHO if is_text else FEW, ctx.executor)
        return "done"
    delete(ctx, FEW)
    result = rewrite(ctx, strategy="surgery" if operation == "surgery" else "rewrite")
    if result.failures:
        return type(result.failures[0].error).__name__
    return "done"


def main() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * page
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE, taken + MORE))
    found = {}
    for name in sys.argv[2:]:
        try:
            found[Path(name).name] = carry_out(sys.argv[1], Path(name).read_bytes())
        except InlayError as error:
            found[Path(name).name] = type(error).__name__
        except MemoryError:
            found[Path(name).name] = "MemoryError"
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""What a publication costs at so many files: requests and bytes, counted at the store.

    python -m tests.measured.publish --files 1000 100000

Tables of entries without data files, named as the library names them (tests/metadata/tables.py): a cold
publication, then one after each of 20 appends of one file, one after a delete that marks rows of a file by
a vector, one each after 1, 10 and 100 files at random left the table, as compaction takes them out of full
manifests, and one each after deletes by condition that hit so many, or 1,000.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

from pyroaring import BitMap64
from tests.metadata.tables import Named, Table

from inlay.engine import Primitive, load_pointer, publish
from inlay.format.entry import Marker, Vector, Where
from inlay.format.predicate import In
from inlay.ops.publish import settle
from inlay.plan.change import AddFiles, AddMarkers, Change, RemoveFiles, SetProperties

APPENDS = 20
# Files at random that one commit takes out of manifests that are full, or hits (where there are so many).
FILES = (1, 10, 100)
HITS = (1, 10, 100, 1_000)


def measured(table: Table) -> tuple[int, int, int, float]:
    """PUTs, bytes up, GETs, seconds of one publication."""
    before, started = table.store.usage(), time.monotonic()
    publish(table.fresh(), look_into_files=False)
    used = table.used(before)
    return (
        used.requests.get("put", 0),
        used.bytes_up,
        used.requests.get("get", 0),
        time.monotonic() - started,
    )


def table_of(files: int) -> Table:
    table = Named()
    table.commit(
        Change(operation="set_properties", updates=(SetProperties({"publish.format": "v3"}),))
    )
    for start in range(0, files, 10_000):
        count = min(10_000, files - start)
        table.commit(Change(operation="ingest", updates=(AddFiles(table.files(count)),)))
    return table


def main() -> None:
    # There are no data files to read the rows of: each that a delete may hit loses its first.
    settle._deleted = lambda ctx, loaded, tasks: {t.file.key: BitMap64([0]) for t in tasks}
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    for files in parser.parse_args().files:
        table = table_of(files)
        puts, up, gets, seconds = measured(table)
        print(f"{files:>9,} files  cold: {puts} PUT {up / 1000:.0f} KB {gets} GET {seconds:.1f} s")
        found = []
        for _ in range(APPENDS):
            table.append(table.files(1))
            found.append(measured(table))
        kb = [up / 1000 for _, up, *_ in found]
        print(
            f"{'':>9}        append: {statistics.median(p for p, *_ in found)} PUT (at most "
            f"{max(p for p, *_ in found)}), {statistics.median(kb):.1f} KB (at most {max(kb):.1f}), "
            f"{statistics.median(g for _, _, g, _ in found)} GET, "
            f"{statistics.median(s for *_, s in found) * 1000:.0f} ms"
        )
        key = table.files(1)[0].key
        entry = table.file()
        table.append([entry])
        measured(table)
        vector = Marker(
            id=table.ctx.new_id(), body=Vector("tombstone/x.puffin", 4, 40, 1), file=entry.key
        )
        table.commit(Change(operation="delete", updates=(AddMarkers((vector,)),)))
        puts, up, gets, seconds = measured(table)
        print(f"{'':>9}        vector: {puts} PUT {up / 1000:.1f} KB {gets} GET", key and "")
        for gone in FILES:
            live = [entry.key for entry in table.load().files()]
            drop = tuple(random.Random(gone).sample(live, gone))
            table.commit(Change(operation="rewrite", updates=(RemoveFiles(drop),)))
            puts, up, gets, seconds = measured(table)
            print(f"{'':>9} {gone:>4} files go: {puts} PUT {up / 1000:.0f} KB {gets} GET")
        for hit in [n for n in HITS if n < files]:
            some = random.Random(hit).sample(list(table.load().files()), hit)
            lowers: set[Any] = {f.stats[1].lower for f in some}
            where = Marker(
                id=table.ctx.new_id(), body=Where(In(1, Primitive("int64"), tuple(sorted(lowers))))
            )
            table.commit(Change(operation="delete", updates=(AddMarkers((where,)),)))
            before, ctx = table.store.usage(), table.fresh()
            files = settle.settle(ctx, load_pointer(ctx)).files
            settled = table.used(before)
            puts, up, gets, seconds = measured(table)
            table.forget()
            print(
                f"{'':>9} {hit:>4} files hit by a condition: {puts} PUT {up / 1000:.1f} KB {gets} GET; "
                f"settling {files}: {settled.requests['put']} PUT {settled.bytes_up / 1000:.1f} KB"
            )


if __name__ == "__main__":
    main()

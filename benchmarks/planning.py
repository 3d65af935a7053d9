"""How fast pyiceberg plans on a published table, against the same table written by pyiceberg itself.

    python benchmarks/planning.py --files 10000

The table has entries without data files (tests/metadata/tables.py). Ours is the publication; theirs has
the same files with the metrics that pyiceberg writes, in as many manifests, by pyiceberg's own writers.
Both are planned in turn, whole and by a selective filter, in one process of the environment of `make
engines`; the figures are medians of the ratios of processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 9
ENGINES = Path(__file__).parents[1] / ".tools" / "engines" / "bin" / "python"
FILTERS = ("", "k < 1000")


def published(files: int, where: Path, version: str) -> str:
    from tests.metadata.tables import Table

    from inlay.engine import publish
    from inlay.plan.change import AddFiles, Change, SetProperties

    table = Table(uri=str(where))
    table.commit(
        Change(operation="set_properties", updates=(SetProperties({"publish.format": version}),))
    )
    for start in range(0, files, 10_000):
        added = table.files(min(10_000, files - start))
        table.commit(Change(operation="ingest", updates=(AddFiles(added),)))
    publish(table.fresh(), look_into_files=False)
    pointer = json.loads((where / "metadata" / "latest.json").read_text())
    found: str = pointer["metadata-location"]
    return found


def written_by_pyiceberg(ours: Any, where: Path) -> str:
    """The same files again, by pyiceberg's writers."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
        write_manifest,
        write_manifest_list,
    )
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        SetSnapshotRefUpdate,
        update_table_metadata,
    )
    from pyiceberg.typedef import Record

    io, schema = PyArrowFileIO(), ours.schema()
    where.mkdir()
    manifests = []
    for n, manifest in enumerate(ours.current_snapshot().manifests(io)):
        output = io.new_output(str(where / f"m{n}.avro"))
        with write_manifest(
            2, UNPARTITIONED_PARTITION_SPEC, schema, output, 1, "deflate"
        ) as writer:
            for entry in manifest.fetch_manifest_entry(io):
                file = entry.data_file
                data = DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=file.file_path,
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=file.record_count,
                    file_size_in_bytes=file.file_size_in_bytes,
                    column_sizes={1: 80, 2: 90},
                    value_counts={1: file.record_count, 2: file.record_count},
                    null_value_counts=file.null_value_counts,
                    nan_value_counts={},
                    lower_bounds=file.lower_bounds,
                    upper_bounds=file.upper_bounds,
                    split_offsets=[4],
                )
                added = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=data
                )
                writer.add_entry(added)
        manifests.append(writer.to_manifest_file())
    listing = str(where / "list.avro")
    with write_manifest_list(2, io.new_output(listing), 1, None, 1, "deflate") as writer:
        writer.add_manifests(manifests)
    metadata = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(where), {}
    )
    snapshot = Snapshot(
        snapshot_id=1,
        sequence_number=1,
        timestamp_ms=metadata.last_updated_ms,
        manifest_list=listing,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    metadata = update_table_metadata(
        metadata,
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=1),
        ),
    )
    path = where / "v1.metadata.json"
    path.write_text(metadata.model_dump_json())
    return str(path)


def measure(metadata: str, where: Path) -> None:
    """In the environment of the engines: one line of JSON for each filter."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.manifest import clear_manifest_cache
    from pyiceberg.table import StaticTable

    ours = StaticTable.from_metadata(metadata)
    theirs = written_by_pyiceberg(ours, where)

    def planned(location: str, wanted: str) -> tuple[float, int]:
        # As a new reader does: nothing is remembered of the table.
        clear_manifest_cache()
        table = StaticTable.from_metadata(location)
        began = time.process_time()
        files = list(table.scan(row_filter=wanted or AlwaysTrue()).plan_files())
        return time.process_time() - began, len(files)

    for wanted in FILTERS:
        ratios, found = [], set()
        for n in range(ROUNDS):
            pair = [(metadata, 0), (theirs, 1)]
            taken = {which: planned(at, wanted) for at, which in (pair if n % 2 else pair[::-1])}
            ratios.append(taken[0][0] / taken[1][0])
            found |= {taken[0][1], taken[1][1]}
        [files] = found
        manifests = len(ours.current_snapshot().manifests(ours.io))
        print(
            json.dumps(
                {
                    "filter": wanted,
                    "files": files,
                    "manifests": manifests,
                    "ratio": round(statistics.median(ratios), 3),
                    "least": round(min(ratios), 3),
                    "most": round(max(ratios), 3),
                }
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, nargs="+", default=[10_000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure[0], Path(asked.measure[1]))
        return
    for files in asked.files:
        for version in ("v3", "v2"):
            with tempfile.TemporaryDirectory() as place:
                metadata = published(files, Path(place) / "t", version)
                done = subprocess.run(
                    [ENGINES, __file__, "--measure", metadata, str(Path(place) / "theirs")],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                print(f"{files:,} files, {version}", done.stdout or done.stderr, sep="\n")
                if done.returncode:
                    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

"""Inspection: the contents of a snapshot, as Arrow tables.

Promise: complete, and of the requested version; every column states its content and unit in the metadata of
its Arrow field (`doc`), and `docs/INSPECTION.md` lists them all.
"""

from inlay.ops.inspect.files import (
    files_table,
    load_tree,
    partition_values,
    partitions_table,
    segments_table,
)
from inlay.ops.inspect.tombstones import ledger_table, tombstones_table

__all__ = [
    "files_table",
    "ledger_table",
    "load_tree",
    "partition_values",
    "partitions_table",
    "segments_table",
    "tombstones_table",
]

"""Inspection: what a snapshot is made of, as Arrow tables.

Promise: complete and of the very version it is asked of; every column says in its Arrow field's metadata
(`doc`) what it holds and in which unit, and `docs/INSPECTION.md` lists them all.
"""

from inlay.ops.inspect.files import files_table, partition_values, partitions_table
from inlay.ops.inspect.ledger import ledger_table
from inlay.ops.inspect.segments import load_tree, segments_table
from inlay.ops.inspect.tombstones import tombstones_table

__all__ = [
    "files_table",
    "ledger_table",
    "load_tree",
    "partition_values",
    "partitions_table",
    "segments_table",
    "tombstones_table",
]

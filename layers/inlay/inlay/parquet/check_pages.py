"""Checks of data files by all that is in them: every page is decoded.

Promise: as of `parquet.check`; a file is read whole, once for each check.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from inlay.format.entry import DataFile
from inlay.format.schema import Schema
from inlay.format.snapshot import PartitionSpec
from inlay.parquet.arrow.evaluate import columns_of
from inlay.parquet.check import DAMAGE, Judge, Problem, problem_of
from inlay.parquet.read.data_file import reading
from inlay.parquet.read.ranges import fetch
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.single_pages import false_indexes
from inlay.parquet.surgery.residue import unused_entries
from inlay.plan.scan import FileTask


def check_pages(
    reader: Reader, entry: DataFile, schema: Schema, *, spec: PartitionSpec
) -> list[Problem]:
    """Decodes every page, and compares every value with the entry's statistics and its partition, a value
    for each field of `spec`."""
    task = FileTask(file=entry, schema=schema)
    projection = Projection(schema=schema, columns=tuple(f.id for f in schema.fields))
    judges = [Judge(f, s, schema) for f, s in entry.stats.items()]
    rows = elsewhere = 0
    # A file in no one partition may lack a column of `spec`, which was dropped before it was written.
    split = None
    if entry.partition:
        from inlay.parquet.write.partition import Split  # most tables are not partitioned

        split = Split(spec, schema)
    try:
        with reading(entry.key):
            for batch in reader.rows([task], projection):
                rows += batch.num_rows
                if split is not None:
                    elsewhere += sum(r.num_rows for p, r in split(batch) if p != entry.partition)
                for judge in judges:
                    judge.look(batch, columns_of(schema))
    except DAMAGE as error:
        return [problem_of(error, "file")]
    problems = [("statistics_wrong", what) for judge in judges for what in judge.verdict()]
    if elsewhere:
        problems.append(("partition_wrong", f"{elsewhere} rows are not of its partition"))
    if rows != entry.rows:
        problems.append(("file_contradicts", f"{rows} rows were read, the entry says {entry.rows}"))
    return problems


def check_dictionaries(reader: Reader, entry: DataFile, schema: Schema) -> list[Problem]:
    """Dictionaries with entries that no row of their row group has: only other writers leave such."""
    try:
        opened = reader.open(FileTask(file=entry, schema=schema))
        unused = Counter(column for _, column in unused_entries(opened, reader.executor))
    except DAMAGE as error:
        return [("unused_entries", f"its dictionaries cannot be looked into: {error.message}")]
    return [
        ("unused_entries", f"in {n} row groups the dictionary of {column} has what no row has")
        for column, n in unused.items()
    ]


def check_page_index(reader: Reader, entry: DataFile, schema: Schema) -> list[Problem]:
    """Offset indexes that give pages other rows than they have: only other writers leave such."""
    source = reader.objects.source(entry.key, entry.size, entry.etag)
    try:
        footer = reader.open(FileTask(file=entry, schema=schema)).footer
        names = () if footer is None else false_indexes(footer, partial(fetch, source))
        columns = Counter(names)
    except DAMAGE as error:
        return [problem_of(error, "file")]
    return [
        ("page_index_wrong", f"in {n} row groups the page index of {column} is of other rows")
        for column, n in columns.items()
    ]

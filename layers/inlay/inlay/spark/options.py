"""Options of `spark.read` and `df.write`, from text to values.

Promise: an unknown or invalid option is refused by name, with the valid values: a misspelt `asOf` must not
silently read the newest version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

from inlay.engine import listed_names
from inlay.errors import InvalidRequest
from inlay.spark.connect import at_ref

# As `spark.sql.files.maxPartitionBytes`.
PARTITION_BYTES = 128 * 1024 * 1024

_READ = (
    "path",
    "columns",
    "where",
    "version",
    "asOf",
    "ref",
    "partitionBytes",
    "parallelism",
    "leaveOut",
    "table",
    "changeFeed",
    "startVersion",
    "startTime",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
)
_WRITE = (
    "path",
    "ref",
    "requestId",
    "tableId",
    "replaceWhere",
    "partitionOverwriteMode",
    "mergeSchema",
    "primaryKey",
    "sortBy",
    "partitionBy",
)
_DAMAGED = (
    'scan(on_damaged="skip") or changes(…, on_damaged="skip") of inlay.open(uri), which name the files; '
    "then inlay delete TABLE --where TRUE --file KEY"
)
# What Delta's and Iceberg's sources call them, and Inlay's way.
INSTEAD = {
    "versionasof": "version",
    "timestampasof": "asOf",
    "snapshot-id": "version",
    "as-of-timestamp": "asOf",
    "branch": "ref",
    "tag": "ref",
    "readchangefeed": "changeFeed",
    "readchangedata": "changeFeed",
    "startingversion": "startVersion",
    "startingtimestamp": "startTime",
    "start-snapshot-id": "startVersion",
    "endingversion": "version",
    "endingtimestamp": "asOf",
    "end-snapshot-id": "version",
    "stream-from-timestamp": "startTime",
    "ignorechanges": "changeFeed, or nothing: a stream has added rows",
    "ignoredeletes": "nothing: a stream has added rows",
    "skipchangecommits": "nothing: a stream has added rows",
    "txnappid": "requestId",
    "txnversion": "requestId",
    "overwriteschema": "inlay.open(uri).alter(…) before the write",
    "replaceusing": "inlay.spark.sql, MERGE INTO",
    "maxrecordsperfile": "the property write.target_file_bytes of the table",
    "compression": "the property write.compression of the table",
    "mergeschema": "mergeSchema of a write, or inlay.open(uri).alter(add={…})",
    "ondamaged": _DAMAGED,
    "ignorecorruptfiles": _DAMAGED,
    "inferschema": "nothing: the table has its schema",
}
# Methods of `Table` whose result the option `table` reads.
METADATA = (
    "history",
    "snapshots",
    "files",
    "partitions",
    "tombstones",
    "segments",
    "ledger",
    "refs",
)
# Options that Spark adds when a table of its catalog is created. When such a table is read, Spark passes
# none of the table's own options to a Python source, so there can be no such tables.
_OF_CATALOG = "owner"
# A write option that a view in SQL may have, too: INSERT has no other place for options.
_OF_INSERTS = "partitionoverwritemode"
# Spark's own options of a streaming query, which it passes to the sink.
_OF_SPARK = ("checkpointLocation", "queryName", "outputMode")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """`uri` includes the tag or branch (`connect.at_ref`). `columns` are names in the order of the result;
    `where` is SQL text. `parallelism` is the number of tasks that run at once: small tables are cut into as
    many partitions. `leave_out` are keys of files that are read otherwise (`spark.native`). `table` selects
    metadata (`spark.reader`), `change_feed` changes (`spark.feed`) in place of rows. The last four are
    for streams: where it starts (`start_version` is the first version whose rows it returns; it also starts
    a batch read of the change feed) and how much one micro-batch reads."""

    uri: str
    columns: tuple[str, ...] | None = None
    where: str | None = None
    version: int | None = None
    as_of_us: int | None = None
    partition_bytes: int = PARTITION_BYTES
    parallelism: int | None = None
    leave_out: tuple[str, ...] = ()
    table: str | None = None
    change_feed: bool = False
    start_version: int | None = None
    start_us: int | None = None
    max_files: int | None = None
    max_bytes: int | None = None

    @property
    def is_stream(self) -> bool:
        return any((self.start_version, self.start_us, self.max_files, self.max_bytes))

    @property
    def slots(self) -> int:
        """Task slots to plan for. Planning runs beside the driver and knows of no executors: on a local
        master these are its cores; on a cluster large tables have enough partitions anyway."""
        return self.parallelism or os.cpu_count() or 1


PartitionOverwrite = Literal["static", "dynamic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """`request_id` makes the write idempotent, also across runs of a job. `table_id` is that of the table
    that is meant, where another may have taken its place. `replace_where` is SQL text: with
    mode overwrite, the rows that the written ones replace. `partitions` defines what an overwrite without
    it replaces: all rows ("static"), or those of the written partitions ("dynamic"). `merge_schema` adds
    columns of the data that the table lacks; the last three apply when the write creates the table."""

    uri: str
    request_id: str | None = None
    table_id: str | None = None
    replace_where: str | None = None
    partitions: PartitionOverwrite | None = None
    merge_schema: bool = False
    primary_key: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()


def read_options(options: Mapping[str, str]) -> ReadOptions:
    if _OF_CATALOG in options:
        raise InvalidRequest(
            "Spark's catalog cannot hold a table of a Python source: it does not pass on its location",
            next_step="CREATE TEMPORARY VIEW name USING inlay OPTIONS (path 's3://…')",
        )
    asked = {name: value for name, value in options.items() if name.lower() != _OF_INSERTS}
    given = _checked(asked, _READ, "read")
    for one, other in (
        ("version", "asOf"),
        ("startVersion", "startTime"),
        ("maxFilesPerTrigger", "maxBytesPerTrigger"),
    ):
        if one in given and other in given:
            raise InvalidRequest(f"give one of the options {one} and {other}")
    return ReadOptions(
        uri=_uri(given),
        columns=_projection(given),
        where=given.get("where"),
        version=_number(given, "version"),
        as_of_us=_time_us(given, "asOf"),
        partition_bytes=_number(given, "partitionBytes") or PARTITION_BYTES,
        parallelism=_number(given, "parallelism"),
        leave_out=_columns(given["leaveOut"]) if "leaveOut" in given else (),
        table=_metadata(given),
        change_feed=_flag(given, "changeFeed"),
        start_version=_number(given, "startVersion"),
        start_us=_time_us(given, "startTime"),
        max_files=_number(given, "maxFilesPerTrigger"),
        max_bytes=_number(given, "maxBytesPerTrigger"),
    )


def _projection(options: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in options:
        return None
    columns = _columns(options["columns"])
    if not columns:
        raise InvalidRequest(
            "the option columns names none", next_step="Name at least one, or leave the option out"
        )
    return columns


def _metadata(options: Mapping[str, str]) -> str | None:
    text = options.get("table")
    if text is not None and text.lower() not in METADATA:
        raise InvalidRequest(
            f"the option table is {text[:100]!r}", next_step=f"Give one of {', '.join(METADATA)}"
        )
    return None if text is None else text.lower()


def are_read_options(options: Mapping[str, str]) -> bool:
    """Whether all these are options of a read."""
    known = {name.lower() for name in _READ}
    return all(name.lower() in known for name in options)


def write_options(options: Mapping[str, str]) -> WriteOptions:
    spark = {name.lower() for name in _OF_SPARK}
    ours = {name: value for name, value in options.items() if name.lower() not in spark}
    given = _checked(ours, _WRITE, "write")
    return WriteOptions(
        uri=_uri(given),
        request_id=given.get("requestId"),
        table_id=given.get("tableId"),
        replace_where=given.get("replaceWhere"),
        partitions=_partition_overwrite(given),
        merge_schema=_flag(given, "mergeSchema"),
        primary_key=_columns(given.get("primaryKey", "")),
        sort_by=_columns(given.get("sortBy", "")),
        partition_by=_listed(given.get("partitionBy", ""), calls=True),
    )


def _partition_overwrite(options: Mapping[str, str]) -> PartitionOverwrite | None:
    text = options.get("partitionOverwriteMode")
    if text is None:
        return None
    modes: dict[str, PartitionOverwrite] = {mode: mode for mode in get_args(PartitionOverwrite)}
    if text.lower() not in modes:
        raise InvalidRequest(
            f"the option partitionOverwriteMode is {text[:100]!r}",
            next_step=f"Give {' or '.join(modes)}",
        )
    return modes[text.lower()]


def replaces_partitions(mode: PartitionOverwrite | None) -> bool | None:
    """Whether an overwrite replaces the partitions that it writes to, rather than all rows; None: it does
    not say."""
    match mode:
        case None:
            return None
        case "static":
            return False
        case "dynamic":
            return True
        case _:
            assert_never(mode)


def _checked(options: Mapping[str, str], known: tuple[str, ...], verb: str) -> dict[str, str]:
    """The options by their proper names: Spark ignores case."""
    names = {name.lower(): name for name in known}
    unknown = [name for name in options if name.lower() not in names]
    if unknown:
        instead = INSTEAD.get(unknown[0].lower())
        raise InvalidRequest(
            f"unknown {verb} option {unknown[0][:100]!r}",
            next_step=f"Inlay's way: {instead}" if instead else f"Known ones: {', '.join(known)}",
        )
    return {names[name.lower()]: value for name, value in options.items()}


def _uri(options: Mapping[str, str]) -> str:
    if not options.get("path"):
        raise InvalidRequest(
            "no table is named",
            next_step='Give its place: .load("s3://bucket/tables/name") or .save(…). Tables of Spark\'s '
            "catalog cannot be Inlay's: it does not pass their location to a Python source",
        )
    return at_ref(options["path"], options.get("ref"))


def _columns(text: str) -> tuple[str, ...]:
    """Names in `a, "b, c"` or a JSON list."""
    return _listed(text, plain=True)


def _listed(text: str, *, calls: bool = False, plain: bool = False) -> tuple[str, ...]:
    if not text.lstrip().startswith("["):
        return listed_names(text, calls=calls, plain=plain)
    try:
        return tuple(str(name) for name in json.loads(text))
    except ValueError:
        raise InvalidRequest(
            f"the option columns is not a JSON list: {text[:100]!r}",
            next_step='Write a, b or ["a", "b"]',
        ) from None


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"the option {name} is {text[:100]!r}", next_step="Give true or false")
    return text == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidRequest(
            f"the option {name} is {text[:100]!r}", next_step="Give a whole number from 1"
        )
    return int(text)


def _time_us(options: Mapping[str, str], name: str) -> int | None:
    """ISO 8601; UTC without a zone."""
    text = options.get(name)
    if text is None:
        return None
    from inlay.engine import (
        ScanParts,
    )  # it reads rows: a source that is asked for its schema does not

    try:
        return ScanParts.as_of_us(text)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"the option {name} is {error.message}", next_step=error.next_step
        ) from None

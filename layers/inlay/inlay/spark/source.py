"""The Spark data source "inlay".

::

    spark.read.format("inlay").option("where", "id > 7").load("s3://bucket/tables/events")
    df.write.format("inlay").mode("append").save("s3://bucket/tables/events")

Promise: one DataFrame is one snapshot: the version is fixed when the DataFrame is made, however often it is
evaluated. Options are in `inlay.spark.options`; docs/SPARK.md documents them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from inlay.spark.errors_in_words import in_words

# Spark looks up every source before each session's first read: heavy imports are made on use.
if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from inlay.engine import Snapshot
    from inlay.spark.feed_stream import InlayFeedStream
    from inlay.spark.options import ReadOptions
    from inlay.spark.sink import InlayStreamWriter
    from inlay.spark.stream import InlayStreamReader
    from inlay.spark.writer import InlayWriter


@in_words
class InlayDataSource(DataSource):  # type: ignore[misc]  # pyspark is untyped here
    @classmethod
    def name(cls) -> str:
        return "inlay"

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self._pinned: ReadOptions | None = None
        self._table_id: str | None = None
        self._snapshot: Snapshot | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a source to read from immediately after making it, even when it does not ask for
        the schema: that fixes the version. What was loaded is not pickled. The source of a streaming sink
        is pickled too, and reads nothing."""
        from inlay.spark.options import are_read_options

        if self._pinned is None and are_read_options(self.options):
            self._open()
        return {**self.__dict__, "_snapshot": None}

    def _open(self) -> tuple[ReadOptions, Snapshot]:
        from inlay.spark.connect import load_snapshot
        from inlay.spark.options import read_options

        options = self._pinned or read_options(self.options)
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = self._snapshot = load_snapshot(
                options.uri, version=options.version, as_of_us=options.as_of_us
            )
            if self._table_id not in (None, snapshot.table_id):
                from inlay.errors import TableReplaced

                raise TableReplaced(
                    f"{options.uri} is another table than when the DataFrame was made"
                )
            self._table_id = snapshot.table_id
            options = replace(options, version=snapshot.version, as_of_us=None)
        self._pinned = options
        return options, snapshot

    def schema(self) -> StructType:
        from inlay.spark.types import spark_schema

        options, snapshot = self._open()
        if options.table is not None:
            from pyspark.sql.pandas.types import from_arrow_schema

            from inlay.spark.metadata import load_metadata

            return from_arrow_schema(load_metadata(options).schema)
        if options.change_feed:
            from inlay.spark.feed import feed_columns, feed_schema

            return feed_schema(feed_columns(options, snapshot), options.columns)
        return spark_schema(snapshot.schema, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from inlay.spark.metadata import InlayMetadataReader, load_metadata
        from inlay.spark.reader import InlayReader

        options, snapshot = self._open()
        if options.table is not None:
            return InlayMetadataReader(load_metadata(options), schema)
        if options.change_feed:
            from inlay.spark.feed import InlayFeedReader

            return InlayFeedReader(options, snapshot, schema)
        return InlayReader(options, snapshot, schema)

    def writer(self, schema: StructType, overwrite: bool) -> InlayWriter:
        from inlay.spark.options import write_options
        from inlay.spark.writer import InlayWriter, plan_write

        asked = write_options(self.options)
        _, job = plan_write(asked, schema, overwrite=overwrite)
        if job.done is not None:
            # `save` returns nothing: standard error of this process is the driver's.
            print(
                f"inlay: nothing is written: version {job.done} of {asked.uri} has the request "
                f"{asked.request_id!r}",
                file=sys.stderr,
            )
        return InlayWriter(job)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> InlayStreamReader | InlayFeedStream:
        from inlay.spark.releases import STREAM_READERS, check_release

        instead = (
            "Read the rows that were added in batches, by the options changeFeed and startVersion"
        )
        check_release(STREAM_READERS, 'readStream.format("inlay")', instead)
        from inlay.engine import load_pointer
        from inlay.errors import InvalidRequest
        from inlay.spark.connect import bound, is_tag
        from inlay.spark.options import read_options
        from inlay.spark.stream import InlayStreamReader

        options = read_options(self.options)
        ctx = bound(options.uri, self._table_id)
        loaded = load_pointer(ctx)
        if is_tag(ctx, loaded):
            raise InvalidRequest(
                f"the tag {ctx.branch!r} never changes, so it cannot be read as a stream",
                next_step="Read it by batch, or a branch as a stream",
            )
        snapshot = loaded.snapshot
        if options.change_feed:
            from inlay.spark.feed_stream import InlayFeedStream

            return InlayFeedStream(options, snapshot, schema)
        return InlayStreamReader(options, snapshot, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> InlayStreamWriter:  # noqa: N802
        from inlay.spark.releases import STREAM_WRITERS, check_release

        instead = "Use foreachBatch with inlay.spark.append, as docs/SPARK.md shows, or MergeSink"
        check_release(STREAM_WRITERS, 'writeStream.format("inlay")', instead)
        from inlay.spark.options import write_options
        from inlay.spark.sink import InlayStreamWriter

        return InlayStreamWriter(write_options(self.options), schema, overwrite=overwrite)

"""Which statistics of other writers have been compared with the rows, so that a key may go by them.

Promise: the only place that decides it. Of a content (main's or a branch's, at any version), the
statistics that another writer's file has of the content's primary key were compared with its rows (unless
`ingest.check_statistics` is `none`): so upserts and deletes by key miss no row of it. This holds by
induction, because a file is compared for the key columns that it has not been compared for,

* when it comes into the content: `AddFiles.compared` names the columns, and is a conflict where the key is
  another one by then;
* when the content gets another key: `AlterSchema.compared` names the files;
* when a merge gives files of one side the key of the other.

Whatever takes a content as a whole (a restore, a fast-forward, a branch, a tag) takes it with its key. A
file made from another by surgery keeps what is true of it; one that this library wrote needs no comparison.
"""

from __future__ import annotations

from collections.abc import Collection

from inlay.format.entry import DataFile
from inlay.format.snapshot import Snapshot


def compared_columns(snapshot: Snapshot) -> tuple[int, ...]:
    """The columns whose statistics are compared with the rows of a file that comes."""
    match snapshot.settings.text("ingest.check_statistics"):
        case "none":
            return ()
        case "key":
            return snapshot.primary_key
        case _:  # "all"; what is not known is compared too
            return tuple(snapshot.schema.types)


def uncompared(
    snapshot: Snapshot, entry: DataFile, key: Collection[int], compared: Collection[int]
) -> tuple[int, ...]:
    """The columns of `key` whose statistics in `entry` still have to be compared before a table with the
    properties of `snapshot` may have that key. `compared` have been, such as the key of a content that the
    file is part of."""
    unchecked = snapshot.settings.text("ingest.check_statistics") == "none"
    if unchecked or not entry.is_foreign:
        return ()
    return tuple(field_id for field_id in key if field_id not in compared)

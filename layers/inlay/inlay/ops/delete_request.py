"""A delete as another system asks for it: by a text or by keys, marked or erased.

Promise: a request is applied once by its id. What would read or rewrite more than the caller allows is not
begun, so that it can be done elsewhere; an invalid condition is refused before that is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa

from inlay.format.properties import DeleteMode
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import Committed, Skipped, WriteResult, write_result
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.write.delete import delete, delete_keys, known_mode
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parse import parse_predicate
from inlay.plan.change import Request

# What a request asks for: an erasure, or a delete in one of the modes that a table may have.
Mode = DeleteMode | Literal["erase"]
# The keys of a request, for a table's columns and the names of its primary key.
KeysFor = Callable[[pa.Schema, Sequence[str]], pa.Table]


def delete_requested(
    ctx: Context,
    where: str | KeysFor,
    *,
    mode: Mode | None,
    request: Request,
    read_bytes: float,
) -> Sequence[WriteResult] | None:
    """Deletes the rows for which the text `where` is TRUE, or those of the keys that it gives. Of keys each
    gets an erasure of its own, `ID.1`, `ID.2` … where there are several, all in one commit; an erasure by a
    text with many values becomes several, each with its result. None, and nothing is done, where it has to
    rewrite files, or to read a table larger than `read_bytes`: pass infinity to do it here."""
    base = load_pointer(ctx)
    if isinstance(where, str) and reads_more(base.snapshot, mode, read_bytes):
        # An invalid condition is refused here: it may be too long to be passed on.
        parse_predicate(where, base.snapshot.schema)
        return None
    done = _apply(ctx, where, mode, request, base)
    operation = "erase" if mode == "erase" else "delete"
    return [write_result(operation, outcome, ctx.usage) for outcome in done]


def reads_more(snapshot: Snapshot, mode: Mode | None, read_bytes: float) -> bool:
    """Whether a delete by condition takes time that grows with the table, beyond what is allowed."""
    match mode or known_mode(snapshot.settings.text("delete.mode"), "delete.mode"):
        case "tombstone" | "erase":
            return False
        case "vector":
            return snapshot.totals.bytes > read_bytes
        case "surgery" | "rewrite":
            return read_bytes != float("inf")


def _apply(
    ctx: Context, where: str | KeysFor, mode: Mode | None, request: Request, base: LoadedTable
) -> Sequence[Committed | Skipped]:
    schema = base.snapshot.schema
    if isinstance(where, str):
        predicate = parse_predicate(where, schema)
        if mode != "erase":
            return (delete(ctx, predicate, mode=mode, base=base, request=request),)
        # A rare request, and many modules.
        from inlay.ops.erase.several import open_erasures

        return open_erasures(ctx, predicate, request=request)
    names = [field.name for field in schema.fields if field.id in base.snapshot.primary_key]
    keys = where(schema_to_arrow(schema, with_ids=False), names)
    if mode != "erase":
        return (delete_keys(ctx, keys, base=base, request=request),)
    from inlay.ops.erase.request import open_each
    from inlay.ops.erase.several import conditions_of_keys

    ids = [request.text] if keys.num_rows == 1 else None
    asked = conditions_of_keys(schema, keys, request, ids)
    return (open_each(ctx, asked, base=base, request=request),)

"""The entry of one live file, by its name, without reading all of the metadata of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from inlay.errors import InlayError
from inlay.format.predicate import TRUE, And, Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_entries, load_matching
from inlay.parquet.read.describe import parse_object_footer, read_tail
from inlay.parquet.read.statistics import locate_columns, recorded_stats, whole_stats
from inlay.plan.metadata.state import State
from inlay.storage.base import Location

# Reading so few references takes about as long as a footer.
FEW = 3


def load_file(ctx: Context, state: State, key: str) -> State:
    """`state` with the entry of the file `key`, if it is live, and every marker.

    It is found by its name without reading all of the table's metadata: this finds what `load_entries`
    would, in about three requests if some column with statistics distinguishes files: the file's own footer
    gives the values to look for. No answer depends on the footer: a file that is not where it points is
    searched for everywhere.
    """
    if key not in state.loaded_file_keys() and len(state.missing_files()) > FEW:
        bounds: Predicate = TRUE
        with suppress(InlayError):
            bounds = And(tuple(_bounds(ctx, state.snapshot, key)))
        state = load_matching(ctx, state, bounds)
    return load_entries(ctx, state, files=key not in state.loaded_file_keys())


def _bounds(ctx: Context, snapshot: Snapshot, key: str) -> Iterator[Predicate]:
    """The least and the greatest value of each column, each of which a leaf with the file's entry may hold.
    Raises what a footer that cannot be read does."""
    store = ctx.store
    tail = read_tail(store, Location(store.scheme, store.bucket, ctx.key(key)))
    footer = parse_object_footer(tail.body, size=tail.size)
    schema = snapshot.schema
    columns = locate_columns(footer.arrow, schema)
    known = recorded_stats(whole_stats(footer.metadata, columns, schema, snapshot.stats_columns))
    for field_id, stats in known.items():
        column = schema.by_id(field_id)
        for bound in (stats.lower, stats.upper):
            if column is not None and isinstance(column.type, Primitive) and bound is not None:
                yield Comparison(field_id, "=", Literal(column.type, bound))

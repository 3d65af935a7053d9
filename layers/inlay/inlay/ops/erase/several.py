"""Several erasures that one request asks for: by a long list of values, or by keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.predicate import In, Or, Predicate
from inlay.format.schema import Schema
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context
from inlay.ops.erase.request import open_erasure
from inlay.ops.write.delete import MAX_PREDICATE_BYTES, stored_bytes
from inlay.ops.write.keyed_rows import each_key
from inlay.plan.change import Request
from inlay.plan.pruning.literals import any_of
from inlay.record import replace

# Each piece is in the pointer twice, in its marker and in the erasure, until its files have been rewritten.
MAX_PIECES = 16


def open_erasures(
    ctx: Context, predicate: Predicate, *, request: Request
) -> tuple[Committed | Skipped, ...]:
    """Opens as many erasures as a condition with a long list of values takes, each of at most
    `MAX_PREDICATE_BYTES`: one commit and one receipt each, under the ids `ID`, or `ID.1`, `ID.2` ….
    Repeating it opens none twice. Raises `InvalidPredicate` for a condition that is too large and no
    list of values, or takes more than `MAX_PIECES`."""
    size = stored_bytes(predicate)
    pieces = pieces_of(predicate, lambda piece: stored_bytes(piece) <= MAX_PREDICATE_BYTES)
    if pieces is None or len(pieces) > MAX_PIECES:
        most = MAX_PREDICATE_BYTES * (MAX_PIECES // 2 if pieces else 1)
        raise InvalidPredicate(
            f"the condition takes {size:,} bytes, and one request to erase may take {most:,}",
            is_plain=True,
            next_step="Send the values in several requests"
            if pieces
            else "Only a list of values (IN, keys, OR) may take more than a marker: cut the condition",
            table=ctx.uri,
        )
    if len(pieces) == 1:
        return (open_erasure(ctx, predicate, request=request),)
    requests = [
        replace(request, id=Request.of(name).id, text=name)
        for name in (f"{request.text}.{n}" for n in range(1, len(pieces) + 1))
    ]
    return tuple(
        open_erasure(ctx, piece, request=own) for piece, own in zip(pieces, requests, strict=True)
    )


def pieces_of(
    predicate: Predicate, fits: Callable[[Predicate], bool]
) -> tuple[Predicate, ...] | None:
    """Conditions that each fit and together select what `predicate` does: an IN or an OR is halved until
    they do, so that the same condition always gives the same pieces. None for one that cannot be cut.

    >>> from inlay.format.schema import Primitive
    >>> ids = In(1, Primitive("int32"), (7, 8, 9))
    >>> [piece.values for piece in pieces_of(ids, lambda p: len(p.values) < 3)]
    [(7,), (8, 9)]
    """
    if fits(predicate):
        return (predicate,)
    halves: tuple[Predicate, ...]
    match predicate:
        case In(field_id, kind, values) if len(values) > 1:
            middle = len(values) // 2
            halves = (In(field_id, kind, values[:middle]), In(field_id, kind, values[middle:]))
        case Or(parts):
            middle = len(parts) // 2
            cut = (parts[:middle], parts[middle:])
            halves = tuple(p[0] if len(p) == 1 else Or(p) for p in cut)
        case _:  # no part of another condition selects a part of its rows
            return None
    all_pieces: list[Predicate] = []
    for half in halves:
        pieces = pieces_of(half, fits)
        if pieces is None:
            return None
        all_pieces += pieces
    return tuple(all_pieces)


def conditions_of_keys(
    schema: Schema, keys: pa.Table, request: Request, ids: Sequence[str] | None = None
) -> dict[str, Predicate]:
    """By erasure, a condition for each of these keys: under the ids `ID.1`, `ID.2` … of a request, or those
    given, of which one may have several keys. Raises `InvalidRequest` for a key with a NULL, which names
    nobody, and for other numbers of ids."""
    if ids is not None and len(ids) != keys.num_rows:
        raise InvalidRequest(f"{keys.num_rows:,} keys have {len(ids):,} ids")
    if keys.num_rows == 0 or any(column.null_count for column in keys.columns):
        raise InvalidRequest(
            "each key to erase names somebody: there is none, or one with a NULL",
            next_step="Leave such rows out, or erase by a condition",
        )
    erasure_ids = ids or [f"{request.text}.{n}" for n in range(1, keys.num_rows + 1)]
    conditions: dict[str, list[Predicate]] = {}
    for erasure_id, condition in zip(erasure_ids, each_key(keys, schema), strict=True):
        conditions.setdefault(erasure_id, []).append(condition)
    return {erasure_id: any_of(of_keys) for erasure_id, of_keys in conditions.items()}

"""Waiving landed objects that open erasures wait for.

Promise: a waiver is of a content as it is now; it stays in the receipts with its reason, and neither names
what is erased.
"""

from __future__ import annotations

from inlay.errors import InvalidRequest
from inlay.ops.context import Context
from inlay.ops.erase.landing import check_landing
from inlay.ops.erase.last_look import shown_name
from inlay.ops.erase.receipt import Lists
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import load_pointer
from inlay.plan.erasure import REWRITE, landing_zone
from inlay.plan.pruning.literals import any_of, texts_of
from inlay.record import replace


def waive_landed(
    ctx: Context, key: str, *, reason: str, landing: str | None = None
) -> tuple[str, ...]:
    """Records that open erasures need not wait for the landed object `key`, as it is now, and why;
    returns the erasures' ids. It stays as it is, and their receipts say so; an overwrite of it is not
    waived.

    Raises `InvalidRequest` when no open erasure waits for it, or `reason` names what is erased."""
    ctx = replace(ctx, branch=None)
    loaded = with_entries(ctx, load_pointer(ctx))
    prefix = landing_zone(ctx.root, landing)
    erasures = [
        e for e in loaded.snapshot.erasures if e.phase == REWRITE and e.predicate is not None
    ]
    landings = check_landing(ctx, loaded, erasures, prefix) if erasures and prefix else {}
    waiting = [e for e in erasures if any(w.name == key for w in landings[e.id].waiting)]
    if not waiting:
        raise InvalidRequest(
            f"no open erasure waits for the landed object {key!r}",
            next_step="`inlay erase-status` lists what each waits for, with whole keys",
            table=ctx.uri,
        )
    texts = texts_of(any_of([e.predicate for e in waiting if e.predicate is not None]))
    if not reason.strip() or shown_name(reason, texts) != reason:
        raise InvalidRequest(
            "a waiver needs a reason that does not name what is erased: it stays in the receipt",
            next_step="Say who decided it and why, without values of rows",
            table=ctx.uri,
        )
    waivers = [
        (shown_name(key, texts), v)
        for v in ctx.store.list_versions(key)
        if v.key == key and not v.marker
    ]
    ids = tuple(e.id for e in waiting)
    Lists(ctx).write_waiver(loaded.snapshot.version, ids, waivers, reason)
    return ids

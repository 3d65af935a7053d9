"""Originals: files that the table adopted where they are, and no longer uses. An erasure leaves them.

Promise: `find_originals` finds every such file that a version still there names, on main, branches and
tags, whatever replaced it: the erasure, a compaction before it, a drop. Which of them hold erased rows is
not judged: they may no longer be readable from here. Their owner has to delete them, and the rest of the
table they came from. No value is written down: `shown_original` has `*` for the values in a path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from inlay.errors import ErrorKind, InlayError
from inlay.ops.context import Context
from inlay.ops.erase.kept import shown_name
from inlay.ops.maintain.roots import History, Roots
from inlay.ops.metadata.load import LoadedTable
from inlay.storage.base import Head

_VALUE = re.compile(r"=[^/]*")
HIDDEN = "*"

Presence = Literal["there", "gone", "unknown"]


def find_originals(
    ctx: Context,
    loaded: LoadedTable,
    live: frozenset[str],
    since_us: int,
    texts: frozenset[str],
    history: History,
) -> Mapping[str, int]:
    """The names of originals as a receipt may have them, and the number of each. `live` are the keys of
    files in use; `since_us` is how long ago readers of a version may have begun. Needs each version that
    is still there: a GET, which the collection of garbage that follows in the run does not repeat."""
    roots = Roots(ctx, since_us, history)
    roots.add(loaded.state)
    named = (name for name in roots.needed - live if "://" in name)
    return dict(sorted(Counter(shown_original(name, texts) for name in named).items()))


def shown_original(uri: str, texts: frozenset[str]) -> str:
    """
    >>> shown_original("s3://b/people/mail=ada%40example.org/part-0.parquet", frozenset())
    's3://b/people/mail=*/part-0.parquet'
    """
    return shown_name(_VALUE.sub("=" + HIDDEN, uri), texts)


def look_for(ctx: Context, names: Iterable[str]) -> Mapping[str, Presence]:
    """Whether the originals of these names exist now; "unknown" where a name is not a whole one, or the
    place cannot be looked at. One HEAD each."""

    def look(name: str) -> Presence:
        if "://" not in name or HIDDEN in name:
            return "unknown"
        try:
            source = ctx.objects.source(name)
            return "there" if isinstance(source.store.head(source.key), Head) else "gone"
        except InlayError as error:
            if error.kind is ErrorKind.RETRY:
                raise
            return "unknown"

    listed = list(names)
    return dict(zip(listed, ctx.map(look, listed), strict=True))

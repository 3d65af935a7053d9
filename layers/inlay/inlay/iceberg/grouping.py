"""Grouping: which entries of a snapshot share a manifest.

Promise: the groups follow from the ids of the snapshot's leaves alone: a leaf ends a group by its own id,
so adding, removing or merging a leaf changes its own group and no other. An unchanged group keeps its
digest, and its manifests are reused; so the cost of a publication depends on what changed, and an
incremental publication has the same manifests as one from scratch.

Leaves are Inlay's segments, which merge by age as they grow. A group is a run of adjacent leaves; entries
in the pointer itself are a group of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from inlay.format.snapshot import SEGMENT_MAX_ENTRIES, Segment

# A leaf with 1,024 entries is some 150 KB as a manifest. Much larger manifests would be expensive to
# replace when one entry goes; many more manifests would make the list, which each publication writes, too
# long.
LEAVES_OF_A_GROUP = 8
# No group is longer, whatever the ids: one manifest is held in memory.
MAX_LEAVES = 24
DIGEST_BYTES = 9


@dataclass(frozen=True, slots=True)
class Group:
    """`leaves` of one tier or, when empty, the entries in the pointer. `digest` identifies the content."""

    digest: str
    leaves: tuple[Segment, ...] = ()


def groups_of(leaves: Iterable[Segment], inline: Sequence[str], salt: str) -> tuple[Group, ...]:
    """Groups of a tier. `inline` are texts that identify the entries in the pointer; `salt` is everything
    else that manifests depend on (columns, specs, location, format)."""
    found: list[Group] = []
    pending: list[Segment] = []
    for leaf in leaves:
        small = leaf.count < SEGMENT_MAX_ENTRIES // 2
        if small and pending:  # small leaves are merged soon: they stay out of groups of large ones
            found.append(_group(pending, salt))
            pending = []
        pending.append(leaf)
        if small or len(pending) == MAX_LEAVES or _ends_a_group(leaf):
            found.append(_group(pending, salt))
            pending = []
    if pending:
        found.append(_group(pending, salt))
    if inline:
        found.append(Group(_digest([*inline], salt)))
    return tuple(found)


def _ends_a_group(leaf: Segment) -> bool:
    return blake2b(leaf.id.encode(), digest_size=2).digest()[0] % LEAVES_OF_A_GROUP == 0


def _group(leaves: Sequence[Segment], salt: str) -> Group:
    texts = [f"{leaf.id}:{leaf.dead.serialize().hex()}" for leaf in leaves]
    return Group(_digest(texts, salt), tuple(leaves))


def _digest(texts: Sequence[str], salt: str) -> str:
    found = blake2b(salt.encode(), digest_size=DIGEST_BYTES)
    for text in texts:
        found.update(b"\0" + text.encode())
    return found.hexdigest()

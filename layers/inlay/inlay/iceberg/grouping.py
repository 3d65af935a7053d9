"""Grouping: which entries of a snapshot share a manifest.

Promise: the groups follow from the ids of the snapshot's leaves alone: a leaf ends a group by its own id,
so adding, removing or merging a leaf changes its own group and no other. An unchanged group keeps its
digest, and its manifests are reused; so the cost of a publication depends on what changed, and an
incremental publication has the same manifests as one from scratch.

Leaves are Inlay's segments, which merge by age as they grow. A group is a run of adjacent leaves; entries
in the pointer itself are a group of their own. How long runs are depends on how many leaves there are, and
on what the last publication chose (`leaves_of_a_group`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from inlay.format.snapshot import SEGMENT_MAX_ENTRIES, Segment
from inlay.record import Record

# A leaf with 1,024 entries is 30 to 150 KB as a manifest, which is written again when one of them goes;
# each manifest is some 55 bytes of the list, which every publication writes. Groups of one leaf keep the
# former small, up to so many manifests; larger tables have larger groups.
MANIFESTS = 100
MAX_LEAVES_OF_A_GROUP = 8
DIGEST_BYTES = 9


class Group(Record):
    """`leaves` of one tier or, when empty, the entries in the pointer. `digest` identifies the content."""

    digest: str
    leaves: tuple[Segment, ...] = ()


def leaves_of_a_group(leaves: int, before: int | None) -> int:
    """About how many leaves make a group: a power of two. The choice of the last publication, `before`,
    stays until it is off by more than twice, since another one writes every manifest again."""
    size = 1
    while size < MAX_LEAVES_OF_A_GROUP and size * MANIFESTS < leaves:
        size *= 2
    near = before is not None and before in (size // 2, size, size * 2)
    return before if near and before is not None else size


def groups_of(
    leaves: Iterable[Segment], inline: Sequence[str], salt: str, of_a_group: int
) -> tuple[Group, ...]:
    """Groups of a tier, each of about `of_a_group` leaves. `inline` are texts that identify the entries in
    the pointer; `salt` is everything else that manifests depend on (columns, specs, location, format)."""
    groups: list[Group] = []
    pending: list[Segment] = []
    for leaf in leaves:
        small = leaf.count < SEGMENT_MAX_ENTRIES // 2
        if small and pending:  # small leaves are merged soon: they stay out of groups of large ones
            groups.append(_group(pending, salt))
            pending = []
        pending.append(leaf)
        if small or len(pending) == 3 * of_a_group or _ends_a_group(leaf, of_a_group):
            groups.append(_group(pending, salt))
            pending = []
    if pending:
        groups.append(_group(pending, salt))
    if inline:
        # In no order: settling puts the entries of files that it hits behind the others.
        groups.append(Group(_digest(sorted(inline), salt)))
    return tuple(groups)


def _ends_a_group(leaf: Segment, of_a_group: int) -> bool:
    return blake2b(leaf.id.encode(), digest_size=2).digest()[0] % of_a_group == 0


def _group(leaves: Sequence[Segment], salt: str) -> Group:
    texts = [f"{leaf.id}:{leaf.dead.serialize().hex()}" for leaf in leaves]
    return Group(_digest(texts, salt), tuple(leaves))


def _digest(texts: Sequence[str], salt: str) -> str:
    digest = blake2b(salt.encode(), digest_size=DIGEST_BYTES)
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()

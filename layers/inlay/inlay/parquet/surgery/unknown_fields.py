"""Fields of a footer that the format does not define, or did not when this library was written.

Promise: `unknown_of_file` and `unknown_in_group` find each such field, which readers ignore. They may hold
values of rows: extensions (field 32767) repeat the bounds of every row group. What they say of a file as a
whole is no longer true of another file, so surgery never keeps it; those of a row group go with its other
metadata once it is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from inlay.parquet.footer.fields import Chunk, File, Group, Meta, Stats
from inlay.parquet.footer.footer import RowGroup
from inlay.parquet.footer.thrift import Struct, encode_struct
from inlay.plan.pruning.readings import names_any


def _fields_of(struct: type) -> frozenset[int]:
    return frozenset(key for name, key in vars(struct).items() if not name.startswith("_"))


_FILE, _GROUP, _CHUNK, _META, _STATS = map(_fields_of, (File, Group, Chunk, Meta, Stats))


def known_of_file(tree: Struct) -> Struct:
    """A footer without unknown fields of its own."""
    return {key: value for key, value in tree.items() if key in _FILE}


def unknown_of_file(tree: Struct) -> Struct:
    return _unknown(tree, _FILE)


def unknown_in_group(group: RowGroup) -> Iterator[tuple[str, Struct]]:
    """Each with its column, "" for the group itself."""
    yield "", _unknown(group.tree, _GROUP)
    for chunk in group.columns:
        stats = chunk.statistics
        yield (
            ".".join(chunk.path),
            {
                **_unknown(chunk.tree, _CHUNK),
                **_unknown(chunk.meta, _META),
                **(_unknown(stats.tree, _STATS) if stats is not None else {}),
            },
        )


def name_one(fields: Struct, texts: frozenset[str], plain: Iterable[bytes]) -> bool:
    """Whether fields contain one of `texts`, or of the bytes of `plain`."""
    if not fields:
        return False
    body = encode_struct(fields)
    return names_any(body, texts) or any(raw in body for raw in plain)


def _unknown(tree: Struct, known: frozenset[int]) -> Struct:
    return {key: tree[key] for key in tree.keys() - known}

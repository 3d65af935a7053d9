"""Objects above 5 GiB, which no single copy can move."""

from __future__ import annotations

import checker
import corpus
import engines
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap
from sparse import Sparse, SparseStore

from inlay.ops.context import InlineExecutor
from inlay.parquet.footer.fields import Chunk, File, Group, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.surgery.surgery import Rewritten, rewrite_object
from inlay.storage.base import Location

GIB = 1024**3
ROWS = corpus.GROUP_ROWS * 4


def spread_out(data: bytes, distance: int) -> Sparse:
    """The file with its row groups `distance` bytes further apart from one another."""
    footer = decode_footer(data, file_size=len(data))
    runs = [(0, b"PAR1")]
    moved = 0
    for ordinal, group in enumerate(footer.tree[File.GROUPS]):
        moved = ordinal * distance
        columns = footer.row_groups[ordinal].columns
        start, end = columns[0].start, columns[-1].end
        runs.append((start + moved, data[start:end]))
        for chunk in group[Group.COLUMNS]:
            for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
                if key in chunk[Chunk.META]:
                    chunk[Chunk.META][key] += moved
        group[Group.FILE_OFFSET] += moved
    at = footer.start + moved
    end = end_of_file(footer.tree)
    runs.append((at, end))
    return Sparse(at + len(end), runs)


def compact(file: Sparse) -> bytes:
    """The same file without the zeros, for readers: row groups moved together again."""
    size = sum(len(run) for _, run in file.runs)
    body, starts = b"", []
    for at, run in file.runs:
        starts.append((at, at + len(run), len(body) - at))
        body += run
    tail = file.read(file.size - 100_000, file.size)
    footer = decode_footer(tail, file_size=file.size)

    def near(offset: int) -> int:
        return next(offset + shift for low, high, shift in starts if low <= offset < high)

    for group in footer.tree[File.GROUPS]:
        group[Group.FILE_OFFSET] = near(group[Group.FILE_OFFSET])
        for chunk in group[Group.COLUMNS]:
            for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
                if key in chunk[Chunk.META]:
                    chunk[Chunk.META][key] = near(chunk[Chunk.META][key])
    return body[: size - footer.length] + end_of_file(footer.tree)


def test_an_object_of_many_gibibytes_is_edited_by_copies_within_the_limits() -> None:
    table = corpus.flat(ROWS)
    store = SparseStore()
    old = store.objects["old"] = spread_out(corpus.by_pyarrow(table), 7 * GIB)
    assert old.size > 21 * GIB
    outcome = rewrite_object(
        store,  # type: ignore[arg-type]
        Location(store.scheme, store.bucket, "old"),
        "new",
        etag="etag",
        size=old.size,
        footer=decode_footer(old.read(old.size - 100_000, old.size), file_size=old.size),
        kept={2: BitMap(at for at in range(corpus.GROUP_ROWS) if at % 3 > 0)},
        executor=InlineExecutor(),
    )
    assert isinstance(outcome, Rewritten)
    new = store.objects["new"]
    assert new.size == outcome.size
    assert sum(store.copied) < GIB  # without what lies between the groups
    kept = [at for at in range(ROWS) if not 240 <= at < 360 or at % 3 > 0]
    result = compact(new)
    assert checker.problems(result) == []
    assert engines.same(
        pq.read_table(pa.BufferReader(result)),
        pq.read_table(pa.BufferReader(corpus.by_pyarrow(table))).take(pa.array(kept)),
    )

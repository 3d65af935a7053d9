"""Which way rows leave a file: by counts, and said in words."""

from __future__ import annotations

from inlay.format.entry import DataFile
from inlay.ops.maintain.rewrite import rewrite
from inlay.plan.surgery import PIECE_BYTES, Choice, Cost, Strategy, Touched, choose, rewrite_cost

from .bench import Bench, id_is, new_bench

MIB = 2**20


def _file(size: int, row_groups: int) -> DataFile:
    return DataFile(
        key="data/x.parquet",
        size=size,
        footer_size=20_000,
        rows=1_000 * row_groups,
        row_groups=row_groups,
        schema_id=0,
    )


def _choose(size: int, row_groups: int, touched: Touched, strategy: Strategy = "auto") -> Choice:
    group = size // row_groups
    edited = (touched.groups - touched.emptied) * group
    surgery = Cost(8 + touched.groups, edited, edited, size - edited, edited)
    return choose(_file(size, row_groups), touched, surgery=surgery, strategy=strategy)


def test_few_groups_of_a_large_file_are_cut_out() -> None:
    choice = _choose(256 * MIB, 20, Touched(1, 0, 0.999))
    assert choice.method == "surgery"
    assert choice.surgery is not None and choice.rewrite is not None
    assert choice.surgery.seconds < choice.rewrite.seconds / 4
    assert "1 of 20 row groups" in choice.reason


def test_most_groups_of_a_file_mean_a_whole_rewrite() -> None:
    assert _choose(256 * MIB, 20, Touched(20, 0, 0.5)).method == "rewrite"


def test_a_small_file_is_rewritten_whole() -> None:
    assert _choose(1 * MIB, 4, Touched(1, 0, 0.9)).method == "rewrite"


def test_a_clean_file_is_restamped_and_an_empty_one_dropped_whatever_was_asked_for() -> None:
    assert _choose(256 * MIB, 20, Touched(0, 0, 1.0), "rewrite").method == "restamp"
    assert _choose(256 * MIB, 20, Touched(20, 20, 0.0), "surgery").method == "drop"


def test_where_surgery_is_not_possible_the_whole_file_is_written_and_it_is_said_why() -> None:
    touched = Touched(1, 0, 0.999)
    choice = choose(_file(256 * MIB, 20), touched, surgery="LZO", strategy="surgery")
    assert (choice.method, choice.no_surgery) == ("rewrite", "LZO")
    assert "LZO" in choice.reason


def test_a_choice_shows_what_each_way_would_cost() -> None:
    bench = _with_groups()
    bench.delete(id_is(3, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29))
    [(_, choice)] = rewrite(bench.ctx, dry_run=True).choices
    [entry] = bench.load().state.files()
    assert (choice.touched.groups, choice.touched.emptied, choice.row_groups) == (2, 1, 4)
    assert choice.surgery is not None and choice.surgery.read_bytes == entry.size
    assert choice.rewrite is not None and choice.rewrite.read_bytes == entry.size
    # A scan looks at one column of the one group it cannot judge: of the other, statistics show that the
    # marker hits every row.
    assert choice.tombstone is not None and choice.tombstone.requests == 1
    assert 0 < choice.tombstone.read_bytes < entry.size / 2


def test_surgery_leaves_the_same_rows_as_a_whole_rewrite() -> None:
    found = []
    for strategy in ("surgery", "rewrite"):
        bench = _with_groups()
        bench.delete(id_is(3, 14, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29))
        before = bench.rows()
        result = rewrite(bench.ctx, strategy=strategy)  # type: ignore[arg-type]
        assert (result.surgery, result.rewritten) == ((1, 0) if strategy == "surgery" else (0, 1))
        assert bench.rows() == before
        [entry] = bench.load().state.files()
        assert entry.rows == 28
        found.append((bench.rows(), entry.stats))
    assert found[0] == found[1]


def test_surgery_keeps_the_row_groups_it_does_not_touch() -> None:
    bench = _with_groups()
    bench.delete(id_is(20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 31))
    rewrite(bench.ctx, strategy="surgery")
    [entry] = bench.load().state.files()
    assert (entry.row_groups, entry.rows) == (3, 29)


def _with_groups() -> Bench:
    """One file of four row groups of ten rows."""
    bench = new_bench(properties=[("write.row_group_rows", 10)])
    bench.append(40)
    [entry] = bench.load().state.files()
    assert entry.row_groups == 4
    return bench


def test_a_rewrite_is_the_file_down_and_the_rest_up() -> None:
    def cost(size: int, share: float) -> Cost:
        return rewrite_cost(_file(size, 4), Touched(2, 0, share))

    piece = PIECE_BYTES
    # A look, the pieces down, the parts up; an upload in parts is begun and ended.
    assert cost(piece, 0.5) == Cost(3, piece, piece // 2, 0, piece)
    assert cost(2 * piece, 0.5) == Cost(4, 2 * piece, piece, 0, 2 * piece)
    assert cost(4 * piece, 0.5) == Cost(9, 4 * piece, 2 * piece, 0, 4 * piece)
    assert cost(4 * piece + 4, 0.5).requests == 1 + 5 + 3 + 2
    assert cost(piece, 0.0) == Cost(2, piece, 0, 0, piece)

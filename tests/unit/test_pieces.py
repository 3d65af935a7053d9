"""Batches whose values take more than Arrow counts in 32 bits: cut before they are decoded.

The bounds are lowered here, so that the code for 2 GiB runs on a few bytes: with `OFFSETS_END` at 600, an
array of more text than that cannot be made narrow, cast or repeated at once. Arrow's own limit is met by
sparse buffers, which take no memory.
"""

from __future__ import annotations

import mmap
import random
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pytest

import inlay
from inlay.errors import SchemaMismatch
from inlay.format.schema import Schema
from inlay.parquet.arrow import conform as conform_module
from inlay.parquet.arrow import pieces as pieces_module
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.pieces import (
    bytes_at_most,
    lies_within,
    narrow,
    pieces,
    repeated,
    take_rows,
)
from inlay.parquet.arrow.types import schema_from_arrow

PIECE = 200
END = 600
ROWS = 41

TEXTS = (pa.string(), pa.large_string(), pa.string_view())
BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


@pytest.fixture
def low_bounds(monkeypatch):
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(pieces_module, "OFFSETS_END", END)
    monkeypatch.setattr(conform_module, "OFFSETS_END", END)


def values_of(kind: pa.DataType, seed: int) -> list:
    """Of lengths around the bounds: nothing, one, half a piece, a piece, more than one."""
    drawn = random.Random(seed)
    sizes = [0, 1, 12, 13, 40, PIECE // 2, PIECE - 4, PIECE, PIECE + 1]
    texts = [drawn.choice("añ😀") * (drawn.choice(sizes) // 4) for _ in range(ROWS)]
    made = [None if drawn.random() < 0.15 else text for text in texts]
    if kind in BYTES:
        return [None if text is None else text.encode() for text in made]
    return made


def layouts():
    for plain in (*TEXTS, *BYTES):
        yield f"{plain}", plain, lambda v: v
        yield f"list<{plain}>", pa.list_(plain), lambda v: None if v is None else [v, None]
        yield f"large_list<{plain}>", pa.large_list(plain), lambda v: [] if v is None else [v]
        yield f"list_view<{plain}>", pa.list_view(plain), lambda v: None if v is None else [v]
        yield f"large_list_view<{plain}>", pa.large_list_view(plain), lambda v: [v]
        yield f"fixed<{plain}>", pa.list_(plain, 2), lambda v: None if v is None else [v, v]
        yield (
            f"struct<{plain}>",
            pa.struct([("t", plain), ("n", pa.int8())]),
            lambda v: None if v is None else {"t": v, "n": 1},
        )
        key = "k" if plain in TEXTS else b"k"
        yield (
            f"map<{plain}>",
            pa.map_(plain, plain),
            lambda v, key=key: None if v is None else [(key, v)],
        )
        yield (
            f"list<struct<list<{plain}>>>",
            pa.list_(pa.struct([("l", pa.list_(plain))])),
            lambda v: [{"l": [v]}, None],
        )


LAYOUTS = list(layouts())


def arrays(kind, wrap, seed):
    """The array whole, in a dictionary where Arrow has one, and in slices; beside it what it holds."""
    plain = kind
    while plain.num_fields:
        plain = plain.field(0).type
    given = [wrap(value) for value in values_of(plain, seed)]
    whole = pa.array(given, kind)
    yield "whole", whole
    yield "slice", whole.slice(7, 25)
    yield "end", whole.slice(ROWS - 1)
    yield "nothing", whole.slice(3, 0)
    if not kind.num_fields:
        some = pa.array([given[n] for n in range(9)], kind)
        indices = pa.array([None if n % 10 == 9 else n % 9 for n in range(ROWS)], pa.int8())
        coded = pa.DictionaryArray.from_arrays(indices, some)
        yield "dictionary", coded
        yield "slice of a dictionary", coded.slice(5, 30)
        if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
            yield (
                "list of dictionaries",
                pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), coded),
            )


@pytest.mark.parametrize(("name", "kind", "wrap"), LAYOUTS, ids=[name for name, *_ in LAYOUTS])
def test_every_layout_is_conformed_piece_by_piece(low_bounds, name, kind, wrap):
    for seed in range(3):
        for form, array in arrays(kind, wrap, seed):
            batch = pa.record_batch({"id": pa.array(range(len(array)), pa.int64()), "v": array})
            schema = schema_from_arrow(batch.schema)
            made = list(conformed([batch], schema, schema, by_value=True))
            rows = [row for piece in made for row in piece.column(1).to_pylist()]
            assert rows == array.to_pylist(), (form, seed)
            assert [row for p in made for row in p.column(0).to_pylist()] == list(range(len(array)))
            for piece in made:
                piece.validate(full=True)
                taken = sum(map(bytes_at_most, piece.columns))
                assert piece.num_rows <= 1 or taken <= 3 * PIECE, (form, seed)


@pytest.mark.parametrize(("name", "kind", "wrap"), LAYOUTS, ids=[name for name, *_ in LAYOUTS])
def test_pieces_are_as_large_as_they_may_be(low_bounds, name, kind, wrap):
    """No piece could have its successor's first row: a batch does not fall into rows."""
    for form, array in arrays(kind, wrap, 5):
        found = list(pieces(pa.record_batch({"v": array})))
        sizes = [
            sum(pieces_module._ends(size, len(p)).to_pylist()[-1:])
            for p in found
            for size in [pieces_module.bytes_of_rows(p.column(0))]
        ]
        assert sum(p.num_rows for p in found) == len(array)
        for n, (piece, size) in enumerate(zip(found, sizes, strict=True)):
            assert piece.num_rows <= 1 or size <= PIECE, form
            if n + 1 < len(found):
                first = pieces_module.bytes_of_rows(found[n + 1].column(0).slice(0, 1))
                more = first if isinstance(first, int) else first[0].as_py()
                assert size + more > PIECE, form


def test_a_batch_within_the_bound_is_not_touched():
    batch = pa.record_batch({"v": pa.array(["a"] * 10)})
    [same] = pieces(batch)
    assert same is batch


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_a_value_that_no_row_can_hold_is_refused_by_column(low_bounds, kind):
    batch = pa.record_batch({"id": [1, 2], "doc": pa.array(["x", "y" * (END + 1)], kind)})
    schema = schema_from_arrow(batch.schema)
    with pytest.raises(SchemaMismatch, match="column 'doc' has a value of more than 2,032 MiB"):
        list(conformed([batch], schema, schema, by_value=True))


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: pa.StructArray.from_arrays([a], ["x"])])
@pytest.mark.parametrize("kind", [*TEXTS, *BYTES])
def test_a_value_that_no_page_can_hold_is_refused_before_it_is_written(monkeypatch, kind, wrap):
    """Between the end of a page and that of Arrow's offsets pyarrow raises an OSError, after 19 GB."""
    monkeypatch.setattr(conform_module, "PAGE_END", 100)
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 80)
    for size, fits in ((96, True), (97, False)):  # four bytes are its length
        doc = wrap(pa.array([b"x", b"y" * size, b"z"]).cast(kind))
        batch = pa.record_batch({"id": [1, 2, 3], "doc": doc})
        schema = schema_from_arrow(batch.schema)
        if fits:
            assert sum(b.num_rows for b in conformed([batch], schema, schema, by_value=True)) == 3
            continue
        with pytest.raises(SchemaMismatch, match="column 'doc' has a value of more than"):
            list(conformed([batch], schema, schema, by_value=True))


def test_a_default_counts_for_each_row_that_lacks_it(low_bounds):
    given = pa.record_batch({"id": pa.array(range(40))})
    whole = schema_from_arrow(pa.schema([("id", pa.int64()), ("note", pa.string())]))
    from dataclasses import replace

    target = Schema(0, (whole.fields[0], replace(whole.fields[1], default="n" * 30)))
    made = list(conformed([given], target, target, by_value=True))
    assert len(made) > 1
    assert [t for piece in made for t in piece.column(1).to_pylist()] == ["n" * 30] * 40


# -- Arrow's own limit ----------------------------------------------------------------------------


def sparse(size: int) -> pa.Buffer:
    """Zeros that take no memory, as long as nothing writes to them."""
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    return pa.py_buffer(held)


def large_text(rows: int, width: int) -> pa.Array:
    ends = pc.multiply(pa.arange(0, rows + 1), width)
    return pa.Array.from_buffers(
        pa.large_string(), rows, [None, ends.buffers()[1], sparse(rows * width)]
    )


def test_a_slice_far_from_the_start_of_its_bytes_is_its_own_rows():
    end = large_text(2500, 1_000_000).slice(2490, 10)
    nested = pa.ListArray.from_arrays(pa.array([0, 4, 10], pa.int32()), end)
    for array in (end, nested, pa.StructArray.from_arrays([end], ["t"])):
        batch = pa.record_batch({"v": array})
        schema = schema_from_arrow(batch.schema)
        [made] = conformed([batch], schema, schema, by_value=True)
        assert made.num_rows == len(array)
        made.validate(full=True)
    assert narrow(end).nbytes < 11_000_000


def test_large_text_beyond_two_gib_is_cut():
    array = large_text(2500, 1_000_000)
    batch = pa.record_batch({"v": array})
    schema = schema_from_arrow(batch.schema)
    rows = 0
    for made in conformed([batch], schema, schema, by_value=True):
        assert made.nbytes <= pieces_module.PIECE_BYTES
        assert pc.min_max(pc.binary_length(made.column(0))).as_py() == {
            "min": 1_000_000,
            "max": 1_000_000,
        }
        rows += made.num_rows
    assert rows == 2500


@pytest.mark.parametrize("rows", [2_147, 2_148, 4_300])
def test_views_that_share_bytes_beyond_two_gib_are_cut(rows):
    views = b"".join(
        (1_000_000).to_bytes(4, "little") + bytes(4) + bytes(4) + bytes(4) for _ in range(rows)
    )
    array = pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(views), sparse(1_000_000)]
    )
    found = list(pieces(pa.record_batch({"v": array})))
    assert sum(piece.num_rows for piece in found) == rows
    assert max(piece.num_rows for piece in found) <= pieces_module.PIECE_BYTES // 1_000_000
    with pytest.raises(pa.ArrowCapacityError):
        narrow(pa.concat_arrays([array, array]))


def test_a_dictionary_that_decodes_beyond_two_gib_is_cut():
    rows = 8_000_000
    indices = pa.Array.from_buffers(pa.int32(), rows, [None, sparse(4 * rows)])
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["u" * 300]))
    found = list(pieces(pa.record_batch({"v": array})))
    assert sum(piece.num_rows for piece in found) == rows
    assert max(piece.num_rows for piece in found) * 300 <= pieces_module.PIECE_BYTES


def test_wrapped_offsets_are_not_taken_for_text():
    """Shallow validation looks at the first and the last: those between may have wrapped."""
    body = pa.py_buffer(b"abcdef")
    for ends in ([0, 3, -2, 6], [0, 9, 3, 6]):
        offsets = pa.array(ends, pa.int32()).buffers()[1]
        array = pa.Array.from_buffers(pa.string(), 3, [None, offsets, body])
        assert not lies_within(array)
        batch = pa.record_batch({"v": array})
        schema = schema_from_arrow(batch.schema)
        with pytest.raises(SchemaMismatch):
            list(conformed([batch], schema, schema, by_value=True))


# -- rows taken -----------------------------------------------------------------------------------


def test_rows_are_taken_as_arrow_takes_them(low_bounds):
    drawn = random.Random(8)
    for _ in range(20):
        chunks = [
            pa.record_batch(
                {
                    "n": pa.array(range(n), pa.int64()),
                    "t": pa.array(values_of(pa.string(), n)[:n], pa.string()),
                }
            )
            for n in (drawn.randrange(0, 12) for _ in range(4))
        ]
        table = pa.Table.from_batches(chunks)
        if not table.num_rows:
            continue
        wanted = pa.array([drawn.randrange(table.num_rows) for _ in range(30)], pa.int64())
        taken = list(take_rows(table, wanted, at_a_time=11))
        assert pa.Table.from_batches(taken).to_pylist() == table.take(wanted).to_pylist()
        assert all(part.num_rows <= 11 for part in taken)


def test_a_repeated_text_that_does_not_fit_is_an_error(low_bounds):
    assert len(repeated(pa.scalar("x" * 20), 30)) == 30
    with pytest.raises(pa.ArrowCapacityError):
        repeated(pa.scalar("x" * 21), 30)


def test_null_rows_do_not_count_with_what_they_hold(low_bounds):
    """Bytes under NULL are nobody's: a large array of them is narrowed without."""
    ends = pa.array([0, 10, 900, 910], pa.int64()).buffers()[1]
    array = pa.Array.from_buffers(
        pa.large_string(), 3, [pa.py_buffer(bytes([0b101])), ends, pa.py_buffer(b"x" * 910)]
    )
    assert narrow(array).to_pylist() == ["x" * 10, None, "x" * 10]


# -- through a table ------------------------------------------------------------------------------


def table_of(kind: pa.DataType, **options) -> inlay.Table:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)])
    return inlay.create(f"memory://pieces/{uuid.uuid4().hex}", schema, **options)


def rows_of(table: inlay.Table) -> list:
    return sorted(
        ((r["id"], r["v"]) for r in table.scan().to_arrow().to_pylist()), key=lambda row: row[0]
    )


KINDS = [*TEXTS, pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.large_string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("sort_by", [(), ("v",)], ids=["as they come", "sorted"])
def test_append_upsert_and_delete_in_pieces(low_bounds, kind, sort_by):
    nested = pa.types.is_list(kind)
    if nested and sort_by:
        return
    table = table_of(kind, primary_key=["id"], sort_by=list(sort_by))
    texts = [text or "" for text in values_of(pa.string(), 1)]
    held = [[text] for text in texts] if nested else texts
    plain = pa.list_(pa.string()) if nested else pa.string()
    data = pa.table({"id": range(ROWS), "v": pa.array(held, plain).cast(kind)})
    before = table.version
    table.append(data)
    assert table.version == before + 1
    assert rows_of(table) == list(enumerate(held))
    again = pa.table({"id": range(ROWS, 2 * ROWS), "v": pa.array(held, plain).cast(kind)})
    table.upsert(pa.concat_tables([again, data, again]), on_duplicate="last")
    assert rows_of(table) == list(enumerate([*held, *held]))
    if nested:
        return
    table.delete(keys=pa.table({"v": pa.array(texts[:20], pa.string()).cast(kind)}))
    gone = set(texts[:20])
    assert rows_of(table) == [(n, t) for n, t in enumerate([*texts, *texts]) if t not in gone]


@pytest.mark.parametrize(
    ("name", "kind", "wrap"),
    # One in four; the others are in the wide tier.
    [
        pytest.param(*one, marks=[pytest.mark.wide] if n % 4 else [])
        for n, one in enumerate(LAYOUTS)
    ],
    ids=[name for name, *_ in LAYOUTS],
)
def test_every_door_takes_every_layout_in_pieces(low_bounds, name, kind, wrap):
    """`create` with rows, `overwrite`, and a change stream: whole, in slices, in dictionaries."""
    for form, array in arrays(kind, wrap, 2):
        rows = len(array)
        data = pa.table({"id": pa.array(range(rows), pa.int64()), "v": array})
        right = list(enumerate(array.to_pylist()))
        table = inlay.create(f"memory://pieces/{uuid.uuid4().hex}", data, primary_key="id")
        assert rows_of(table) == right, form
        table.overwrite(data.slice(1), where="id > 0")
        assert rows_of(table) == right, form
        order = pa.array(range(2, rows + 2), pa.int64())
        records = data.append_column("seq", order)
        coded = pa.types.is_dictionary(array.type)
        stream = table_of(array.type.value_type if coded else array.type)
        stream.alter(primary_key="id", add={"seq": pa.int64()})
        stream.apply_changes(pa.concat_tables([records, records]), order="seq")
        stream.apply_changes(records.slice(1), order="seq", delete_when="id < 0")
        assert rows_of(stream) == right, form


@pytest.mark.parametrize("soft", [False, True])
def test_a_change_stream_keeps_texts_that_records_lack_in_pieces(low_bounds, soft):
    texts = [text or "" for text in values_of(pa.string(), 5)]
    flag = {"gone": pa.bool_()} if soft else {}
    table = table_of(pa.string(), primary_key="id")
    table.alter(add={"seq": pa.int64(), **flag})
    table.append(pa.table({"id": range(ROWS), "v": texts, "seq": [1] * ROWS}))
    given = pa.table({"id": range(ROWS), "seq": [2] * ROWS, "op": ["u", "d"] * (ROWS // 2) + ["u"]})
    table.apply_changes(given, order="seq", op="op", delete_to="gone" if soft else None)
    left = range(ROWS) if soft else range(0, ROWS, 2)
    assert rows_of(table) == [(n, texts[n]) for n in left]


def test_what_says_that_a_record_is_a_delete_is_decoded_in_pieces(low_bounds):
    """An operation, and a column of `delete_when`, in dictionaries that decode to more than Arrow holds."""
    table = table_of(pa.string(), primary_key="id")
    table.alter(add={"seq": pa.int64()})
    state = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20, pa.int8()), ["a" * 90, "b" * 90])
    rows = pa.table({"id": range(40), "seq": [1] * 40, "v": ["x"] * 40, "state": state})
    table.apply_changes(rows, order="seq", delete_when=f"UPPER(state) = '{'B' * 90}'")
    assert rows_of(table) == [(n, "x") for n in range(0, 40, 2)]


def test_sorted_rows_that_do_not_fit_one_array_become_several_files(monkeypatch):
    from inlay.parquet.write import writer

    monkeypatch.setattr(writer, "OFFSETS_END", 900)
    table = table_of(pa.string(), sort_by=["v"])
    texts = [letter * 400 for letter in "dcba"]
    table.append(
        pa.RecordBatchReader.from_batches(
            pa.schema([("id", pa.int64()), ("v", pa.string())]),
            [pa.record_batch({"id": [n], "v": [text]}) for n, text in enumerate(texts)],
        )
    )
    assert rows_of(table) == list(enumerate(texts))
    assert table.inspect.files().num_rows == 2


def test_a_slice_that_cannot_be_written_commits_nothing(low_bounds):
    table = table_of(pa.large_string())
    with pytest.raises(SchemaMismatch, match="'v'"):
        long = pa.array(["a" * 150] * 8 + ["b" * 601], pa.large_string())
        table.append(pa.table({"id": range(9), "v": long}))
    assert rows_of(table) == [] and table.version == 1


def test_a_partial_upsert_keeps_the_other_columns_in_pieces(low_bounds):
    table = table_of(pa.string(), primary_key=["id"])
    texts = [text or "" for text in values_of(pa.string(), 3)]
    table.append(pa.table({"id": range(ROWS), "v": texts}))
    table.alter(add=pa.schema([pa.field("note", pa.string())]))
    notes = ["n" * 90] * ROWS
    table.upsert(pa.table({"id": range(ROWS), "note": notes}))
    found = table.scan().to_arrow().sort_by("id")
    assert found["v"].to_pylist() == texts and found["note"].to_pylist() == notes


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("v || v", lambda v: v + v),
        ("REPLACE(v, 'a', 'bb')", lambda v: v.replace("a", "bb")),
        ("'" + "c" * 120 + "'", lambda v: "c" * 120),
        ("CASE WHEN id > 10 THEN v || '!' ELSE v END", lambda v: None),
        ("UPPER(v)", str.upper),
    ],
)
def test_an_update_computes_its_texts_in_pieces(low_bounds, value, made):
    table = table_of(pa.string())
    texts = [text or "" for text in values_of(pa.string(), 4)]
    table.append(pa.table({"id": range(ROWS), "v": texts}))
    table.update({"v": value})
    if "CASE" in value:
        expected = [t + "!" if n > 10 else t for n, t in enumerate(texts)]
    else:
        expected = [made(text) for text in texts]
    assert rows_of(table) == list(enumerate(expected))


def test_replace_does_not_wrap(low_bounds):
    """Arrow's function wraps its offsets without an error: what it gives has to be measured."""
    from inlay.parquet.arrow.calculate import _with_replaced

    with pytest.raises(pa.ArrowCapacityError):
        _with_replaced(pa.array(["a" * 200] * 2), ("a", "bb"))


def test_a_condition_over_large_texts_in_between(low_bounds):
    table = table_of(pa.string())
    table.append(pa.table({"id": range(ROWS), "v": ["a" * 100] * ROWS}))
    assert table.count(where=f"REPLACE(v, 'a', 'bb') = '{'bb' * 100}' AND id % 2 = 0") == 21


def test_files_of_other_layouts_are_read_in_pieces(low_bounds, tmp_path):
    """What a Parquet file says of its Arrow types is restored when it is read: dictionaries, views."""
    import pyarrow.parquet as pq

    texts = [text or "" for text in values_of(pa.string(), 6)]
    for kind in KINDS[:-1]:
        table = inlay.create(
            (tmp_path / f"t{str(kind)[:9]}").as_uri(),
            pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)]),
        )
        path = tmp_path / f"{str(kind)[:9]}.parquet"
        pq.write_table(pa.table({"id": range(ROWS), "v": pa.array(texts).cast(kind)}), path)
        table.ingest([path.as_uri()])
        assert rows_of(table) == list(enumerate(texts))


def test_text_files_are_read_in_pieces(low_bounds, tmp_path, monkeypatch):
    from inlay.ops.local_files import read_files
    from inlay.text import json_objects

    monkeypatch.setattr(json_objects, "BATCH_CHARACTERS", 300)
    texts = [(text or "a").replace("😀", "b") for text in values_of(pa.string(), 7)]
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    rows = pa.table({"id": range(ROWS), "v": texts})
    import json

    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    comma = tmp_path / "rows.csv"
    comma.write_text("id,v\n" + "".join(f"{r['id']},{r['v']}\n" for r in rows.to_pylist()))
    arrow = tmp_path / "rows.arrow"
    wide = rows.cast(pa.schema([("id", pa.int64()), ("v", pa.string_view())]))
    with pa.OSFile(str(arrow), "wb") as sink, pa.ipc.new_file(sink, wide.schema) as writer:
        writer.write_table(wide)
    for name in (lines, comma):
        table = table_of(pa.string())
        reader = read_files([str(name), str(arrow)], schema)
        table.append(reader)
        twice = sorted([*enumerate(texts), *enumerate(texts)], key=lambda row: row[0])
        assert rows_of(table) == twice


def test_the_first_rows_of_an_order_are_put_in_order_in_pieces(low_bounds, monkeypatch):
    table = table_of(pa.string())
    texts = [text or "" for text in values_of(pa.string(), 9)]
    for start in (0, 20):
        some = range(start, min(ROWS, start + 21))
        table.append(pa.table({"id": list(some), "v": [texts[n] for n in some]}))
    found = table.scan(order_by="id desc", limit=60).to_arrow()
    expected = sorted([*range(ROWS), 20], reverse=True)
    assert found["id"].to_pylist() == expected
    assert found["v"].to_pylist() == [texts[n] for n in expected]

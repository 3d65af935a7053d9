"""Categories as Polars has them since version 2: dictionaries of views, for which Arrow has few kernels."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay


def categories(words: list[str | None], values: pa.DataType) -> pa.DictionaryArray:
    encoded = pa.array(words, pa.string()).dictionary_encode()
    codes = encoded.indices.cast(pa.uint32())
    return pa.DictionaryArray.from_arrays(codes, encoded.dictionary.cast(values))


def nested(words: list[str | None], values: pa.DataType) -> dict[str, pa.Array]:
    flat = categories(words, values)
    offsets = pa.array(range(len(words) + 1), pa.int32())
    return {
        "word": flat,
        "words": pa.ListArray.from_arrays(offsets, flat),
        "held": pa.StructArray.from_arrays([flat], ["word"]),
    }


@pytest.mark.parametrize("values", [pa.string_view(), pa.binary_view()], ids=str)
def test_every_write_takes_them_and_every_read_gives_them_back(
    tmp_path: Path, values: pa.DataType
) -> None:
    def rows(ids: list[int], words: list[str | None]) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), **nested(words, values)})

    def word(text: str | None) -> Any:
        return text if text is None or values == pa.string_view() else text.encode()

    first = rows([1, 2, 3], ["a", None, "b"])
    t = inlay.create(tmp_path / "t", first.schema, primary_key="id")
    t.append(first)
    t.upsert(rows([3, 4], ["c", "d"]))
    t.upsert(rows([4], ["e"]).select(["id", "word"]))
    found = {r["id"]: r for r in t.scan().to_arrow().to_pylist()}
    expected = {1: "a", 2: None, 3: "c", 4: "e"}
    assert {i: r["word"] for i, r in found.items()} == {i: word(w) for i, w in expected.items()}
    assert found[3]["words"] == [word("c")] and found[4]["words"] == [word("d")]
    assert found[4]["held"] == {"word": word("d")}
    assert t.scan().to_arrow().schema.equals(first.schema)
    t.delete(keys=rows([1], ["a"]).select(["word", "id"]))
    t.delete(keys=rows([], []).select(["word"]))
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]
    t.maintain.compact()
    t.delete("id = 3", mode="surgery")
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [2, 4]
    assert t.changes(1, net=True).to_arrow().num_rows == 2
    assert t.scan(where="id = 77").to_arrow().num_rows == 0


def test_polars_frames_with_categories_go_in_and_come_out(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    words = ["q", None, "r"]
    frame = pl.DataFrame(
        {
            "id": [1, 2, 3],
            "word": pl.Series(words, dtype=pl.Categorical),
            "level": pl.Series(["low", "high", None], dtype=pl.Enum(["low", "high"])),
            "words": pl.Series([["q"], None, []], dtype=pl.List(pl.Categorical)),
            "held": pl.Series([{"k": "v"}] * 3, dtype=pl.Struct({"k": pl.Enum(["u", "v"])})),
        }
    )
    place = tmp_path / "t"
    with pytest.warns(UserWarning, match="is not kept"):
        t = inlay.create(place, pa.table(frame).schema, primary_key="id")
    t.append(frame)
    assert t.to_lazy().sort("id").collect().to_dicts() == frame.to_dicts()
    assert t.to_lazy().filter(pl.col("word") == "q").collect()["id"].to_list() == [1]
    assert t.to_lazy().filter(pl.col("id") > 3).collect().shape == (0, 5)
    assert pl.DataFrame(t).sort("id").to_dicts() == frame.to_dicts()
    t.delete(keys=frame.filter(pl.col("id") == 3).select("word", "id"))
    assert t.count() == 2
    shutil.rmtree(place)

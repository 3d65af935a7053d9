"""Field ids of landed files: the table's own where it is published, and no other byte changes."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import UnsupportedFile
from inlay.ops.write.ingest import Ingested, Superseded
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.footer.fields import Chunk, Element, File, Group, KeyValue, Meta
from inlay.parquet.footer.footer import Footer, decode_footer, end_of_file
from inlay.parquet.surgery.stamp import FOREIGN_IDS, stamped

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.struct([("lat", pa.float64()), ("tags", pa.list_(pa.string()))])),
        ("attributes", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)


def rows(n: int = 3) -> pa.Table:
    return pa.table(
        {
            "id": range(n),
            "name": [f"n{i}" for i in range(n)],
            "at": [{"lat": i / 2, "tags": ["a"] * i} for i in range(n)],
            "attributes": [[("k", [i])] for i in range(n)],
        },
        schema=NESTED,
    )


class Lake:
    def __init__(self, schema: pa.Schema = NESTED, **properties: Any) -> None:
        self.base = f"memory://stamps-{uuid.uuid4().hex}"
        named = {k.replace("__", "."): v for k, v in properties.items()}
        self.table = inlay.create(f"{self.base}/tables/t", schema, properties=named)

    def land(self, data: pa.Table | bytes, name: str = "a.parquet", **options: Any) -> str:
        if isinstance(data, pa.Table):
            sink = io.BytesIO()
            pq.write_table(data, sink, **options)
            data = sink.getvalue()
        self.table._ctx.store.put(f"in/{name}", data)
        return f"{self.base}/in/{name}"

    def body(self, key: str) -> bytes:
        return self.table._ctx.store.get(self.table._ctx.key(key)).body  # type: ignore[union-attr]

    def only(self) -> bytes:
        [entry] = self.table.inspect.entries()[0]
        body = self.body(entry.key)
        assert len(body) == entry.size
        return body


def with_ids(schema: pa.Schema, ids: dict[str, int]) -> pa.Schema:
    return pa.schema(
        [f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) for f in schema if f.name in ids]
    )


def ids_of(body: bytes) -> dict[str, int | None]:
    def walk(field: pa.Field, path: str) -> None:
        raw = (field.metadata or {}).get(b"PARQUET:field_id")
        found[path] = None if raw is None else int(raw)
        kind = field.type
        for n in range(kind.num_fields):
            if pa.types.is_map(kind):
                for side in (kind.key_field, kind.item_field):
                    walk(side, f"{path}.{side.name}")
                return
            walk(kind.field(n), f"{path}.{kind.field(n).name}")

    found: dict[str, int | None] = {}
    for field in pq.ParquetFile(io.BytesIO(body)).schema_arrow:
        walk(field, field.name)
    return found


def test_a_file_of_other_ids_gets_the_tables_at_every_level() -> None:
    lake = Lake(ingest__field_ids="stamp")
    schema = lake.table.snapshot.schema
    lake.table.ingest([lake.land(rows())])
    body = lake.only()
    by_path = {".".join(p): f.id for p, f in schema.walk()}
    assert set(ids_of(body).values()) == set(by_path.values())
    assert lake.table.scan().to_arrow().equals(rows())
    assert lake.table.maintain.verify(depth="pages").findings == ()


def test_two_columns_with_each_others_ids_are_distinguished_by_name() -> None:
    flat = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    lake = Lake(flat, publish__format="v3")
    swapped = with_ids(flat, {"a": 2, "b": 1})
    lake.table.ingest([lake.land(pa.table({"a": [1], "b": [2]}, schema=swapped))])
    assert ids_of(lake.only()) == {"a": 1, "b": 2}


def test_a_column_the_table_lacks_gets_an_id_that_no_table_gives() -> None:
    flat = pa.schema([("a", pa.int64())])
    sink = io.BytesIO()
    foreign = with_ids(pa.schema([("a", pa.int64()), ("x", pa.int64())]), {"a": 7, "x": 1})
    pq.write_table(pa.table({"a": [1], "x": [2]}, schema=foreign), sink)
    body = sink.getvalue()
    footer = stamped(decode_footer(body, file_size=len(body)), schema_from_arrow(flat))
    ids = [e.get(Element.FIELD_ID) for e in footer.tree[File.SCHEMA]]
    assert ids == [None, 1, FOREIGN_IDS]


def pairs_of(body: bytes) -> list[bytes]:
    tree = decode_footer(body, file_size=len(body)).tree
    return [pair[KeyValue.KEY] for pair in tree.get(File.KEY_VALUES, ())]


def test_schemas_among_the_key_values_go_with_their_ids() -> None:
    """iceberg-rust, and DataFusion by it, takes the ids of the Arrow schema: columns came exchanged."""
    flat = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int64()))])
    lake = Lake(flat, publish__format="v3")
    swapped = with_ids(flat, {"a": 2, "b": 1}).with_metadata({"iceberg.schema": "{}", "other": "x"})
    body = lake.land(pa.table({"a": [1], "b": [[2]]}, schema=swapped))
    lake.table.ingest([body])
    assert pairs_of(lake.only()) == [b"other"]
    # Stamped by an earlier release: the ids of the columns were right, those of the Arrow schema were not.
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1], "b": [[2]]}, schema=swapped), sink)
    schema = schema_from_arrow(flat)
    foreign = decode_footer(sink.getvalue(), file_size=sink.tell())
    done = stamped(foreign, schema)
    both = {**done.tree, File.KEY_VALUES: foreign.tree[File.KEY_VALUES]}
    half = Footer(both, foreign.start, foreign.file_size - foreign.start, foreign.leaves)
    assert stamped(half, schema) is not half
    assert stamped(done, schema) is done


def test_an_arrow_schema_of_views_goes() -> None:
    """pyiceberg could not read such a file once it has deletes; DataFusion and Polars write them."""
    flat = pa.schema([("a", pa.string_view())])
    lake = Lake(flat, publish__format="v3")
    lake.table.ingest([lake.land(pa.table({"a": ["x"]}, schema=with_ids(flat, {"a": 1})))])
    assert pairs_of(lake.only()) == []
    assert lake.table.scan().to_arrow()["a"].to_pylist() == ["x"]


def test_a_file_that_has_the_ids_is_copied_as_it_is() -> None:
    flat = pa.schema([("a", pa.int64()), ("b", pa.string())])
    lake = Lake(flat, ingest__field_ids="stamp")
    table = pa.table({"a": [1], "b": ["x"]}, schema=with_ids(flat, {"a": 1, "b": 2}))
    before = lake.table.usage
    uri = lake.land(table)
    lake.table.ingest([uri])
    assert (lake.table.usage - before).requests.get("copy") == 1
    assert lake.only() == lake.table._ctx.store.get("in/a.parquet").body  # type: ignore[union-attr]


@pytest.mark.parametrize("wanted", ["keep", "auto"])
def test_a_table_that_is_not_published_keeps_the_bytes(wanted: str) -> None:
    lake = Lake(ingest__field_ids=wanted)
    lake.table.ingest([lake.land(rows())])
    assert lake.only() == lake.table._ctx.store.get("in/a.parquet").body  # type: ignore[union-attr]


def test_a_large_file_is_stamped_by_copying_its_data_on_the_server() -> None:
    flat = pa.schema([("a", pa.int64()), ("b", pa.binary())])
    lake = Lake(flat, ingest__field_ids="stamp")
    count = 12_000
    data = pa.table({"a": range(count), "b": [uuid.uuid4().bytes * 64 for _ in range(count)]})
    uri = lake.land(data, compression="none", use_dictionary=False, write_page_index=True)
    before = lake.table.usage
    lake.table.ingest([uri])
    used = lake.table.usage - before
    assert used.bytes_up < 64 * 1024, "only the footer and the commit go up"
    assert used.bytes_down < 512 * 1024
    body = lake.only()
    assert ids_of(body) == {"a": 1, "b": 2}
    assert pq.read_table(io.BytesIO(body)).equals(data)
    assert lake.table.maintain.verify(depth="pages").findings == ()


def two_levels() -> bytes:
    """A file whose list has no group between it and its elements, as parquet-java once wrote them: the same
    pages as of a list of required elements, under another schema."""
    required = pa.schema([("a", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [[1, 2], None]}, schema=required), sink, store_schema=False)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    elements = footer.tree[File.SCHEMA]
    del elements[2]
    elements[2][Element.REPETITION] = 2
    [group] = footer.tree[File.GROUPS]
    path = group[Group.COLUMNS][0][Chunk.META][Meta.PATH]
    path[:] = [b"a", b"element"]
    return body[: footer.start] + end_of_file(footer.tree)


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_file_in_an_old_layout_is_written_again_or_kept_by_size(limit: int) -> None:
    body = two_levels()
    lake = Lake(
        pa.schema([("a", pa.list_(pa.int64()))]),
        ingest__field_ids="stamp",
        ingest__split_bytes=limit,
    )
    lake.table.ingest([lake.land(body)])
    assert lake.table.scan().to_arrow()["a"].to_pylist() == [[1, 2], None]
    if limit:
        assert list(ids_of(lake.only()).values()) == [1, 2]
    else:
        assert lake.only() == body


def test_an_object_overwritten_before_it_is_stamped_is_superseded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from inlay.ops.write import ingest as ingest_op

    lake = Lake(ingest__field_ids="stamp")
    uri = lake.land(rows())
    real = ingest_op.stamp_object

    def racing(*args: Any, **options: Any) -> Any:
        lake.land(rows(5))
        return real(*args, **options)

    monkeypatch.setattr(ingest_op, "stamp_object", racing)
    result = lake.table.ingest([uri])
    assert [type(o) for o in result.outcomes] == [Superseded]
    monkeypatch.setattr(ingest_op, "stamp_object", real)
    result = lake.table.ingest([uri])
    assert [type(o) for o in result.outcomes] == [Ingested]
    assert lake.table.count() == 5


def test_a_repeated_field_without_annotation_is_refused() -> None:
    body = two_levels()
    footer = decode_footer(body, file_size=len(body))
    elements = footer.tree[File.SCHEMA]
    del elements[1]
    with pytest.raises(UnsupportedFile, match="'element'"):
        stamped(footer, schema_from_arrow(pa.schema([("element", pa.list_(pa.int64()))])))


def test_a_vector_names_its_data_file_by_the_whole_uri() -> None:
    from inlay.format.entry import Vector
    from inlay.format.puffin import decode_footer as decode_puffin

    lake = Lake(pa.schema([("a", pa.int64())]))
    lake.table.append(pa.table({"a": range(1000)}))
    lake.table.delete("a < 200", mode="vector")
    [file], [marker] = lake.table.inspect.entries()
    assert isinstance(marker.body, Vector)
    [blob] = decode_puffin(lake.body(marker.body.key))
    assert blob.data_file == f"{lake.base}/tables/t/{file.key}"

"""Whether a table is there, and what happens to one that is."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.errors import SchemaMismatch, TableExists

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 2))])


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_table_is_there_once_it_was_created(kind: str, tmp_path: Path) -> None:
    uri = f"memory://life/{uuid.uuid4().hex}" if kind == "memory" else str(tmp_path / "t")
    assert not inlay.exists(uri)
    t = inlay.create(uri, SCHEMA, exist_ok=True)
    assert inlay.exists(uri)
    t.append(pa.table({"id": [1], "v": [[1.0, 2.0]]}, schema=SCHEMA))
    again = inlay.create(uri, SCHEMA, exist_ok=True)
    assert (again.version, again.count()) == (2, 1)
    with pytest.raises(TableExists):
        inlay.create(uri, SCHEMA)
    with pytest.raises(SchemaMismatch):
        inlay.create(uri, pa.schema([("id", pa.int64())]), exist_ok=True)


def test_the_module_lists_what_it_has() -> None:
    assert {"Table", "connect", "create", "exists", "open", "__version__"} <= set(dir(inlay))

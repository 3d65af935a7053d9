"""Iceberg tables of other writers, adopted in place: a scan equals what their own readers return."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import inlay
from inlay.errors import CorruptTable
from inlay.table import Table

from .conftest import Refused
from .iceberg_deletes import Iceberg

WRITER = Path(__file__).with_name("write_by_pyiceberg.py")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Read = Callable[[str, Sequence[str]], list[pa.Table | Refused]]


def plain(value: Any) -> Any:
    """One form for what engines show in several: UUIDs as bytes, maps as pairs."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str) and _UUID.fullmatch(value):
        return UUID(value).bytes
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def multiset(rows: pa.Table) -> list[str]:
    return sorted(str(plain(row)) for row in rows.to_pylist())


def adopt(source: str, into: Path | str, **options: Any) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return inlay.adopt(source, into, **options)


@pytest.fixture(scope="module")
def tables(engines_python: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Histories by pyiceberg: where the metadata is, and what happened."""
    folder = tmp_path_factory.mktemp("source")
    done = subprocess.run(
        [engines_python, WRITER, folder, *map(str, range(8))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_histories_by_pyiceberg_are_equal_to_their_own_readers(
    tables: list[dict[str, Any]], tmp_path: Path, read_all: Read
) -> None:
    theirs = {
        engine: read_all(engine, [t["metadata"] for t in tables])
        for engine in ("pyiceberg", "duckdb", "polars")
    }
    compared = 0
    for n, table in enumerate(tables):
        adopted = adopt(table["metadata"], tmp_path / f"in{n}", copy=n % 4 == 0)
        ours = multiset(adopted.scan().to_arrow())
        assert not adopted.maintain.verify().findings, table["log"]
        if n % 2:  # and stay so when Inlay writes them again, under another name
            adopted.alter(rename={"id": "number"})
            adopted.maintain.rewrite()
            adopted.maintain.compact()
            adopted.alter(rename={"number": "id"})
            assert ours == multiset(adopted.scan().to_arrow()), table["log"]
        for engine, found in theirs.items():
            rows = found[n]
            if not isinstance(rows, Refused):
                assert ours == multiset(rows), (engine, table["log"])
                compared += 1
    assert compared >= 2 * len(tables)


def random_deletes(
    table: Iceberg, pick: random.Random, *, version: int, by_keys: bool
) -> list[str]:
    """Deletes of every kind, in several snapshots; what was done."""
    log = []
    table.upgrade(version)
    vectors: dict[str, set[int]] = {}
    for _ in range(pick.randint(1, 3)):
        files = table.data_files()
        chosen = pick.sample(files, min(len(files), 3))
        kind = pick.choice(["positions", "keys"] if by_keys else ["positions"])
        log.append(kind)
        if kind == "keys":
            data, avro, spec = pick.choice(files)
            keys = pa.table({"id": pa.array(pick.sample(range(200), 40), pa.int64())})
            table.add_deletes([(table.keys(keys, [1], data), avro, spec)])
        elif version >= 3:
            for data, _, _ in chosen:
                more = pick.sample(
                    range(data["record_count"]), pick.randint(1, data["record_count"])
                )
                vectors.setdefault(data["file_path"], set()).update(more)
            # A new vector takes the place of the one before: all in the last snapshot.
        else:
            table.add_deletes(
                [
                    (
                        table.positions(
                            {
                                data["file_path"]: pick.sample(
                                    range(data["record_count"]),
                                    pick.randint(1, data["record_count"]),
                                )
                            },
                            data,
                        ),
                        avro,
                        spec,
                    )
                    for data, avro, spec in chosen
                ]
            )
    if vectors:
        like = {d["file_path"]: (d, avro, spec) for d, avro, spec in table.data_files()}
        made = table.vectors(
            {p: sorted(at) for p, at in vectors.items()}, {p: like[p][0] for p in vectors}
        )
        table.add_deletes([(m, *like[m["referenced_data_file"]][1:]) for m in made])
    return log


def test_deletes_of_every_kind(
    tables: list[dict[str, Any]], tmp_path: Path, read_all: Read
) -> None:
    made = []
    for n, line in enumerate(tables):
        table = Iceberg(line["metadata"])
        if table.found.get("current-snapshot-id") in (None, -1) or not table.data_files():
            continue
        version, by_keys = 2 + n % 2, n % 4 > 1
        log = random_deletes(table, random.Random(n), version=version, by_keys=by_keys)
        if version >= 3 and n % 8 > 4:
            table.add_column(
                {"name": "since", "type": "date", "required": True, "initial-default": "2024-02-03"}
            )
        made.append((table.write(), [version, *log], by_keys))
    theirs = {e: read_all(e, [m for m, _, _ in made]) for e in ("duckdb", "pyiceberg", "polars")}
    compared = dict.fromkeys(theirs, 0)
    for n, (metadata, log, by_keys) in enumerate(made):
        adopted = adopt(metadata, tmp_path / f"in{n}")
        ours = multiset(adopted.scan().to_arrow())
        for engine, found in theirs.items():
            rows = found[n]
            # pyiceberg and Polars do not read deletes by keys.
            if not isinstance(rows, Refused) and (engine == "duckdb" or not by_keys):
                assert ours == multiset(rows), (engine, metadata, log)
                compared[engine] += 1
        assert not adopted.maintain.verify().findings
    assert compared["duckdb"] >= 6 and compared["pyiceberg"] >= 4, theirs


def test_columns_that_the_source_dropped_do_not_keep_a_table_from_being_published(
    tmp_path: Path, read_all: Read
) -> None:
    """They stay in its files, under ids that no column has or gets."""
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    columns = [
        ("s", pa.string(), "a"),
        ("l", pa.list_(inner), [{"x": 1, "y": "b"}]),
        ("m", pa.map_(pa.string(), inner), [("k", {"x": 2, "y": "c"})]),
        ("z", inner, {"x": 3, "y": "d"}),
    ]
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, kind, _ in columns)])
    source = inlay.create(f"file://{tmp_path}/a", schema)
    rows = {"id": [1, 2], **{name: [value, None] for name, _, value in columns}}
    source.append(pa.table(rows, schema=schema))
    source.alter(drop=["s", "l", "m", "z"])
    source.alter(add={"s": pa.int64(), "z": pa.int64()})  # other columns under the same names
    source.append(pa.table({"id": [3], "s": [5], "z": [7]}, schema=source.refresh().schema))
    source.publish(format="v3")
    adopted = adopt(source.uri, tmp_path / "b")
    adopted.delete("id = 2", mode="vector")
    assert adopted.publish(format="v3").published
    adopted.alter(add={"m": pa.string(), "l": pa.int32()})
    assert adopted.refresh().publish().published
    metadata = json.loads((tmp_path / "b" / "metadata" / "latest.json").read_text())
    expected = multiset(adopted.refresh().scan().to_arrow())
    assert expected[0] == "{'id': 1, 's': None, 'z': None, 'm': None, 'l': None}"
    for engine in ("duckdb", "pyiceberg", "polars"):
        [found] = read_all(engine, [metadata["metadata-location"]])
        assert not isinstance(found, Refused), found
        assert multiset(found) == expected, engine


@pytest.mark.parametrize("name", ["v3.metadata.json", "v3.gz.metadata.json", "v3.metadata.json.gz"])
def test_a_hint_that_is_behind_is_followed_to_the_newest_version(tmp_path: Path, name: str) -> None:
    """A writer of a folder commits by the metadata file; the hint comes after, and is not always there."""
    source = inlay.create(f"file://{tmp_path}/a", pa.schema([("id", pa.int64())]))
    source.append(pa.table({"id": [1]}))
    source.publish(format="v3")
    folder = tmp_path / "a" / "metadata"
    first = source.refresh().version
    source.append(pa.table({"id": [2]}))
    source.publish()
    last = source.refresh().version
    (folder / f"v{first}.metadata.json").rename(folder / "v2.metadata.json")
    newest = (folder / f"v{last}.metadata.json").read_bytes()
    (folder / f"v{last}.metadata.json").unlink()
    (folder / name).write_bytes(gzip.compress(newest) if "gz" in name else newest)
    for hint in ("2", "3\n"):
        (folder / "version-hint.text").write_text(hint)
        assert sorted(
            adopt(source.uri, tmp_path / f"b{hint.strip()}").scan().to_arrow()["id"].to_pylist()
        ) == [1, 2]
    (folder / "version-hint.text").write_text("1")
    with pytest.raises(CorruptTable, match="version 1, which has no metadata file") as refused:
        adopt(source.uri, tmp_path / "c")
    assert refused.value.next_step

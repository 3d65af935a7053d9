"""Over random histories: what is published equals the table, to an oracle and to every engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from inlay.errors import Unpublishable

from .conftest import ENGINES, Refused, as_multiset
from .histories import History
from .iceberg_reader import entries_of, load, read_table

STEPS = 14


def published(history: History) -> str:
    """Where the metadata of the newest publication is; published as the table is now."""
    try:
        history.table.publish()
    except Unpublishable as error:
        raise AssertionError(f"{error}: {history.log}") from error
    history.log.append("publish")
    pointer = json.loads((history.root / "metadata" / "latest.json").read_text())
    location: str = pointer["metadata-location"]
    return location


def contents(metadata: Any) -> list[str]:
    """What a publication says of its files, apart from when they were first published."""
    return sorted(
        json.dumps([content, {k: v for k, v in file.items() if k != "first_row_id"}], default=str)
        for content, _, file in entries_of(metadata)
    )


def run(tmp_path: Path, seed: int) -> tuple[History, str]:
    history = History(tmp_path, seed)
    location = published(history)
    for n in range(STEPS):
        history.step()
        if n % 3 == 2:
            location = published(history)
            expected = sorted(map(str, history.table.scan().to_arrow().to_pylist()))
            assert sorted(map(str, read_table(location))) == expected, history.log
    location = published(history)
    incremental = contents(load(location))
    history.table.publish(rebuild=True)
    assert contents(load(location)) == incremental, history.log
    return history, location


@pytest.mark.parametrize("seed", range(4))
def test_a_published_history_is_what_scan_reads(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more_histories(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("engine", ["daft", "datafusion", "clickhouse"])
def test_engines_that_may_be_installed_besides_agree_or_refuse(
    engine: str,
    version: str,
    tmp_path: Path,
    engines_python: Path,
    read_all: Callable[[str, Sequence[str]], list[pa.Table | Refused]],
) -> None:
    """Needs an environment that has them (INLAY_ENGINES): `make engines` does not install them."""
    module = {"datafusion": "pyiceberg_core", "clickhouse": "chdb"}.get(engine, engine)
    if subprocess.run([engines_python, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{engine} is not installed")
    runs = []
    for seed in range(700, 706):
        history = History(tmp_path, seed)
        history.table.set_properties(publish__format=version)
        for _ in range(STEPS):
            history.step()
        try:
            history.table.publish()
        except Unpublishable:
            assert version == "v2", history.log  # a default
            continue
        pointer = json.loads((history.root / "metadata" / "latest.json").read_text())
        runs.append((history, pointer["metadata-location"]))
    equal = 0
    found = read_all(engine, [at for _, at in runs])
    for (history, _), rows in zip(runs, found, strict=True):
        if not isinstance(rows, Refused):
            names = history.table.schema.names
            expected = as_multiset(history.table.scan().to_arrow())
            # Engines differ in how wide they make texts; the values are compared.
            assert as_multiset(rows.select(names)) == expected, (engine, history.log)
            equal += 1
    # Daft and ClickHouse refuse the deletion vectors of version 3.
    assert equal > len(runs) // 2 or (version == "v3" and engine != "datafusion")


def test_every_engine_agrees_on_random_histories(
    tmp_path: Path, read_all: Callable[[str, Sequence[str]], list[pa.Table | Refused]]
) -> None:
    runs = [run(tmp_path, seed) for seed in range(21, 25)]
    for engine in ENGINES:
        for (history, _), found in zip(runs, read_all(engine, [at for _, at in runs]), strict=True):
            if not isinstance(found, Refused):
                expected = as_multiset(history.table.scan().to_arrow())
                assert as_multiset(found) == expected, (engine, history.log)
        assert sum(isinstance(f, Refused) for f in read_all(engine, [runs[0][1]])) == 0

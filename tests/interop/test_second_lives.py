"""Adopted tables live on: after every kind of step conditions find what is there, and engines agree."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from inlay.errors import Unpublishable, UnsupportedTable
from inlay.table import Table

from .conftest import ENGINES, Refused
from .second_lives import SecondLife, check_filters
from .test_adopt_iceberg import adopt, multiset

Read = Callable[[str, Sequence[str]], list[pa.Table | Refused]]
WRITERS = {"iceberg": "write_by_pyiceberg.py", "delta": "write_by_deltalake.py"}


def lived(folder: Path, found: dict[str, Any], seed: int, steps: int) -> tuple[Table, list[str]]:
    """The source as a table of Inlay, in place where it can be, after so many steps."""
    source = found.get("metadata") or found["root"]
    try:
        table = adopt(source, folder / f"in{seed}", copy=seed % 2 == 0)
    except UnsupportedTable:  # times as INT96
        table = adopt(source, folder / f"in{seed}", copy=True)
    check_filters(table, random.Random(seed), found["log"])
    if "u" in table.schema.names and seed % 4:
        table.alter(drop=["u"])  # UUIDs are not published
    landing = folder / f"landing{seed}"
    landing.mkdir()
    table.set_properties(publish__format="v3" if seed % 3 else "v2")
    life = SecondLife(table.refresh(), landing, seed)
    for n in range(steps):
        life.step()
        if n % 4 == 3:
            check_filters(life.table, random.Random(n), life.log)
            try:
                life.table.publish()
            except Unpublishable as error:
                life.log.append(f"publish ({error.message})")
    table = life.table.refresh()
    check_filters(table, random.Random(seed), life.log)
    assert table.maintain.verify(depth="pages").errors == (), life.log
    return table, [*found["log"], "--", *life.log]


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        pytest.param("iceberg", range(304, 305), id="few-iceberg"),
        pytest.param("delta", range(300, 301), id="few-delta"),
        *(
            pytest.param(kind, range(n, n + 3), marks=pytest.mark.slow, id=f"{kind}-{n}")
            for kind in WRITERS
            for n in range(305, 332, 3)  # few at a time: a test has five minutes
        ),
    ],
)
def test_adopted_tables_live_on_and_every_engine_agrees(
    kind: str, seeds: range, tmp_path: Path, engines_python: Path, read_all: Read
) -> None:
    (tmp_path / "source").mkdir()
    writer = Path(__file__).with_name(WRITERS[kind])
    done = subprocess.run(
        [engines_python, writer, tmp_path / "source", *map(str, seeds)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    runs: list[tuple[Table, list[str], str]] = []
    for n, line in enumerate(done.stdout.splitlines()):
        try:
            table, log = lived(tmp_path, json.loads(line), n, 8)
        except UnsupportedTable as error:
            assert "read differently" in str(error)
            continue
        try:
            table.publish()
        except Unpublishable:  # in place: files without the table's ids; types, defaults
            continue
        pointer = Path(table.uri.removeprefix("file://")) / "metadata" / "latest.json"
        runs.append((table.refresh(), log, json.loads(pointer.read_text())["metadata-location"]))
    assert runs
    for engine in ENGINES:
        for (table, log, _), found in zip(
            runs, read_all(engine, [at for *_, at in runs]), strict=True
        ):
            assert not isinstance(found, Refused), (engine, found, log)
            expected, got = multiset(table.scan().to_arrow()), multiset(found)
            if engine == "pyiceberg":  # NULL lists of structs, docs/INTEROP.md
                expected, got = (
                    sorted(t.replace("None", "[]") for t in texts) for texts in (expected, got)
                )
            assert got == expected, (engine, log)

"""Engines whose files are of writers of their own, on the catalog that takes commits: Polars, and where
INLAY_ENGINES has them Daft and Sail."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from .conftest import need
from .test_catalog_writes import (  # noqa: F401 - fixtures
    Between,
    Engines,
    Row,
    between,
    engines,
    opened,
    root,
    rows,
    uri,
)

Step = Callable[[], object]


class Other:
    """A table that one engine and Inlay write; `model` is what it has, by id."""

    def __init__(self, engine: str, engines: Engines, root: Path, seed: int) -> None:  # noqa: F811
        self.engine, self.engines, self.root = engine, engines, root
        self.random, self.model, self.next = random.Random(seed), dict[int, Row](), 0
        if engine == "sail":
            engines(
                "sail", "CREATE TABLE lake.tables.t (id BIGINT, s STRING, n BIGINT) USING iceberg"
            )
            return
        by = self.random.choice(["", " PARTITIONED BY (s)", " PARTITIONED BY (bucket(3, id))"])
        engines.sql(f"CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR, n BIGINT){by}")

    def made(self) -> list[Row]:
        first = self.next
        self.next += self.random.randint(1, 6)
        return [
            {"id": i, "s": self.random.choice(["a", "b", "", None]), "n": i % 7}
            for i in range(first, self.next)
        ]

    def keep(self, made: list[Row]) -> None:
        self.model |= {row["id"]: row for row in made}

    def put(self, mode: str) -> None:
        made = self.made()
        if self.engine == "sail":
            values = ", ".join(
                f"({r['id']}, {'NULL' if r['s'] is None else repr(r['s'])}, {r['n']})" for r in made
            )
            verb = "INTO" if mode == "append" else "OVERWRITE"
            self.engines("sail", f"INSERT {verb} lake.tables.t VALUES {values}")
        else:
            self.engines(self.engine, mode, "tables.t", made)
        if mode == "overwrite":
            self.model.clear()
        self.keep(made)

    def changes_rows(self) -> None:
        n = self.random.randrange(7)
        if self.engine != "sail":
            self.engines("pyiceberg", "delete", "tables.t", f"n == {n}")
            self.model = {i: r for i, r in self.model.items() if r["n"] != n}
            return
        match self.random.choice(["delete", "update", "merge"]):
            case "delete":
                self.engines("sail", f"DELETE FROM lake.tables.t WHERE n = {n}")
                self.model = {i: r for i, r in self.model.items() if r["n"] != n}
            case "update":
                self.engines("sail", f"UPDATE lake.tables.t SET s = 'u' WHERE n = {n}")
                self.keep([{**r, "s": "u"} for r in self.model.values() if r["n"] == n])
            case _:
                ids = [*list(self.model)[:2], self.next]
                self.next += 1
                source = " UNION ALL ".join(f"SELECT {i}L AS id" for i in ids)
                self.engines(
                    "sail",
                    f"MERGE INTO lake.tables.t t USING ({source}) u ON t.id = u.id "
                    "WHEN MATCHED THEN UPDATE SET s = 'm' "
                    "WHEN NOT MATCHED THEN INSERT (id, s, n) VALUES (u.id, 'm', 0L)",
                )
                self.keep([{"id": i, "s": "m", "n": self.model.get(i, {"n": 0})["n"]} for i in ids])

    def natively(self) -> None:
        table, made = opened(self.root), self.made()
        table.append(pa.Table.from_pylist(made, table.schema))
        self.keep(made)
        gone = self.random.randrange(self.next)
        table.delete(f"id = {gone}", mode=self.random.choice(["tombstone", "vector", "surgery"]))
        self.model.pop(gone, None)
        if self.random.random() < 0.3:
            table.maintain.compact()

    def check(self, done: list[str]) -> None:
        expected = [self.model[i] for i in sorted(self.model)]
        assert rows(opened(self.root)) == expected, done
        read = self.engines("pyiceberg", "scan", "tables.t")
        assert sorted(read, key=lambda r: r["id"]) == expected, done
        seen = self.engines.sql("SELECT id, s, n FROM lake.tables.t ORDER BY id")
        assert seen == [list(r.values()) for r in expected], done
        if self.engine == "sail":
            seen = self.engines("sail", "SELECT id, s, n FROM lake.tables.t ORDER BY id")
            assert seen == [list(r.values()) for r in expected], done


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", ["polars", "daft", "sail"])
def test_it_and_inlay_write_one_table_in_turns(
    engine: str,
    seed: int,
    root: Path,  # noqa: F811
    engines: Engines,  # noqa: F811
    engines_python: Path,
    between: Between,  # noqa: F811
) -> None:
    if engine != "polars":
        need(engines_python, engine)
    between.twice = bool(seed % 2)
    of = Other(engine, engines, root, seed)
    done: list[str] = []
    for _ in range(10):
        steps: dict[str, Step] = {
            "append": lambda: of.put("append"),
            "overwrite": lambda: of.put("overwrite"),
            "change": of.changes_rows,
            "native": of.natively,
        }
        name = of.random.choices(list(steps), [4, 1, 3, 2])[0]
        done.append(name)
        steps[name]()
        of.check(done)
    assert opened(root).maintain.verify(depth="pages").errors == ()

"""Engines on a catalog to which everything happens: others commit first, requests come twice, the catalog
dies at one of its writes, answers are lost. After each statement the table is what it was, or what the
statement makes of it, whatever the engine was told.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.cli.serving import catalog_of
from inlay.errors import InlayError
from inlay.iceberg.catalog import Answer, Catalog
from inlay.iceberg.catalog import error as refusal
from inlay.ops.catalog.writes import TableWrites
from inlay.ops.context import Context, connect

from .test_catalog_writes import SCHEMA, Engines, opened, rows, served
from .test_erasure import finish
from .test_killed import Dying, Killed

Model = dict[int, dict[str, Any]]
Act = Callable[[Model], Model]
# Requests of one commit that may be the last of a catalog.
PUTS = 9


class Chaos:
    """A catalog of two processes, either of which may answer, or die with a request half done."""

    namespace = "tables"
    max_request_bytes = Catalog.max_request_bytes

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root, self.dice = root, dice
        self.whole = catalog_of(f"file://{root}", write=True)
        # One request at a time: a client that has waited too long sends another.
        self.busy = threading.Lock()
        self.calm = True
        self.native: list[Act] = []
        self.happened: list[str] = []
        self.others: Callable[[], Act] = lambda: dict

    def _dying(self) -> Catalog:
        at, landed = self.dice.randint(1, PUTS), self.dice.random() < 0.5
        self.happened.append(f"dies {'after' if landed else 'before'} PUT {at}")

        def kill(n: int, key: str) -> None:
            if n == at:
                raise Killed(key)

        def context(table: str) -> Context:
            ctx = connect(f"file://{self.root}/{table}")
            return replace(ctx, store=Dying(ctx.store, **{"after" if landed else "before": kill}))

        return replace(self.whole, writes=TableWrites(context))

    def _raced(self) -> Catalog:
        """Others commit just before the pointer is swapped."""
        self.happened.append("raced")
        left = [self._others]

        def race(n: int, key: str) -> None:
            if key.endswith("_latest_manifest") and left:
                left.pop()()

        def context(table: str) -> Context:
            ctx = connect(f"file://{self.root}/{table}")
            return replace(ctx, store=Dying(ctx.store, before=race))

        return replace(self.whole, writes=TableWrites(context))

    def _others(self) -> None:
        self.native.append(self.others())

    def answer(
        self, method: str, path: str, query: str = "", body: bytes = b"", headers: Any = None
    ) -> Answer:
        with self.busy:
            return self._answer(method, path, query, body, headers)

    def _answer(self, method: str, path: str, query: str, body: bytes, headers: Any) -> Answer:
        catalog, lost = self.whole, False
        if method == "POST" and not self.calm and b"add-snapshot" in body:
            # Once: DuckDB deletes its files after the fourth answer that is none, whatever was committed.
            self.calm = True
            match self.dice.randrange(6):
                case 0:
                    self.happened.append("others")
                    self._others()
                case 1:
                    catalog = self._dying()
                case 2:
                    catalog = self._raced()
                case 3:
                    self.happened.append("lost answer")
                    lost = True
                case 4:
                    self.happened.append("twice")
                    self.whole.answer(method, path, query, body, headers)
                case _:
                    pass  # nothing happens
        try:
            answer = catalog.answer(method, path, query, body, headers)
        except Killed:
            lost = True
        if lost:
            status = self.dice.choice([500, 503, 504])
            return refusal(status, "CommitStateUnknownException", "the answer is lost")
        return answer


class Histories:
    """Statements, and what each makes of the table by id; `spark` does those of Spark, if it is there."""

    def __init__(
        self,
        root: Path,
        chaos: Chaos,
        engines: Engines,
        dice: random.Random,
        spark: Callable[[str], Any] | None = None,
    ) -> None:
        self.root, self.chaos, self.engines, self.dice = root, chaos, engines, dice
        self.spark = spark
        chaos.others = self.by_inlay
        self.next = self.erased = 0

    def new(self, count: int) -> Model:
        made = range(self.next, self.next + count)
        self.next += count
        return {i: {"id": i, "s": self.dice.choice("abc"), "n": i % 7} for i in made}

    def by_inlay(self) -> Act:
        table = opened(self.root)
        match self.dice.randrange(7):
            case 0 | 1:
                made = self.new(2)
                table.append(pa.Table.from_pylist(list(made.values()), SCHEMA))
                return lambda model: {**model, **made}
            case 2:
                n = self.dice.randrange(7)
                mode = self.dice.choice(["tombstone", "vector", "rewrite"])
                table.delete(f"n = {n}", mode=mode)
                return lambda model: {i: r for i, r in model.items() if r["n"] != n}
            case 3:
                table.maintain.compact()
            case 4:
                table.maintain.collect_garbage(grace=timedelta(hours=1))
            case 5:
                n, self.erased = self.dice.randrange(7), self.erased + 1
                table.delete(f"n = {n}", mode="erase", request_id=f"case-{self.erased}")
                finish(table)
                assert table.refresh().snapshot.erasures == ()
                return lambda model: {i: r for i, r in model.items() if r["n"] != n}
            case _:
                with suppress(InlayError):  # a publisher may be beaten by others
                    table.publish()
        return dict

    def statement(self) -> tuple[tuple[Any, ...], Act]:
        made, n = self.new(self.dice.randint(1, 4)), self.dice.randrange(7)
        values = ", ".join(f"({r['id']}, '{r['s']}', {r['n']})" for r in made.values())

        def deleted(model: Model) -> Model:
            return {i: r for i, r in model.items() if r["n"] != n}

        def updated(model: Model) -> Model:
            return {i: {**r, "s": "u"} if r["n"] == n else r for i, r in model.items()}

        def merged(model: Model) -> Model:
            return {**model, **{i: {**r, "s": "m"} if i in model else r for i, r in made.items()}}

        by_spark: list[tuple[tuple[Any, ...], Act]] = [
            (
                ("spark", f"INSERT INTO lake.tables.t VALUES {values}"),
                lambda model: {**model, **made},
            ),
            (("spark", f"DELETE FROM lake.tables.t WHERE n = {n}"), deleted),
            (("spark", f"UPDATE lake.tables.t SET s = 'u' WHERE n = {n}"), updated),
            (
                (
                    "spark",
                    f"MERGE INTO lake.tables.t t USING (SELECT * FROM VALUES {values} AS v(id, s, n)) x "
                    "ON t.id = x.id WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT *",
                ),
                merged,
            ),
            (
                (
                    "spark",
                    "CALL lake.system.rewrite_data_files(table => 'tables.t', "
                    "options => map('rewrite-all', 'true'))",
                ),
                dict,
            ),
        ]
        return self.dice.choice(
            [
                *(by_spark if self.spark is not None else ()),
                (
                    ("duckdb", f"INSERT INTO lake.tables.t VALUES {values}"),
                    lambda model: {**model, **made},
                ),
                (
                    ("pyiceberg", "append", "tables.t", list(made.values())),
                    lambda model: {**model, **made},
                ),
                (("duckdb", f"DELETE FROM lake.tables.t WHERE n = {n}"), deleted),
                (("pyiceberg", "delete", "tables.t", f"n = {n}"), deleted),
                (("duckdb", f"UPDATE lake.tables.t SET s = 'u' WHERE n = {n}"), updated),
                (
                    ("pyiceberg", "overwrite", "tables.t", list(made.values()), f"n = {n}"),
                    lambda model: {**deleted(model), **made},
                ),
            ]
        )

    def ask(self, *asked: Any) -> Any:
        if asked[0] == "spark":
            assert self.spark is not None
            return self.spark(asked[1])
        return self.engines.ask(*asked)

    def seen(self) -> Iterator[tuple[str, Any]]:
        """The table as each engine reads it."""
        statement = "SELECT id, s, n FROM lake.tables.t ORDER BY id"
        names = list(SCHEMA.names)
        yield "duckdb", [dict(zip(names, row, strict=True)) for row in self.engines.sql(statement)]
        read = self.engines("pyiceberg", "scan", "tables.t")
        yield "pyiceberg", sorted(read, key=lambda row: row["id"])
        if self.spark is not None:
            yield "spark", self.spark(statement)

    def run(self, steps: int) -> None:
        """After each statement the table is what it was, or what that makes of it, in all engines."""
        chaos, model = self.chaos, Model()
        told: list[Any] = []
        for _ in range(steps):
            asked, act = self.statement()
            chaos.calm, chaos.native = False, []
            chaos.happened.clear()
            answer = self.ask(*asked)
            with chaos.busy:
                chaos.calm = True
            before = model
            for native in chaos.native:
                before = native(before)
            failed = isinstance(answer, dict)
            told.append((asked, list(chaos.happened), answer if failed else "ok"))
            # pyiceberg deletes and overwrites in tables of version 2 only.
            assert chaos.happened or not failed or "version: 3" in answer["error"], told[-1]
            # Others come before the swap, and what was read may not change: so they come first. But what
            # found no row to change, such as an overwrite, is an append to the catalog, and may be first.
            after, alone = act(before), act(model)
            orders = [after]
            if all(alone.get(i) == row for i, row in model.items()):
                for native in chaos.native:
                    alone = native(alone)
                orders.append(alone)
            got = {row["id"]: row for row in rows(opened(self.root))}
            assert len(got) == opened(self.root).count(), told
            assert got in ([*orders, before] if failed else orders), str((told, before, after, got))
            model = got
            expected = [model[i] for i in sorted(model)]
            for engine, seen in self.seen():
                assert seen == expected, (engine, told[-3:])
        assert opened(self.root).maintain.verify(depth="pages").errors == ()


def started(root: Path, dice: random.Random, **properties: str) -> Chaos:
    """A catalog of one table, to which nothing has happened yet."""
    root.mkdir(exist_ok=True)
    form = dice.choice(["v2", "v3"])
    of = {"publish.format": form, **properties}
    inlay.create(f"file://{root}/t", SCHEMA, properties=of).publish()
    return Chaos(root, dice)


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(4))
def test_a_statement_is_done_once_or_not_at_all_whatever_happens_to_its_requests(
    tmp_path: Path, engines_python: Path, seed: int
) -> None:
    dice, root = random.Random(seed), tmp_path / "tables"
    chaos = started(root, dice)
    for uri in served(chaos):  # type: ignore[arg-type]
        engines = Engines(engines_python, uri)
        Histories(root, chaos, engines, dice).run(7)
        engines.close()

"""The catalog that takes commits: engines write, and every reader sees what they wrote."""

from __future__ import annotations

import json
import random
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.cli.serving import CatalogServer, catalog_of
from inlay.errors import AccessDenied, InlayError, TableNotFound
from inlay.iceberg.avro import decode_avro
from inlay.iceberg.catalog import Answer, Catalog
from inlay.iceberg.catalog import error as refusal
from inlay.iceberg.manifest import decode_list
from inlay.ops.catalog import commit as commit_module
from inlay.ops.catalog import several as several_module
from inlay.ops.catalog.writes import TableWrites
from inlay.ops.context import Context, connect
from inlay.plan.commit import apply as apply_module
from inlay.storage.wrapped import Meter, MeteredStore
from inlay.table import Table

from ..scan.test_statistics_of_keys import SCHEMA as COLUMNS_SCHEMA
from ..scan.test_statistics_of_keys import belied, lying
from .iceberg_deletes import Iceberg
from .iceberg_reader import read_table
from .test_erasure import SECRET, finish, found
from .test_killed import Dying, Killed

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
Row = dict[str, Any]


class Engines:
    """DuckDB and pyiceberg on one catalog, in a process of their own."""

    def __init__(self, python: Path, uri: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [python, Path(__file__).with_name("write_by_catalog.py"), uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __call__(self, *request: Any) -> Any:
        answer = self.ask(*request)
        assert not isinstance(answer, dict), (request, answer)
        return answer

    def sql(self, statement: str) -> Any:
        return self("duckdb", statement)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    return tmp_path / "tables"


@dataclass
class Between:
    """The catalog, with what happens between a client and it: `first` runs before each commit, and with
    `twice` each POST comes twice, as from a client that did not get the first answer."""

    catalog: Catalog
    first: Callable[[], object] | None = None
    twice: bool = False
    answered: list[tuple[str, int]] = field(default_factory=list)
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    stopped: list[tuple[str, bytes]] = field(default_factory=list)
    refusals: list[bytes] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.catalog.namespace

    @property
    def max_request_bytes(self) -> int:
        return self.catalog.max_request_bytes

    def answer(
        self, method: str, path: str, query: str = "", body: bytes = b"", headers: Any = None
    ) -> Answer:
        if method == "POST" and self.first is not None and b"add-snapshot" in body:
            first, self.first = self.first, None
            try:
                first()
            except AccessDenied as error:
                self.stopped.append((path, body))
                return refusal(403, "ForbiddenException", error.message)
        answer = self.catalog.answer(method, path, query, body, headers)
        if method == "POST" and self.twice and b"add-snapshot" in body and answer.status < 300:
            answer = self.catalog.answer(method, path, query, body, headers)
        self.answered.append((f"{method} {path}", answer.status))
        if answer.status >= 400 and method == "POST":
            self.refusals.append(answer.body)
        self.bodies.append((path, body))
        return answer


@pytest.fixture
def between(root: Path) -> Between:
    return Between(catalog_of(f"file://{root}", write=True))


def served(catalog: Catalog) -> Iterator[str]:
    with CatalogServer(catalog, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def uri(between: Between) -> Iterator[str]:
    yield from served(between)  # type: ignore[arg-type]


@pytest.fixture
def engines(engines_python: Path, uri: str) -> Iterator[Engines]:
    made = Engines(engines_python, uri)
    yield made
    made.close()


def opened(root: Path, name: str = "t") -> Table:
    return inlay.open(f"file://{root}/{name}")


def rows(table: Table) -> list[Row]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"])


class History:
    """A table that engines and Inlay write in turns; `model` is what it has, by id."""

    def __init__(self, root: Path, engines: Engines, seed: int) -> None:
        self.random, self.root, self.engines = random.Random(seed), root, engines
        self.model: dict[int, Row] = {}
        self.next = 0
        form = self.random.choice(["v2", "v3"])
        if self.random.random() < 0.5:
            by = self.random.choice([[], ["bucket(3, id)"], ["s"], ["truncate(10, n)"]])
            inlay.create(
                f"file://{root}/t",
                SCHEMA,
                primary_key="id",
                partition_by=by,
                properties={"publish.format": form},
            ).publish()
        else:
            engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR, n BIGINT)")

    @property
    def table(self) -> Table:
        return opened(self.root)

    def new_rows(self) -> list[Row]:
        made = []
        for _ in range(self.random.randint(1, 6)):
            self.next += 1
            made.append({"id": self.next, "s": self.random.choice("abc"), "n": self.next % 37})
        return made

    def some(self) -> int:
        return self.random.randint(0, self.next)

    def keep(self, made: list[Row]) -> None:
        self.model |= {row["id"]: row for row in made}

    def values(self, made: list[Row]) -> str:
        return ", ".join(f"({r['id']}, '{r['s']}', {r['n']})" for r in made)

    # Each writes, and does the same to the model.

    def duckdb_inserts(self) -> None:
        made = self.new_rows()
        self.engines.sql(f"INSERT INTO lake.tables.t VALUES {self.values(made)}")
        self.keep(made)

    def duckdb_deletes(self) -> None:
        n = self.some()
        self.engines.sql(f"DELETE FROM lake.tables.t WHERE id % 5 = {n % 5} AND id > {n // 2}")
        self.model = {i: r for i, r in self.model.items() if not (i % 5 == n % 5 and i > n // 2)}

    def duckdb_updates(self) -> None:
        n = self.some()
        self.engines.sql(f"UPDATE lake.tables.t SET s = 'u' WHERE id >= {n} AND id < {n + 4}")
        self.keep([{**r, "s": "u"} for i, r in self.model.items() if n <= i < n + 4])

    def duckdb_merges(self) -> None:
        made = self.new_rows()
        if self.model:
            made.append({"id": self.random.choice(list(self.model)), "s": "m", "n": -1})
        self.engines.sql(
            f"MERGE INTO lake.tables.t USING (SELECT * FROM (VALUES {self.values(made)}) v(id, s, n)) x "
            "ON t.id = x.id WHEN MATCHED THEN UPDATE SET s = x.s, n = x.n "
            "WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.s, x.n)"
        )
        self.keep(made)

    def pyiceberg_appends(self) -> None:
        made = self.new_rows()
        self.engines("pyiceberg", "append", "tables.t", made)
        self.keep(made)

    def pyiceberg_deletes(self) -> None:
        n = self.some()
        self.engines("pyiceberg", "delete", "tables.t", f"id >= {n} and id < {n + 3}")
        self.model = {i: r for i, r in self.model.items() if not n <= i < n + 3}

    def pyiceberg_overwrites(self) -> None:
        n, made = self.some(), self.new_rows()
        self.engines("pyiceberg", "overwrite", "tables.t", made, f"id < {n // 3}")
        self.model = {i: r for i, r in self.model.items() if i >= n // 3}
        self.keep(made)

    def inlay_appends(self) -> None:
        made = self.new_rows()
        self.table.append(pa.Table.from_pylist(made, SCHEMA))
        self.keep(made)

    def inlay_deletes(self) -> None:
        n = self.some()
        self.table.delete(f"id = {n}", mode=self.random.choice(["tombstone", "vector", "surgery"]))
        self.model.pop(n, None)

    def inlay_upserts(self) -> None:
        if self.table._loaded.snapshot.primary_key:
            made = self.new_rows()[:1]
            made += [{**r, "s": "x"} for r in list(self.model.values())[:2]]
            self.table.upsert(pa.Table.from_pylist(made, SCHEMA))
            self.keep(made)

    def inlay_maintains(self) -> None:
        table = self.table
        match self.random.randrange(4):
            case 0:
                table.maintain.compact()
            case 1:
                table.maintain.rewrite()
            case 2:
                table.publish()
            case _:
                table.maintain.collect_garbage(grace=timedelta(hours=1))

    def steps(self) -> list[Any]:
        return [
            *(self.duckdb_inserts, self.duckdb_deletes, self.duckdb_updates, self.duckdb_merges),
            *(self.pyiceberg_appends, self.pyiceberg_deletes, self.pyiceberg_overwrites),
            *(self.inlay_appends, self.inlay_deletes, self.inlay_upserts, self.inlay_maintains),
        ]

    def check(self, done: list[str]) -> None:
        expected = [self.model[i] for i in sorted(self.model)]
        assert rows(self.table) == expected, done
        seen = self.engines.sql("SELECT id, s, n FROM lake.tables.t ORDER BY id")
        assert seen == [list(r.values()) for r in expected], done
        read = self.engines("pyiceberg", "scan", "tables.t")
        assert sorted(read, key=lambda r: r["id"]) == expected, done


@pytest.mark.parametrize("seed", range(3))
def test_engines_and_inlay_write_one_table_in_turns(
    seed: int, root: Path, engines: Engines, between: Between
) -> None:
    """After each step the table is the same in Inlay, DuckDB and pyiceberg, and the model's; in every other
    history each request comes twice."""
    between.twice = bool(seed % 2)
    history = History(root, engines, seed)
    done: list[str] = []
    for _ in range(14):
        step = history.random.choice(history.steps())
        done.append(step.__name__)
        step()
        history.check(done)
    history.table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert history.table.maintain.verify(depth="pages").findings == ()
    assert {status for what, status in between.answered if "POST" in what} <= {200, 204}


def test_an_append_goes_on_whatever_was_committed_and_the_rest_begins_again(
    root: Path, engines: Engines, between: Between
) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a'), (2, 'b')")

    def beside(number: int) -> Callable[[], object]:
        rows = pa.table({"id": [number], "s": ["native"]})
        return lambda: opened(root).append(rows)

    between.first = beside(10)
    engines.sql("INSERT INTO lake.tables.t VALUES (3, 'c')")
    between.first = beside(11)
    engines("pyiceberg", "append", "tables.t", [{"id": 4, "s": "d"}])
    assert [r["id"] for r in rows(opened(root))] == [1, 2, 3, 4, 10, 11]
    # What was read may have changed: DuckDB gives up, pyiceberg reads again.
    for statement in ("DELETE FROM lake.tables.t WHERE id = 1", "UPDATE lake.tables.t SET s = 'x'"):
        between.first = beside(12)
        refused = engines.ask("duckdb", statement)
        assert "409" in refused["error"], refused
    assert [r["id"] for r in rows(opened(root))] == [1, 2, 3, 4, 10, 11, 12, 12]
    assert {r["s"] for r in rows(opened(root))} == {"a", "b", "c", "d", "native"}
    assert between.answered.count(("POST /v1/transactions/commit", 409)) == 2


def test_columns_properties_and_names_of_an_engine_are_the_tables(
    root: Path, engines: Engines
) -> None:
    engines("pyiceberg", "create", "tables.t", {"id": "int64", "s": "string"})
    engines("pyiceberg", "append", "tables.t", [{"id": 1, "s": "a"}])
    engines("pyiceberg", "add", "tables.t", "n")
    engines("pyiceberg", "rename", "tables.t", "s", "text")
    engines("pyiceberg", "append", "tables.t", [{"id": 2, "text": "b", "n": 7}])
    engines("pyiceberg", "set", "tables.t", {"owner": "me"})
    [snapshot] = engines("pyiceberg", "snapshot", "tables.t")
    [properties] = engines("pyiceberg", "properties", "tables.t")
    assert properties["owner"] == "me" and opened(root).properties["iceberg.owner"] == "me"
    assert snapshot > 2**32 or snapshot == opened(root).version
    assert rows(opened(root)) == [{"id": 1, "text": "a", "n": None}, {"id": 2, "text": "b", "n": 7}]
    assert engines.sql("FROM lake.tables.t ORDER BY id") == [[1, "a", None], [2, "b", 7]]
    engines("pyiceberg", "drop", "tables.t", "n")
    assert opened(root).schema.names == ["id", "text"]
    assert engines.ask("pyiceberg", "set", "tables.t", {"gc.enabled": "true"})["error"].count(
        "Inlay"
    )


def test_an_open_erasure_makes_the_table_read_only_to_engines_by_name(
    root: Path, engines: Engines
) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a'), (2, 'b')")
    opened(root).delete("id = 1", mode="erase", request_id="case-7")
    refused = engines.ask("duckdb", "INSERT INTO lake.tables.t VALUES (3, 'c')")
    assert "case-7" in refused["error"]
    assert [r["id"] for r in rows(opened(root))] == [2]


def test_statements_of_duckdb_around_rows(root: Path, engines: Engines, between: Between) -> None:
    """A table from a query, another column, two tables in one transaction, and the end of a table."""
    engines.sql("CREATE TABLE lake.tables.t AS SELECT i AS id, i % 3 AS g FROM range(1000) r(i)")
    table = opened(root)
    assert (table.version, table.count()) == (1, 1000), "with its rows, in one commit"
    engines.sql("ALTER TABLE lake.tables.t ADD COLUMN s VARCHAR")
    engines.sql("INSERT INTO lake.tables.t VALUES (1000, 1, 'x')")
    assert opened(root).count(where="s = 'x'") == 1
    engines.sql("CREATE TABLE lake.tables.u (id BIGINT)")
    for statement in ("BEGIN", "INSERT INTO lake.tables.u VALUES (1)"):
        engines.sql(statement)
    engines.sql("INSERT INTO lake.tables.t VALUES (1001, 1, 'y')")
    between.bodies.clear()
    engines.sql("COMMIT")
    assert between.answered.count(("POST /v1/transactions/commit", 204)) >= 1
    assert (opened(root).count(), opened(root, "u").count()) == (1002, 1), "both of the two"
    both = [json.loads(b) for p, b in between.bodies if b"table-changes" in b][-1]
    assert len(both["table-changes"]) == 2
    # Sent again, it is what it was.
    again = between.catalog.answer("POST", "/v1/transactions/commit", "", json.dumps(both).encode())
    assert again.status == 204
    assert (opened(root).count(), opened(root, "u").count()) == (1002, 1)
    # Others came first on one table: neither has it, and the engine is told.
    for statement in ("BEGIN", "INSERT INTO lake.tables.u VALUES (2)"):
        engines.sql(statement)
    engines.sql("DELETE FROM lake.tables.t WHERE id = 1001")
    between.first = lambda: opened(root).append(pa.table({"id": [7], "g": [7], "s": ["z"]}))
    assert "error" in engines.ask("duckdb", "COMMIT")
    assert ("POST /v1/transactions/commit", 409) in between.answered
    assert (opened(root).count(), opened(root, "u").count()) == (1003, 1)
    engines.sql("DROP TABLE lake.tables.u")
    with pytest.raises(TableNotFound):
        opened(root, "u")


def posted(catalog: Catalog, path: str, body: object) -> tuple[int, Any]:
    answer = catalog.answer("POST", f"/v1/namespaces/tables/{path}", "", json.dumps(body).encode())
    return answer.status, json.loads(answer.body or b"null")


def test_a_table_of_iceberg_is_registered_where_it_is(root: Path, tmp_path: Path) -> None:
    source = inlay.create(
        f"file://{tmp_path}/elsewhere", SCHEMA, properties={"publish.format": "v2"}
    )
    source.append(pa.table({"id": [1, 2], "s": ["a", "b"], "n": [1, 2]}))
    version = source.publish().version
    metadata = f"file://{tmp_path}/elsewhere/metadata/v{version}.metadata.json"
    catalog = catalog_of(f"file://{root}", write=True)
    status, said = posted(catalog, "register", {"name": "t", "metadata-location": metadata})
    assert status == 200 and said["metadata"]["location"] == f"file://{root}/t", said
    assert [r["id"] for r in rows(opened(root))] == [1, 2]
    status, said = posted(catalog, "register", {"name": "t", "metadata-location": metadata})
    assert (status, said["error"]["type"]) == (409, "AlreadyExistsException")


def test_a_key_that_an_engine_sets_is_held_to_the_rows(root: Path) -> None:
    """Another writer's statistics of it are compared, as where this library sets the key."""
    own = {"publish.format": "v2"}
    table = inlay.create(f"file://{root}/t", COLUMNS_SCHEMA, properties=own)
    (root.parent / "a.parquet").write_bytes(lying([(1, 7, 0)], "b"))
    table.ingest([f"file://{root.parent}/a.parquet"])
    table.publish()
    catalog = catalog_of(f"file://{root}", write=True)
    [schema] = json.loads(catalog.answer("GET", "/v1/namespaces/tables/tables/t").body)["metadata"][
        "schemas"
    ]
    updates = [
        {"action": "add-schema", "schema": {**schema, "identifier-field-ids": [2]}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    status, said = posted(catalog, "tables/t", {"requirements": [], "updates": updates})
    assert (status, said["error"]["type"]) == (400, "BadRequestException"), said
    assert opened(root).snapshot.primary_key == ()


@pytest.mark.parametrize("way", ["catalog", "by path"])
def test_a_file_that_lies_about_the_key_hides_no_row_whoever_commits_it(
    root: Path, way: str
) -> None:
    table = inlay.create(
        f"file://{root}/t", COLUMNS_SCHEMA, primary_key="b", properties={"publish.format": "v2"}
    )
    table.append(pa.table({"a": [1], "b": [1], "c": [1]}, COLUMNS_SCHEMA))
    table.publish()
    catalog = catalog_of(f"file://{root}", write=True)
    shown = json.loads(catalog.answer("GET", "/v1/namespaces/tables/tables/t").body)
    iceberg = Iceberg(shown["metadata-location"])
    (like, kind, spec), *_ = iceberg.data_files()
    file = iceberg.rows(pa.table({"a": [2], "b": [7], "c": [0]}, COLUMNS_SCHEMA), [1, 2, 3], like)
    place = Path(file["file_path"].removeprefix("file://"))
    body = belied(place.read_bytes(), "b")
    place.write_bytes(body)
    bounds = {"null_value_counts": None, "lower_bounds": None, "upper_bounds": None}
    iceberg.add_deletes(
        [({**file, **bounds, "file_size_in_bytes": len(body)}, kind, spec)], "append"
    )
    snapshot = iceberg.snapshot
    if way == "catalog":
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {**moved, "snapshot-id": snapshot["snapshot-id"]},
        ]
        status, said = posted(catalog, "tables/t", {"requirements": [], "updates": updates})
        assert status == 200, said
    else:
        number = max(int(p.name[1:].split(".")[0]) for p in (root / "t/metadata").glob("v*.json"))
        iceberg.found |= {
            "current-snapshot-id": snapshot["snapshot-id"],
            "last-sequence-number": snapshot["sequence-number"],
        }
        iceberg.found["refs"]["main"]["snapshot-id"] = snapshot["snapshot-id"]
        written = Path(iceberg.write().removeprefix("file://"))
        written.rename(root / f"t/metadata/v{number + 1}.metadata.json")
        assert table.publish(take_over=True).published
    table = opened(root)
    assert sorted(r["b"] for r in table.scan().to_arrow().to_pylist()) == [1, 7]
    assert table.count(where="b = 7") == 1
    table.upsert(pa.table({"a": [3], "b": [7], "c": [3]}, COLUMNS_SCHEMA))
    assert table.count() == 2
    table.delete(keys={"b": [7]})
    assert [r["b"] for r in opened(root).scan().to_arrow().to_pylist()] == [1]


class Deleting:
    """A published table, and commits to it of delete files that DuckDB and pyiceberg do not write."""

    def __init__(self, root: Path, *partition_by: str, form: str = "v2") -> None:
        self.root, self.catalog = root, catalog_of(f"file://{root}", write=True)
        table = inlay.create(
            f"file://{root}/t",
            SCHEMA,
            partition_by=partition_by,
            properties={"publish.format": form},
        )
        made = [{"id": n, "s": "ab"[n % 2] if n else None, "n": n % 3} for n in range(9)]
        table.append(pa.Table.from_pylist(made, SCHEMA))
        table.publish()

    def shown(self, table: str = "t") -> Any:
        return json.loads(self.catalog.answer("GET", f"/v1/namespaces/tables/tables/{table}").body)

    def iceberg(self) -> Iceberg:
        return Iceberg(self.shown()["metadata-location"].removeprefix("file://"))

    def commit(self, iceberg: Iceberg, deletes: list[tuple[Any, Any, int]]) -> tuple[int, Any]:
        iceberg.add_deletes(deletes)
        return self.post(iceberg.snapshot)

    def post(self, *snapshots: Any) -> tuple[int, Any]:
        """The last is the newest."""
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        updates = [
            *({"action": "add-snapshot", "snapshot": each} for each in snapshots),
            {**moved, "snapshot-id": snapshots[-1]["snapshot-id"]},
        ]
        return posted(self.catalog, "tables/t", {"requirements": [], "updates": updates})

    def ids(self) -> list[int]:
        return [r["id"] for r in rows(opened(self.root))]


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_deletes_by_equal_keys_hit_what_is_older_in_their_partition(root: Path, form: str) -> None:
    of = Deleting(root, "s", form=form)
    iceberg = of.iceberg()
    [(like, kind, spec)] = [
        f for f in iceberg.data_files() if list(f[0]["partition"].values()) == ["a"]
    ]
    gone = iceberg.keys(pa.table({"n": pa.array([2], pa.int64())}), [3], like)
    status, said = of.commit(iceberg, [(gone, kind, spec)])
    assert status == 200, said
    # Of n = 2 are 2, 5, 8; the partition "a" has the even ones but 0.
    assert of.ids() == [0, 1, 3, 4, 5, 6, 7]
    newer = pa.Table.from_pylist([{"id": 20, "s": "a", "n": 2}], SCHEMA)
    opened(root).append(newer)
    assert of.ids() == [0, 1, 3, 4, 5, 6, 7, 20]


def test_deletes_by_equal_keys_without_partitions_and_by_position(root: Path) -> None:
    of = Deleting(root)
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    keys = iceberg.keys(pa.table({"id": pa.array([3, 99], pa.int64())}), [1], like)
    first = iceberg.positions({like["file_path"]: [0, 4]}, like)
    status, said = of.commit(iceberg, [(keys, kind, spec), (first, kind, spec)])
    assert status == 200, said
    assert of.ids() == [1, 2, 5, 6, 7, 8]
    # The next one has what is published now beside its own.
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    second = iceberg.positions({like["file_path"]: [8]}, like)
    assert of.commit(iceberg, [(second, kind, spec)])[0] == 200
    assert of.ids() == [1, 2, 5, 6, 7]


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_each_delete_of_one_file_is_one_commit_with_its_publication(root: Path, form: str) -> None:
    """The vector that the file has becomes part of the next one: nothing is left to settle. Only the
    deleted rows are in the change feed, each once."""
    of = Deleting(root, form=form)
    gone: list[int] = []
    for at in ([0, 4], [8], [2, 3]):
        iceberg, table = of.iceberg(), opened(root)
        [(like, kind, spec)] = iceberg.data_files()
        deleted = iceberg.positions({like["file_path"]: at}, like)
        status, said = of.commit(iceberg, [(deleted, kind, spec)])
        assert status == 200, said
        gone += at
        now = opened(root)
        assert now.version == table.version + 1
        assert of.ids() == [n for n in range(9) if n not in gone]
        shown = read_table(f"file://{of.iceberg().metadata}")
        assert sorted(row["id"] for row in shown) == of.ids()
        changes = now.changes(table.version).to_arrow().to_pylist()
        assert sorted(row["id"] for row in changes) == at
        assert now.snapshot.totals.markers == 1


@pytest.mark.parametrize("form", ["v2", "v3"])
@pytest.mark.parametrize("how", ["kept", "stamped", "written again"])
def test_rows_that_come_and_go_within_a_commit_do_not_show(root: Path, form: str, how: str) -> None:
    """As Flink's upserts write them: of a key that comes twice before a checkpoint the earlier row is
    deleted by its position, and what the table had of it by its key, in one snapshot."""
    of = Deleting(root, form=form)
    names = [{"field-id": n, "names": [name]} for n, name in enumerate(SCHEMA.names, 1)]
    opened(root).set_properties(**{"iceberg.schema.name-mapping.default": json.dumps(names)})
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    made = [{"id": i, "s": s, "n": 0} for i, s in [(3, "x"), (20, "y"), (3, "z"), (21, "w")]]
    file = iceberg.rows(pa.Table.from_pylist(made, SCHEMA), [1, 2, 3], like)
    place = Path(file["file_path"].removeprefix("file://"))
    written = pq.read_table(place)
    if how == "stamped":  # read by the names of its columns
        bare = written.cast(pa.schema([f.remove_metadata() for f in written.schema]))
        pq.write_table(bare, place)
    elif how == "written again":  # without row ids of its own
        ids = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": str(ROW_ID)})
        pq.write_table(written.append_column(ids, [[7, 8, 9, 10]]), place)
    file["file_size_in_bytes"] = place.stat().st_size
    keys = iceberg.keys(pa.table({"id": pa.array([3, 20, 21], pa.int64())}), [1], like)
    twice = iceberg.positions({file["file_path"]: [0]}, like)
    status, said = of.commit(iceberg, [(each, kind, spec) for each in (file, keys, twice)])
    assert status == 200, said
    expected = {*range(9), 20, 21}
    assert of.ids() == sorted(expected)
    assert {r["id"]: r["s"] for r in rows(opened(root))}[3] == "z"
    assert (root / "t" / "data" / place.name).exists()
    live = {each.key for each in opened(root)._loaded.state.files()}
    assert any(key.endswith(place.name) for key in live) == (how == "kept")
    # A snapshot after it in one commit deletes rows that the first one brings.
    iceberg = of.iceberg()
    before = iceberg.data_files()
    more = pa.Table.from_pylist([{"id": i, "s": "v", "n": 5} for i in (30, 31, 32)], SCHEMA)
    file = iceberg.rows(more, [1, 2, 3], like)
    iceberg.add_deletes([(file, kind, spec)], "append")
    first = iceberg.snapshot
    keys = iceberg.keys(pa.table({"id": pa.array([21, 31], pa.int64())}), [1], like)
    at = iceberg.positions({file["file_path"]: [2], before[0][0]["file_path"]: [0]}, like)
    iceberg.add_deletes([(keys, kind, spec), (at, kind, spec)])
    status, said = of.post(first, iceberg.snapshot)
    assert status == 200, said
    assert len(of.ids()) == len(expected) + 3 - 4 and 30 in of.ids()
    assert not {21, 31, 32} & set(of.ids())
    assert opened(root).maintain.verify(depth="pages").errors == ()


@pytest.mark.parametrize("keys", [["s"], ["s", "n"], ["n", "s"]])
@pytest.mark.parametrize("place", ["catalog", "adopted"])
def test_deletes_by_keys_with_a_null_hit_rows_with_a_null(
    root: Path, keys: list[str], place: str
) -> None:
    """Of Iceberg's equality deletes NULL equals NULL; of Inlay's own keys it equals nothing."""
    of = Deleting(root)
    more = [{"id": 9, "s": None, "n": 1}, {"id": 10, "s": None, "n": None}]
    opened(root).append(pa.Table.from_pylist(more, SCHEMA))
    opened(root).publish()
    named = {"s": pa.array(["b", None, None], pa.string()), "n": pa.array([1, 0, None], pa.int64())}
    asked = pa.table({name: named[name] for name in keys})
    before = opened(root).scan().to_arrow().to_pylist()
    gone = {tuple(row[name] for name in keys) for row in asked.to_pylist()}
    kept = sorted(r["id"] for r in before if tuple(r[name] for name in keys) not in gone)
    iceberg = of.iceberg()
    like, kind, spec = iceberg.data_files()[0]
    ids = [SCHEMA.get_field_index(name) + 1 for name in keys]
    delete = (iceberg.keys(asked, ids, like), kind, spec)
    if place == "catalog":
        status, said = of.commit(iceberg, [delete])
        assert status == 200, said
        assert of.ids() == kept != sorted(r["id"] for r in before)
        return
    iceberg.add_deletes([delete])
    adopted = inlay.adopt(iceberg.write(), f"file://{root}/adopted")
    assert sorted(r["id"] for r in adopted.scan().to_arrow().to_pylist()) == kept


def test_deletes_are_not_taken_back_and_other_places_not_read(root: Path) -> None:
    of = Deleting(root)
    before = of.iceberg().snapshot
    opened(root).delete("id < 3")
    now = of.iceberg().snapshot
    back = {**before, "snapshot-id": 77, "parent-snapshot-id": now["snapshot-id"]}
    status, said = of.post(back)
    assert status == 400 and "shown again" in said["error"]["message"], said
    (root / "other.avro").write_bytes(Path(now["manifest-list"][7:]).read_bytes())
    for place in (f"file://{root}/other.avro", f"file://{root}/t/../other.avro", "s3://b/m.avro"):
        status, said = of.post({**back, "snapshot-id": 78, "manifest-list": place})
        assert status in (400, 403), (place, said)
    assert of.ids() == [3, 4, 5, 6, 7, 8]


class Persons:
    """A table of persons that engines write, one of whom is to be erased: in data files, partitions and so
    names of files, files of deletes, manifests of commits and of such as were refused, on branches, and in
    what was published. `sql` asks Spark, where it is there."""

    def __init__(
        self,
        root: Path,
        engines: Engines,
        between: Between,
        seed: int,
        sql: Callable[[str], Any] | None = None,
    ) -> None:
        self.root, self.engines, self.between = root, engines, between
        self.dice, self.sql = random.Random(seed), sql
        self.kept: set[int] = set()
        self.next = 0
        by = self.dice.choice([[], ["s"], ["truncate(20, s)"], ["bucket(2, id)"]])
        form = self.dice.choice(["v2", "v3"])
        mode = self.dice.choice(["copy-on-write", "merge-on-read"])
        modes = {f"iceberg.write.{what}.mode": mode for what in ("delete", "update", "merge")}
        inlay.create(
            f"file://{root}/t",
            SCHEMA,
            partition_by=by,
            properties={"publish.format": form, "write.compression": "none", **modes},
        ).publish()

    @property
    def table(self) -> Table:
        return opened(self.root)

    def new(self) -> list[Row]:
        made = [
            {"id": self.next + n, "s": s, "n": n} for n, s in enumerate([SECRET, "a", SECRET, "b"])
        ]
        self.next += len(made)
        return self.dice.sample(made, self.dice.randint(1, 4))

    def keep(self, made: list[Row]) -> None:
        self.kept |= {row["id"] for row in made if row["s"] != SECRET}

    def values(self, made: list[Row]) -> str:
        return ", ".join(f"({r['id']}, '{r['s']}', {r['n']})" for r in made)

    def statement(self) -> tuple[Any, ...]:
        """One of an engine, and what it does to the other persons' rows."""
        made, at = self.new(), self.dice.randrange(self.next)
        gone = set(range(at, at + 3))
        engine = self.dice.choice(["duckdb", "spark"] if self.sql else ["duckdb"])
        match self.dice.randrange(6):
            case 0 | 1:
                return engine, f"INSERT INTO lake.tables.t VALUES {self.values(made)}", made, set()
            case 2:
                return "pyiceberg", "append", made, made, set()
            case 3:
                where = f"id >= {at} AND id < {at + 3}"
                return engine, f"DELETE FROM lake.tables.t WHERE {where}", [], gone
            case 4:
                return engine, f"UPDATE lake.tables.t SET n = n + 1 WHERE id <= {at}", [], set()
            case _:
                return "pyiceberg", "delete", f"id >= {at} and id < {at + 3}", [], gone

    def ask(self, *asked: Any) -> Any:
        match asked:
            case ("spark", statement):
                assert self.sql is not None
                return self.sql(statement)
            case ("duckdb", statement):
                return self.engines.ask("duckdb", statement)
            case (engine, verb, given):
                return self.engines.ask(engine, verb, "tables.t", given)

    def step(self) -> None:
        match self.dice.randrange(8):
            case 0:  # a commit that is refused: what was written for it is garbage
                self.between.first = _kept_back
                *asked, _, _ = self.statement()
                self.ask(*asked)
                self.between.first = None
            case 1:
                made = self.new()
                self.table.append(pa.Table.from_pylist(made, SCHEMA))
                self.keep(made)
            case 2:
                self.table.maintain.compact()
            case 3:
                name = f"b{self.next}"
                self.engines("pyiceberg", "branch", "tables.t", name)
                self.engines.ask("pyiceberg", "append", "tables.t", self.new(), name)
            case _:
                *asked, made, gone = self.statement()
                answer = self.ask(*asked)
                if isinstance(answer, dict):
                    assert any(known in answer["error"] for known in CANNOT), (asked, answer)
                else:
                    self.keep(made)
                    self.kept -= gone

    def erase(self) -> None:
        table = self.table
        table.delete(f"s = '{SECRET}'", mode="erase", request_id="case-9")
        finish(table)
        assert table.refresh().snapshot.erasures == ()
        assert found(self.root) == []
        named = [p for p in self.root.rglob("*") if SECRET in p.name]
        if self.between.stopped:  # DuckDB then deletes its files itself, and leaves their folders
            named = [p for p in named if p.is_file() or any(p.iterdir())]
        assert not named
        expected = sorted(self.kept)
        assert [row["id"] for row in rows(table)] == expected
        shown = self.engines.sql("SELECT id FROM lake.tables.t ORDER BY id")
        assert [i for [i] in shown] == expected


# What pyiceberg and DuckDB do not write.
CANNOT = ("manifest for table version: 3", "only supports merge-on-read")


def _kept_back() -> None:
    raise AccessDenied("kept back")


@pytest.mark.parametrize("seed", range(6))
def test_no_byte_that_engines_wrote_of_a_person_is_left_after_an_erasure(
    root: Path, engines: Engines, between: Between, seed: int
) -> None:
    persons = Persons(root, engines, between, seed)
    for _ in range(8):
        persons.step()
    persons.erase()


@pytest.fixture
def second(root: Path) -> Iterator[str]:
    """Another catalog of the same tables."""
    yield from served(catalog_of(f"file://{root}", write=True))


def test_two_engines_by_two_catalogs_and_a_native_writer_lose_and_double_nothing(
    root: Path, second: str, engines: Engines, engines_python: Path
) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    other = Engines(engines_python, second)

    def by_duckdb() -> None:
        for n in range(100, 106):
            engines.sql(f"INSERT INTO lake.tables.t VALUES ({n}, 'duckdb')")

    def by_pyiceberg() -> None:
        for n in range(200, 206):
            other("pyiceberg", "append", "tables.t", [{"id": n, "s": "pyiceberg"}])

    def by_inlay() -> None:
        for n in range(300, 306):
            opened(root).append(pa.table({"id": [n], "s": ["inlay"]}))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write) for write in (by_duckdb, by_pyiceberg, by_inlay)]:
            done.result()
    other.close()
    expected = [*range(100, 106), *range(200, 206), *range(300, 306)]
    assert [r["id"] for r in rows(opened(root))] == expected
    assert [i for [i] in engines.sql("SELECT id FROM lake.tables.t ORDER BY id")] == expected


def recorded_commit(
    root: Path, engines: Engines, between: Between, statement: str
) -> tuple[str, bytes, Path]:
    """A commit of DuckDB's that did not reach the table, and a copy of everything as it was then."""
    saved = root.parent / "saved"

    def stop() -> None:
        shutil.copytree(root, saved)
        raise AccessDenied("kept back")

    between.first = stop
    assert "error" in engines.ask("duckdb", statement)
    return *between.stopped[-1], saved


def recorded_insert(root: Path, engines: Engines, between: Between) -> tuple[str, bytes]:
    """An insert of one file that did not reach its table, with everything there that it takes."""
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a')")
    path, body, saved = recorded_commit(
        root, engines, between, "INSERT INTO lake.tables.t VALUES (2, 'b')"
    )
    shutil.rmtree(root)  # DuckDB has deleted its files
    shutil.copytree(saved, root)
    return path, body


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
def test_a_catalog_killed_at_any_write_of_a_commit_has_it_once_when_it_is_sent_again(
    root: Path, engines: Engines, between: Between, landed: bool
) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t SELECT i, 'a' FROM range(20) r(i)")
    statement = "DELETE FROM lake.tables.t WHERE id % 3 = 0"
    path, body, saved = recorded_commit(root, engines, between, statement)
    expected = [i for i in range(20) if i % 3]

    def dying(wanted: int) -> tuple[Catalog, list[Dying]]:
        def kill(n: int, key: str) -> None:
            if n == wanted:
                raise Killed(key)

        stores: list[Dying] = []

        def context(table: str) -> Context:
            ctx = connect(f"file://{root}/{table}")
            stores.append(Dying(ctx.store, **{"after" if landed else "before": kill}))
            return replace(ctx, store=stores[-1])

        return replace(between.catalog, writes=TableWrites(context)), stores

    for n in range(1, 30):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        catalog, stores = dying(n)
        with suppress(Killed):  # once it is committed, a failure is no refusal
            assert catalog.answer("POST", path, "", body, {}).status in (204, 500)
        versions = opened(root).version
        assert between.catalog.answer("POST", path, "", body, {}).status == 204, n
        assert [r["id"] for r in rows(opened(root))] == expected, n
        assert opened(root).version - versions in (0, 1), n
        shown = engines.sql("SELECT id FROM lake.tables.t ORDER BY id")
        assert [i for [i] in shown] == expected, n
        if stores[0].puts < n:
            return
    raise AssertionError("a commit of more than 30 writes")


def test_what_the_ledger_has_forgotten_is_answered_by_what_is_published(
    root: Path, engines: Engines, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = recorded_insert(root, engines, between)
    assert between.catalog.answer("POST", path, "", body, {}).status == 204
    version = opened(root).version
    monkeypatch.setattr(commit_module, "already_applied", lambda ctx, loaded, named: (loaded, None))
    assert between.catalog.answer("POST", path, "", body, {}).status == 204
    assert opened(root).version == version


def test_an_insert_of_one_file_costs_the_catalog_eleven_gets_and_six_puts(
    root: Path, engines: Engines, between: Between
) -> None:
    path, body = recorded_insert(root, engines, between)
    meter = Meter()

    def context(table: str) -> Context:
        ctx = connect(f"file://{root}/{table}")
        return replace(ctx, store=MeteredStore(ctx.store, meter))

    catalog = replace(between.catalog, writes=TableWrites(context))
    assert catalog.answer("GET", "/v1/namespaces/tables/tables/t", "", b"", {}).status == 200
    loaded = meter.snapshot()
    assert loaded.requests == {"get": 2}
    assert catalog.answer("POST", path, "", body, {}).status == 204
    assert (meter.snapshot() - loaded).requests == {"get": 9, "put": 6}


def test_what_an_engine_says_of_its_rows_is_not_what_is_published(
    root: Path, engines: Engines
) -> None:
    """So its manifest cannot be a publication's: that of DuckDB bounds doubles beside a NaN, and a reader
    that believes it leaves the file out."""
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, x DOUBLE)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 1.5), (2, 'NaN'::DOUBLE)")
    folder = root / "t" / "metadata"

    def bounded(path: Path) -> set[int]:
        [entry] = decode_avro(path.read_bytes()).records
        return {bound["key"] for bound in entry["data_file"]["upper_bounds"] or ()}

    [published] = folder.glob("inlay-m-*.avro")
    [theirs] = folder.glob("*-m0.avro")
    assert (bounded(theirs), bounded(published)) == ({1, 2}, {1})
    assert engines.sql("SELECT id FROM lake.tables.t WHERE x > 100") == [[2]]


def test_a_query_of_duckdb_sees_what_was_committed_before_it_though_it_asks_first(
    root: Path, engines: Engines
) -> None:
    """What is published for it has deletes that are settled only then."""
    of = Deleting(root)
    left = list(range(9))
    for n in (4, 1, 7):
        opened(root).delete(f"id = {n}", mode="tombstone")
        left.remove(n)
        assert engines.sql("SELECT id FROM lake.tables.t ORDER BY id") == [[i] for i in left]
    assert of.ids() == left


def test_an_append_goes_on_though_others_commit_as_fast_as_it_is_published(root: Path) -> None:
    """And though what it began on is no longer shown. What has read the table begins again."""
    of = Deleting(root)
    old = [of.iceberg(), of.iceberg()]
    native = iter(range(100, 1_000))
    store = of.catalog.writes

    def append() -> None:
        row = {"id": next(native), "s": "m", "n": 0}
        opened(root).append(pa.Table.from_pylist([row], SCHEMA))

    def race(n: int, key: str) -> None:
        if key.endswith("metadata/latest.json"):
            append()

    def context(table: str) -> Context:
        ctx = connect(f"file://{root}/{table}")
        return replace(ctx, store=Dying(ctx.store, after=race))

    def file_of(iceberg: Iceberg, id: int) -> tuple[Any, Any, int]:
        [(like, kind, spec)] = iceberg.data_files()
        made = pa.Table.from_pylist([{"id": id, "s": "e", "n": 0}], SCHEMA)
        return iceberg.rows(made, [1, 2, 3], like), kind, spec

    of.catalog = replace(of.catalog, writes=TableWrites(context))
    before = of.ids()
    old[0].add_deletes([file_of(old[0], 50)], "append")
    append()
    status, said = of.post(old[0].snapshot)
    assert status == 200, said
    of.catalog = replace(of.catalog, writes=store)
    for _ in range(12):
        append()
        opened(root).publish()
    known = {s["snapshot-id"] for s in of.iceberg().found["snapshots"]}
    assert old[1].snapshot["snapshot-id"] not in known
    [(like, kind, spec)] = old[1].data_files()
    gone = old[1].positions({like["file_path"]: [0]}, like)
    late = Iceberg(old[1].metadata)
    late.add_deletes([file_of(late, 51)], "append")
    status, said = of.post({**late.snapshot, "snapshot-id": 51})
    assert status == 200, said
    assert set(of.ids()) == {*before, 50, 51, *range(100, next(native))}
    old[1].add_deletes([(gone, kind, spec)])
    assert of.post({**old[1].snapshot, "snapshot-id": 52})[0] == 409
    assert 0 in of.ids()


@pytest.mark.parametrize("inline", [True, False])
def test_a_file_that_the_table_has_or_that_lies_elsewhere_is_not_added(
    root: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be there twice; and what lies elsewhere is neither collected nor erased."""
    if not inline:  # entries are in leaves
        monkeypatch.setattr(apply_module, "POINTER_TARGET_BYTES", 500)
        monkeypatch.setattr(apply_module, "INLINE_MIN_BYTES", 100)
    of = Deleting(root)
    before = of.ids()

    def added(place: str | None = None, record: Any = None) -> tuple[Any, tuple[int, Any]]:
        iceberg = of.iceberg()
        (like, kind, spec), *_ = iceberg.data_files()
        made = pa.Table.from_pylist([{"id": 50, "s": "a", "n": 0}], SCHEMA)
        if record is None:
            record = iceberg.rows(made, [1, 2, 3], like)
        if place is not None:
            path = root / "t" / place
            path.parent.mkdir(exist_ok=True)
            shutil.copy(record["file_path"].removeprefix("file://"), path)
            record = {**record, "file_path": f"file://{path}"}
        iceberg.add_deletes([(record, kind, spec)], "append")
        return record, of.post({**iceberg.snapshot, "snapshot-id": secrets.randbits(62)})

    for place in ("x.parquet", "metadata/x.parquet", "tombstone/x.parquet", "mine/x.parquet"):
        _, (status, said) = added(place)
        assert status == 400 and "outside of data/" in said["error"]["message"], (place, said)
    assert of.ids() == before
    record, (status, said) = added()
    assert status == 200, said
    assert (apply_module.POINTER_TARGET_BYTES == 500) == bool(
        opened(root).snapshot.files.segments
    ), "what is tested is there"
    _, (status, said) = added(record=record)
    assert status == 400 and "has already" in said["error"]["message"]
    # Engines end a location at these characters.
    _, (status, said) = added("data/x#y?.parquet")
    assert status == 200, said
    assert all("#" not in f["file_path"] for f, _, _ in of.iceberg().data_files())
    assert of.ids() == [*before, 50, 50]
    assert opened(root).maintain.verify(depth="pages").errors == ()


class Racing:
    """A table, and commits of one file under different snapshot ids. `between` runs once, as the pointer is
    about to be swapped by the next commit of the catalog."""

    def __init__(
        self, root: Path, values: type[float] | type[int], value: int = 2, *key: str
    ) -> None:
        # A file of floats is copied, for its bounds; one of whole numbers is the table's own where it lies.
        self.root, self.schema = root, pa.schema([("x", pa.from_numpy_dtype(values))])
        self.between: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None
        if value == 2:
            table = inlay.create(
                f"file://{root}/t",
                self.schema,
                primary_key=key,
                properties={"publish.format": "v2"},
            )
            table.append(pa.table({"x": [values(1)]}, self.schema))
            table.publish()
        self.catalog = replace(
            catalog_of(f"file://{root}", write=True), writes=TableWrites(self.context)
        )
        shown = json.loads(self.catalog.answer("GET", "/v1/namespaces/tables/tables/t").body)
        self.metadata = shown["metadata-location"].removeprefix("file://")
        iceberg = Iceberg(self.metadata)
        (like, self.kind, self.spec), *_ = iceberg.data_files()
        self.file = iceberg.rows(pa.table({"x": [values(value)]}, self.schema), [1], like)
        self.last = value * 100

    def context(self, table: str) -> Context:
        ctx = connect(f"file://{self.root}/{table}")
        return replace(ctx, store=Dying(ctx.store, before=self._before, after=self._after))

    def _before(self, n: int, key: str) -> None:
        if key.endswith("_latest_manifest") and self.between is not None:
            between, self.between = self.between, None
            between()

    def _after(self, n: int, key: str) -> None:
        if key.endswith("_latest_manifest") and self.after is not None:
            after, self.after = self.after, None
            after()

    def shown(self) -> Any:
        found = self.catalog.answer("GET", "/v1/namespaces/tables/tables/t")
        return json.loads(found.body)["metadata"]

    def at(self, shown: Any, snapshot_id: int) -> list[Any]:
        """What a reader of Iceberg's has at a snapshot."""
        place = self.root / "at.metadata.json"
        place.write_text(json.dumps({**shown, "current-snapshot-id": snapshot_id}))
        return sorted(r["x"] for r in read_table(f"file://{place}"))

    def snapshot(self) -> Any:
        """A commit of the file on what was published at first, under an id of its own."""
        iceberg = Iceberg(self.metadata)
        iceberg.add_deletes([(self.file, self.kind, self.spec)], "append")
        self.last += 1
        return {**iceberg.snapshot, "snapshot-id": self.last}

    def change(self) -> Any:
        snapshot = self.snapshot()
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {**moved, "snapshot-id": snapshot["snapshot-id"]},
        ]
        return {"requirements": [], "updates": updates}

    def commit(self, again: bool = False) -> str:
        self.body = self.body if again else self.change()
        status, said = posted(self.catalog, "tables/t", self.body)
        return "ok" if status == 200 else f"{status} {said['error']['message']}"

    def take_over(self) -> str:
        iceberg = Iceberg(self.metadata)
        snapshot = self.snapshot()
        iceberg.found["snapshots"].append(snapshot)
        iceberg.found |= {
            "current-snapshot-id": snapshot["snapshot-id"],
            "last-sequence-number": snapshot["sequence-number"],
            "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        }
        folder = self.root / "t/metadata"
        newest = max(int(p.name[1:].split(".")[0]) for p in folder.glob("v*.metadata.json"))
        place = Path(iceberg.write().removeprefix("file://"))
        place = place.rename(folder / f"v{newest + 1}.metadata.json")
        try:
            opened(self.root).publish(take_over=True)
            return "ok"
        except InlayError as error:
            place.unlink()
            return error.message

    def transaction(self) -> str:
        """With another table, which is not to change then."""
        if not (self.root / "u").exists():
            table = inlay.create(
                f"file://{self.root}/u", self.schema, properties={"publish.format": "v2"}
            )
            table.publish()
        owner = {"action": "set-properties", "updates": {"owner": str(self.last)}}
        changes = [
            {**self.change(), "identifier": {"namespace": ["tables"], "name": "t"}},
            {
                "requirements": [],
                "updates": [owner],
                "identifier": {"namespace": ["tables"], "name": "u"},
            },
        ]
        body = json.dumps({"table-changes": changes}).encode()
        answer = self.catalog.answer(
            "POST",
            "/v1/transactions/commit",
            "",
            body,
            {"idempotency-key": owner["updates"]["owner"]},
        )
        done = opened(self.root, "u").properties.get("iceberg.owner") == owner["updates"]["owner"]
        assert done == (answer.status == 204)
        return "ok" if done else f"{answer.status} {answer.body.decode()}"

    def ingest(self, adopt: bool = False) -> str:
        [outcome] = opened(self.root).ingest([self.file["file_path"]], adopt=adopt).outcomes
        return "ok" if outcome.state == "ingested" else str(outcome)

    def adopt(self) -> str:
        return self.ingest(adopt=True)


@pytest.mark.parametrize("values", [int, float])
@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize(
    ("how", "refused"),
    [
        ("engine", True),
        ("native", True),
        ("native beside", False),
        ("native then compacted", True),
        ("native then deleted", False),
        ("restored", True),
        ("older, compacted", False),
    ],
)
def test_an_append_to_a_table_with_a_key_comes_where_nobody_has_added_its_keys_since(
    root: Path, how: str, refused: bool, when: str, values: type[float] | type[int]
) -> None:
    """An upsert or a MERGE that found no row to change is an append to the catalog."""
    Racing(root, values, 2, "x")
    table = opened(root)

    def add(*numbers: int) -> None:
        opened(root).append(pa.table({"x": [values(n) for n in numbers]}, table.schema))

    if how == "restored":
        add(3)
        version = opened(root).version
        opened(root).delete("x = 3", mode="vector")
    if how == "older, compacted":
        add(-5, 9)
    opened(root).publish()
    of, other = Racing(root, values, 3), Racing(root, values, 3)
    other.last = 800

    def beside() -> None:
        match how:
            case "engine":
                assert other.commit() == "ok"
            case "restored":
                opened(root).refs.restore(version=version)
            case "native":
                add(-5, 3, 9)
            case "native beside":
                add(-5, 9)
            case "native then compacted":
                add(-5, 3, 9)
                assert opened(root).maintain.compact().version
            case "native then deleted":
                add(-5, 3, 9)
                opened(root).delete("x = 3")
            case "older, compacted":
                assert opened(root).maintain.compact().version

    if when == "between":
        of.between = beside
    else:
        beside()
    said = of.commit()
    assert said.startswith("409 ") and "keys of this commit" in said if refused else said == "ok"
    rows = [r["x"] for r in opened(root).scan().to_arrow().to_pylist()]
    assert rows.count(3) == rows.count(1) == 1
    # Begun again, it is what it says: whoever appends a key that is there has it twice.
    opened(root).publish()
    of = Racing(root, values, 3)
    of.last = 900
    assert of.commit() == "ok"
    assert opened(root).count(where="x = 3") == rows.count(3) + 1


@pytest.mark.parametrize("later", ["native", "engine", "deletes"])
@pytest.mark.parametrize("died", [False, True], ids=["lives", "dies"])
def test_a_snapshot_of_an_engine_is_shown_whoever_publishes_first(
    root: Path, later: str, died: bool
) -> None:
    """Between the commit of one catalog and its publication another one commits and publishes. A client
    that never got its answer looks for its snapshot in the table; what it began on is what it reads next.
    """
    of, other = Racing(root, int), Racing(root, int, value=3)

    def beside() -> None:
        if later == "native":
            opened(root).append(pa.table({"x": [7]}, of.schema))
        elif later == "deletes":
            opened(root).delete("x = 1")
        other.shown()
        if died:
            raise Killed("after the swap")

    def commit() -> None:
        of.after = beside
        with suppress(Killed):
            assert of.commit() == "ok"

    if later == "engine":  # it has begun before, and goes on upon the other's version
        other.between = commit
        assert other.commit() == "ok"
    else:
        commit()
    shown = other.shown()
    known = {s["snapshot-id"] for s in shown["snapshots"]}
    now = {"native": [1, 2, 7], "engine": [1, 2, 3], "deletes": [2]}[later]
    assert of.at(shown, shown["current-snapshot-id"]) == now
    assert sorted(r["x"] for r in opened(root).scan().to_arrow().to_pylist()) == now
    assert of.last in known and of.at(shown, of.last) == [1, 2]
    # Sent again, nothing happens; what is asserted of main is what was read last.
    version = opened(root).version
    assert of.commit(again=True) == "ok"
    assert opened(root).version == version
    owner = [{"action": "set-properties", "updates": {"owner": "me"}}]
    for snapshot_id in sorted(known, key=lambda n: n == shown["current-snapshot-id"]):
        said = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot_id}
        status, _ = posted(of.catalog, "tables/t", {"requirements": [said], "updates": owner})
        assert status == (200 if snapshot_id == shown["current-snapshot-id"] else 409)


@pytest.mark.parametrize("asserted", [True, False])
@pytest.mark.parametrize("edit", ["column", "partitions", "both"])
def test_rows_that_come_with_a_change_of_the_schema_are_not_lost_where_others_made_it_first(
    root: Path, edit: str, asserted: bool
) -> None:
    """Of two commits that make the same change and bring rows, the one that loses the race begins again:
    its rows are in the table, or it is told that the table is not what it asserted."""
    of = Racing(root, int)
    other = Racing(root, int, value=3)

    def wider(one: Racing) -> None:
        body = one.change()
        now = Iceberg(one.metadata).found
        [schema] = now["schemas"]
        column = {"id": 2, "name": "c", "type": "long", "required": False}
        updates: list[Any] = []
        if edit != "partitions":
            made = {**schema, "schema-id": 1, "fields": [*schema["fields"], column]}
            updates += [
                {"action": "add-schema", "schema": made},
                {"action": "set-current-schema", "schema-id": -1},
            ]
        if edit != "column":
            field = {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}
            updates += [
                {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
                {"action": "set-default-spec", "spec-id": -1},
            ]
        of_spec = {"type": "assert-default-spec-id", "default-spec-id": 0}
        of_schema = {"type": "assert-current-schema-id", "current-schema-id": 0}
        asked = [of_spec, of_schema] if asserted else []
        one.body = {"requirements": asked, "updates": [*updates, *body["updates"]]}

    wider(of)
    wider(other)
    answers: list[str] = []
    of.between = lambda: answers.append(other.commit(again=True))
    answers.append(of.commit(again=True))
    assert answers[0] == "ok" and answers[1][:3] == ("409" if asserted else "ok"), answers
    expected = [1, 3] if asserted else [1, 2, 3]
    assert sorted(r["x"] for r in opened(root).scan().to_arrow().to_pylist()) == expected
    shown = {s["snapshot-id"] for s in other.shown()["snapshots"]}
    assert other.last in shown and (of.last in shown) != asserted


def test_a_commit_whose_answer_has_no_metadata_does_not_fail_for_its_publication(
    root: Path,
) -> None:
    """DuckDB deletes the files of a commit that it takes for failed."""
    of = Racing(root, int)

    def refuse(n: int, key: str) -> None:
        if key.endswith(".metadata.json"):
            raise AccessDenied("no publishing today")

    def context(table: str) -> Context:
        ctx = connect(f"file://{root}/{table}")
        return replace(ctx, store=Dying(ctx.store, before=refuse))

    failing = replace(of.catalog, writes=TableWrites(context))
    asked = of.change()
    status, said = posted(failing, "tables/t", asked)
    assert (status, said["error"]["type"]) == (500, "CommitStateUnknownException"), said
    change = {**asked, "identifier": {"namespace": ["tables"], "name": "t"}}
    body = json.dumps({"table-changes": [change]}).encode()
    assert failing.answer("POST", "/v1/transactions/commit", "", body).status == 204
    shown = of.shown()
    assert of.last in {s["snapshot-id"] for s in shown["snapshots"]}
    assert sorted(r["x"] for r in opened(root).scan().to_arrow().to_pylist()) == [1, 2]


_WAYS = ("commit", "take_over", "transaction", "ingest", "adopt")


@pytest.mark.parametrize("values", [int, float], ids=["in place", "copied"])
@pytest.mark.parametrize("second", _WAYS)
@pytest.mark.parametrize("racing", [False, True], ids=["after", "racing"])
def test_a_file_comes_into_a_table_once_by_whatever_ways_and_names(
    root: Path, values: type[int] | type[float], second: str, racing: bool
) -> None:
    """Of two commits that bring one file under different snapshot ids one is refused by name, also where
    neither sees the other before it swaps; also where the first one's rows lie in another file by now."""
    of = Racing(root, values)
    answers = []
    if racing:
        of.between = lambda: answers.append(getattr(of, second)())
    answers.append(of.commit())
    if not racing:
        table = opened(root)
        table.append(pa.table({"x": [values(3)]}, of.schema))
        for _ in range(4):
            table.append(pa.table({"x": [values(3)]}, of.schema))
        table.maintain.compact()
        assert opened(root).snapshot.totals.files < 4
        answers.append(getattr(of, second)())
    got = [r["x"] for r in opened(root).scan().to_arrow().to_pylist()]
    assert sorted(got) == ([1, 2] if racing else [1, 2, *[3] * 5]), answers
    assert answers.count("ok") == 1, answers
    assert opened(root).maintain.verify(depth="pages").errors == ()


_NAMES = {"id": 1, "s": 2, "n": 3}


@pytest.mark.parametrize("mapped", [None, ("id", "s", "n"), ("id",), ("x",)])
@pytest.mark.parametrize("ids", [None, *product((1, 7), (2, 3, 8), (3, 2, 9))])
def test_no_column_of_an_engines_file_is_read_as_null(
    root: Path, ids: tuple[int, ...] | None, mapped: tuple[str, ...] | None
) -> None:
    """Whatever field ids its columns have, or by which names they are read: the values come in, under the
    id that they have, or the file is refused by name."""
    of = Deleting(root)
    if mapped is not None:
        listed = [{"field-id": _NAMES.get(name, 1), "names": [name]} for name in mapped]
        named = {"schema.name-mapping.default": json.dumps(listed)}
        updates = [{"action": "set-properties", "updates": named}]
        assert posted(of.catalog, "tables/t", {"requirements": [], "updates": updates})[0] == 200
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    made = pa.Table.from_pylist([{"id": 50, "s": "a", "n": 4}], SCHEMA)
    file = iceberg.rows(made, ids or (1, 2, 3), like)
    if ids is None:
        path = Path(file["file_path"].removeprefix("file://"))
        pq.write_table(made, path)
        file["file_size_in_bytes"] = path.stat().st_size
    iceberg.add_deletes([(file, kind, spec)], "append")
    status, said = of.post(iceberg.snapshot)
    [row] = [r for r in opened(root).scan().to_arrow().to_pylist() if r["n"] == 4] or [None]
    if ids in (None, (1, 2, 3)):
        given = _NAMES if ids else {name: n for name, n in _NAMES.items() if name in (mapped or ())}
        complete = len(given) == 3
    else:
        complete = False
    assert status == (200 if complete else 400), said
    assert row == ({"id": 50, "s": "a", "n": 4} if complete else None)
    assert of.ids() == [*range(9), *[50] * complete]


@pytest.mark.parametrize("checked", ["yes", "no"])
def test_damaged_pages_of_an_engines_file_are_found_where_the_table_asks_for_it(
    root: Path, checked: str
) -> None:
    of = Deleting(root)
    opened(root).set_properties({"ingest.check_pages": checked})
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    made = pa.Table.from_pylist([{"id": 50, "s": "a", "n": 4}], SCHEMA)
    file = iceberg.rows(made, (1, 2, 3), like)
    path = Path(file["file_path"].removeprefix("file://"))
    body = bytearray(path.read_bytes())
    body[4:60] = b"\xff" * 56
    path.write_bytes(body)
    iceberg.add_deletes([(file, kind, spec)], "append")
    status, said = of.post(iceberg.snapshot)
    assert status == (400 if checked == "yes" else 200), said
    findings = opened(root).maintain.verify(depth="pages").errors
    assert bool(findings) == (checked == "no")


@pytest.mark.parametrize(
    "field",
    [{"type": "timestamp_ns"}, {"type": "long", "initial-default": 5}],
    ids=["nanoseconds", "default"],
)
def test_columns_that_cannot_be_published_are_refused_before_they_are_committed(
    root: Path, field: dict[str, Any]
) -> None:
    of = Deleting(root)
    now = of.iceberg().found
    made = {"id": 4, "name": "x", "type": "long", "required": False, **field}
    known = now["schemas"][-1]
    updates = [
        {"action": "add-schema", "schema": {**known, "fields": [*known["fields"], made]}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    version = opened(root).version
    status, said = posted(of.catalog, "tables/t", {"requirements": [], "updates": updates})
    assert status == 400 and "Engines would not be shown" in said["error"]["message"], said
    create = {"name": "u", "schema": {"type": "struct", "fields": [made]}}
    status, said = posted(of.catalog, "tables", create)
    assert status == 400, said
    assert opened(root).version == version
    with pytest.raises(TableNotFound):
        opened(root, "u")


ROW_ID, LAST_UPDATED = 2147483540, 2147483539


@pytest.mark.parametrize("form", ["v2", "v3"])
def test_row_lineage_in_files_of_engines_is_understood_and_given_anew(
    root: Path, form: str
) -> None:
    """Readers prefer ids in files to those that the publication gives, which are of other rows then. So
    what is published has rows without them, in the engine's one commit, and no row id twice."""
    of = Deleting(root, form=form)
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    made = {"id": [20, 21], "s": ["x", None], "n": [1, 2]}
    types = [pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.int64()]
    made |= {"_row_id": [0, None], "_last_updated_sequence_number": [1, None]}
    rows_of = pa.table(
        [pa.array(v, t) for v, t in zip(made.values(), types, strict=True)], list(made)
    )
    file = iceberg.rows(rows_of, [1, 2, 3, ROW_ID, LAST_UPDATED], like)
    iceberg.add_deletes([(file, kind, spec)], "append")
    before = opened(root).version
    status, said = of.post(iceberg.snapshot)
    assert status == 200, said
    assert of.ids() == [*range(9), 20, 21]
    assert opened(root).version == before + 1
    given = []
    for path in of.iceberg().data_files():
        name = Path(path[0]["file_path"].removeprefix("file://"))
        ids = {int(f.metadata[b"PARQUET:field_id"]) for f in pq.read_schema(name)}
        assert not ids & {ROW_ID, LAST_UPDATED}, ids
        first, count = path[0].get("first_row_id"), path[0]["record_count"]
        given += [] if first is None else range(first, first + count)
    assert len(given) == len(set(given))
    assert {f.kind for f in opened(root).maintain.verify(depth="pages").findings} <= {"orphans"}


# -- tags and branches ----------------------------------------------------------------------------


class Native:
    """A table that Inlay has written, with three published versions, and requests that a test makes up."""

    def __init__(self, root: Path, form: str = "v3") -> None:
        self.root, self.catalog = root, catalog_of(f"file://{root}", write=True)
        table = inlay.create(f"file://{root}/t", SCHEMA, properties={"publish.format": form})
        self.versions = []
        for n in range(3):
            table.append(pa.table({"id": [n], "s": ["a"], "n": [n]}))
            table.publish()
            self.versions.append(table.version)

    def metadata(self) -> Any:
        answer = self.catalog.answer("GET", "/v1/namespaces/tables/tables/t")
        assert answer.status == 200, answer
        return json.loads(answer.body)["metadata"]

    def refs(self) -> dict[str, tuple[str, int]]:
        return {n: (r["type"], r["snapshot-id"]) for n, r in self.metadata()["refs"].items()}

    def post(self, *updates: Any, requirements: Any = ()) -> tuple[int, Any]:
        body = {"requirements": list(requirements), "updates": list(updates)}
        return posted(self.catalog, "tables/t", body)

    def set(self, name: str, snapshot: int, kind: str = "branch", **more: Any) -> tuple[int, Any]:
        ref = {"ref-name": name, "type": kind, "snapshot-id": snapshot, **more}
        return self.post({"action": "set-snapshot-ref", **ref})

    def ids(self, ref: str | None = None) -> list[int]:
        table = opened(self.root) if ref is None else inlay.open(f"file://{self.root}/t", ref=ref)
        return [r["id"] for r in rows(table)]


def test_tags_and_branches_of_an_engine_are_the_tables(root: Path) -> None:
    of = Native(root)
    first, second, _ = of.versions
    assert of.set("g", first, "tag")[0] == 200
    assert of.set("b", second)[0] == 200
    main = ("branch", of.metadata()["current-snapshot-id"])
    assert of.refs() == {"main": main, "g": ("tag", first), "b": ("branch", second)}
    assert (of.ids("g"), of.ids("b"), of.ids()) == ([0], [0, 1], [0, 1, 2])
    assert of.set("b", first)[0] == 200  # moved
    assert of.ids("b") == [0]
    drop = {"action": "remove-snapshot-ref", "ref-name": "b"}
    stale = {"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": second}
    assert of.post(drop, requirements=[stale])[0] == 409
    assert of.post(drop)[0] == 200
    assert set(of.refs()) == {"main", "g"}
    for name, version, kind, more, why in (
        ("g", first, "branch", {}, "'g' is no branch"),
        ("main", first, "tag", {}, "'main' is no tag"),
        ("x", 999, "tag", {}, "no snapshot 999"),
        ("x", first, "tag", {"max-ref-age-ms": 5}, "kept until it is dropped"),
        ("", first, "tag", {}, "name"),
    ):
        status, said = of.set(name, version, kind, **more)
        assert status == 400 and why in said["error"]["message"], said
    opened(root).refs.set_hold("g")
    status, said = of.post({"action": "remove-snapshot-ref", "ref-name": "g"})
    assert status == 400 and "legal hold" in said["error"]["message"]


def test_main_is_set_back_by_an_engine_and_snapshots_leave_the_publication_only(root: Path) -> None:
    of = Native(root)
    first, second, third = of.versions
    status, said = of.post({"action": "remove-snapshots", "snapshot-ids": [third]})
    assert status == 400 and "of 'main'" in said["error"]["message"]
    assert of.set("main", second)[0] == 200
    assert of.ids() == [0, 1]
    assert of.metadata()["current-snapshot-id"] == opened(root).version
    gone = {"action": "remove-snapshots", "snapshot-ids": [first, third]}
    assert of.post(gone)[0] == 200
    shown = {s["snapshot-id"] for s in of.metadata()["snapshots"]}
    assert second in shown and not shown & {first, third}
    assert [r["id"] for r in rows(inlay.open(f"file://{root}/t", version=third))] == [0, 1, 2]
    assert opened(root).maintain.verify(depth="pages").findings == ()
    status, said = of.set("main", first)
    assert status == 400 and "no snapshot" in said["error"]["message"]
    staged = {**of.metadata()["snapshots"][0], "snapshot-id": 77}
    status, said = of.post({"action": "add-snapshot", "snapshot": staged})
    assert status == 400 and "not staged" in said["error"]["message"]


def test_a_table_that_is_replaced_by_an_empty_one_has_other_columns_and_partitions(
    root: Path,
) -> None:
    inlay.create(
        f"file://{root}/t",
        SCHEMA,
        partition_by=["bucket(3, n)"],
        properties={"publish.format": "v2"},
    ).append(pa.table({"id": [1], "s": ["a"], "n": [5]}))
    opened(root).publish()
    catalog = catalog_of(f"file://{root}", write=True)
    field = {"id": 4, "name": "x", "type": "long", "required": False}
    spec = [{"source-id": 4, "field-id": 1001, "name": "x_b", "transform": "bucket[2]"}]
    updates = [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [field]}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": spec}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    status, said = posted(catalog, "tables/t", {"requirements": [], "updates": updates})
    assert status == 200, said
    table = opened(root)
    assert table.schema.names == ["x"] and table.scan().to_arrow().num_rows == 0
    table.append(pa.table({"x": [1, 2]}))
    assert sorted(table.scan().to_arrow()["x"].to_pylist()) == [1, 2]


def test_what_engines_and_inlay_write_to_a_branch_is_published_as_the_branch(
    root: Path, engines: Engines, between: Between
) -> None:
    between.twice = True
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a'), (2, 'b')")
    engines("pyiceberg", "branch", "tables.t", "b")
    engines("pyiceberg", "append", "tables.t", [{"id": 3, "s": "c"}], "b")
    engines("pyiceberg", "append", "tables.t", [{"id": 4, "s": "d"}])
    native = inlay.open(f"file://{root}/t", ref="b")
    native.append(pa.table({"id": [5], "s": ["e"]}))
    native.delete("id = 1 or id = 3 and s <> 'x'")

    def of_branch(name: str = "b") -> list[int]:
        found = engines("pyiceberg", "scan", "tables.t", name)
        ours = rows(inlay.open(f"file://{root}/t", ref=name))
        assert sorted(found, key=lambda r: r["id"]) == ours
        return [r["id"] for r in ours]

    assert of_branch() == [2, 5]
    engines("pyiceberg", "append", "tables.t", [{"id": 6, "s": "f"}], "b")
    assert of_branch() == [2, 5, 6]
    assert [i for [i] in engines.sql("SELECT id FROM lake.tables.t ORDER BY id")] == [1, 2, 4]
    inlay.open(f"file://{root}/t", ref="b").maintain.compact()
    opened(root).append(pa.table({"id": [7], "s": ["g"]}))
    opened(root).publish(rebuild=True)
    assert of_branch() == [2, 5, 6]
    # A branch with other columns than main is not published: engines would read it by those of main.
    engines("pyiceberg", "add", "tables.t", "n")
    assert "b" not in json.loads((root / "t/metadata/latest.json").read_bytes())["metadata"]["refs"]
    opened(root).refs.drop("b")
    opened(root).maintain.verify()


def test_a_commit_to_a_branch_that_is_not_there_makes_it_in_one_commit(root: Path) -> None:
    of = Native(root)
    catalog = of.catalog
    iceberg = Iceberg(f"file://{root}/t/metadata/v{of.versions[-1]}.metadata.json")
    (like, kind, spec), *_ = iceberg.data_files()
    made = pa.table({"id": [9], "s": ["b"], "n": [9]}, SCHEMA)
    iceberg.add_deletes([(iceberg.rows(made, [1, 2, 3], like), kind, spec)], "append")
    snapshot = iceberg.snapshot
    absent = {"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None}
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {
            "action": "set-snapshot-ref",
            "ref-name": "b",
            "type": "branch",
            "snapshot-id": snapshot["snapshot-id"],
        },
    ]

    def racing(first: Callable[[], object]) -> Catalog:
        """Somebody commits before the catalog does."""
        once = [first]

        def race(n: int, key: str) -> None:
            if key.endswith("_latest_manifest") and once:
                once.pop()()

        def context(table: str) -> Context:
            ctx = connect(f"file://{root}/{table}")
            return replace(ctx, store=Dying(ctx.store, before=race))

        return replace(catalog, writes=TableWrites(context))

    # Another row on main: the branch begins on what the engine has seen.
    more = pa.table({"id": [50], "s": ["m"], "n": [50]}, SCHEMA)
    before = opened(root).version
    body = {"requirements": [absent], "updates": updates}
    status, said = posted(racing(lambda: opened(root).append(more)), "tables/t", body)
    assert status == 200, said
    assert opened(root).version == before + 2
    assert (of.ids("b"), of.ids()) == ([0, 1, 2, 9], [0, 1, 2, 50])
    assert of.refs()["b"] == ("branch", snapshot["snapshot-id"])
    assert posted(catalog, "tables/t", body)[0] == 200  # again
    assert opened(root).version == before + 2
    # Another one makes it first.
    of.post({"action": "remove-snapshot-ref", "ref-name": "b"})
    body = json.loads(json.dumps(body).replace(str(snapshot["snapshot-id"]), "7777"))
    status, _ = posted(racing(lambda: opened(root).refs.branch("b")), "tables/t", body)
    assert status == 409 and of.ids("b") == [0, 1, 2, 50]
    assert {f.kind for f in opened(root).maintain.verify(depth="pages").findings} <= {"orphans"}


def test_folders_that_engines_name_by_values_go_with_their_last_object(
    root: Path, engines: Engines
) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR) PARTITIONED BY (s)")
    engines.sql(f"INSERT INTO lake.tables.t VALUES (1, '{SECRET}'), (2, 'b'), (3, 'c')")
    data = root / "t" / "data"
    assert {p.name for p in data.iterdir()} == {f"s={SECRET}", "s=b", "s=c"}
    opened(root).delete("id = 2", mode="rewrite")
    opened(root).delete(f"s = '{SECRET}'", mode="erase", request_id="case-9")
    finish(opened(root))
    opened(root).maintain.expire(days=0, min_versions=1)
    finish(opened(root))
    assert [p.name for p in data.iterdir() if "=" in p.name] == ["s=c"]
    opened(root).delete("TRUE", mode="rewrite")
    opened(root).maintain.expire(days=0, min_versions=1)
    opened(root).publish()
    finish(opened(root))
    assert [p.name for p in data.iterdir() if "=" in p.name] == []
    assert data.is_dir(), "engines expect it to be there"


def test_an_erasure_reaches_what_was_published_of_a_branch(root: Path, engines: Engines) -> None:
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR)")
    engines.sql("INSERT INTO lake.tables.t VALUES (1, 'a')")
    engines("pyiceberg", "branch", "tables.t", "b")
    made = [{"id": 3, "s": SECRET}, {"id": 4, "s": "d"}]
    engines("pyiceberg", "append", "tables.t", made, "b")
    assert found(root)
    table = opened(root)
    table.delete(f"s = '{SECRET}'", mode="erase", request_id="case-9")
    table.publish()  # while it is open, no reader sees the row
    assert [r["id"] for r in engines("pyiceberg", "scan", "tables.t", "b")] == [1, 4]
    finish(table)
    assert found(root) == []
    assert [r["id"] for r in engines("pyiceberg", "scan", "tables.t", "b")] == [1, 4]


# -- bad requests ---------------------------------------------------------------------------------


def test_manifests_and_lists_that_are_not_right_are_refused_and_neighbours_go_on(
    root: Path, engines: Engines, between: Between
) -> None:
    """Cut short, of another table, of 100 MB, missing, with a path outside the table."""
    for name in ("t", "u"):
        engines.sql(f"CREATE TABLE lake.tables.{name} (id BIGINT, s VARCHAR)")
        engines.sql(f"INSERT INTO lake.tables.{name} VALUES (1, 'a')")
    path, body, saved = recorded_commit(
        root, engines, between, "INSERT INTO lake.tables.t VALUES (2, 'b')"
    )
    [change] = json.loads(body)["table-changes"]
    [snapshot] = [u["snapshot"] for u in change["updates"] if u["action"] == "add-snapshot"]
    listing = Path(snapshot["manifest-list"].removeprefix("file://")).name
    shutil.rmtree(root)
    shutil.copytree(saved, root)
    folder = root / "t" / "metadata"
    listed = decode_list((folder / listing).read_bytes())
    [manifest] = {folder / Path(m.path).name for m in listed if "/inlay-" not in m.path}
    other = max(root.glob("u/metadata/inlay-m-*.avro"))
    whole = {p: p.read_bytes() for p in (folder / listing, manifest)}
    for file, data in whole.items():
        for bad in (
            data[: len(data) // 2],
            data[:-1],
            b"",
            b"Obj\x01" + b"\xff" * 64,
            other.read_bytes(),
            data.replace(b"/tables/t/", b"/tables/u/"),
            data.replace(b"file:///", b"file://h"),
            100 * 2**20,
            None,
        ):
            file.unlink()
            if isinstance(bad, int):
                with file.open("wb") as sparse:
                    sparse.truncate(bad)
            elif bad is not None:
                file.write_bytes(bad)
            answer = between.catalog.answer("POST", path, "", body, {})
            assert answer.status in {400, 403, 404, 409}, (file, bad and str(bad)[:40], answer)
            assert b"adopt" not in answer.body and b"inlay verify" not in answer.body, answer
            assert [r["id"] for r in rows(opened(root))] == [1]
            file.write_bytes(data)
    assert between.catalog.answer("POST", path, "", body, {}).status == 204
    assert [r["id"] for r in rows(opened(root))] == [1, 2]
    assert engines.sql("SELECT id FROM lake.tables.u") == [[1]]


def test_an_idempotency_key_stands_for_one_request(root: Path) -> None:
    """Sent again it is answered; for another request it is refused, not answered as if that were done."""
    of = Native(root)

    def asked(key: str, value: str) -> int:
        update = {"action": "set-properties", "updates": {"a": value}}
        body = json.dumps({"requirements": [], "updates": [update]}).encode()
        headers = {"idempotency-key": key}
        return of.catalog.answer("POST", "/v1/namespaces/tables/tables/t", "", body, headers).status

    assert [asked("k", "1"), asked("k", "1"), asked("k", "2"), asked("l", "2")] == [
        200,
        200,
        400,
        200,
    ]
    assert of.metadata()["properties"]["a"] == "2"

    def of_two(value: str) -> int:
        """A request on two tables, of which one has nothing else to name it by."""
        update = {"action": "set-properties", "updates": {"b": value}}
        changes = [
            {"identifier": {"namespace": ["tables"], "name": name}, "updates": [update]}
            for name in ("t", "u")
        ]
        body = json.dumps({"table-changes": changes}).encode()
        headers = {"idempotency-key": "both"}
        return of.catalog.answer("POST", "/v1/transactions/commit", "", body, headers).status

    inlay.create(f"file://{root}/u", SCHEMA, properties={"publish.format": "v3"}).publish()
    assert [of_two("1"), of_two("1"), of_two("2")] == [204, 204, 400]
    assert opened(root, "u").properties["iceberg.b"] == "1"
    assert [asked("", "3"), asked("k" * 1_000, "3")] == [400, 400]


def test_every_request_that_changes_something_is_done_once_by_its_key(
    root: Path, tmp_path: Path
) -> None:
    catalog = catalog_of(f"file://{root}", write=True)
    config = json.loads(catalog.answer("GET", "/v1/config").body)
    assert config["idempotency-key-lifetime"] == "PT24H"
    assert "idempotency-key-lifetime" not in json.loads(
        catalog_of(f"file://{root}").answer("GET", "/v1/config").body
    )
    tables = "/v1/namespaces/tables/tables"
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    made = {"name": "t", "schema": {"type": "struct", "fields": fields}}

    def asked(method: str, path: str, body: Any, key: str | None) -> int:
        headers = {} if key is None else {"idempotency-key": key}
        return catalog.answer(method, path, "", json.dumps(body).encode(), headers).status

    assert [asked("POST", tables, made, key) for key in ("a", "a", "b", None)] == [
        200,
        200,
        409,
        409,
    ]
    assert asked("POST", tables, {**made, "properties": {"x": "1"}}, "a") == 400
    assert asked("POST", f"{tables}/t", {"requirements": [], "updates": []}, "a") == 400
    dropped = [asked("DELETE", f"{tables}/t", None, key) for key in ("c", "c", "d", None)]
    assert dropped == [204, 204, 404, 404]
    other = inlay.create(f"file://{tmp_path}/other/o", SCHEMA)
    other.publish(format="v2")
    where = {"name": "r", "metadata-location": f"{other.uri}/metadata/v2.metadata.json"}
    register = "/v1/namespaces/tables/register"
    assert [asked("POST", register, where, key) for key in ("h", "h", "i")] == [200, 200, 409]
    assert asked("POST", register, where, "k" * 300) == 400


def test_a_drop_that_died_before_it_was_done_is_done_when_it_is_sent_again(root: Path) -> None:
    of = Deleting(root)
    headers = {"idempotency-key": "a"}
    place = "/v1/namespaces/tables/tables/t"
    pointer = (root / "t" / "_latest_manifest").read_bytes()
    assert of.catalog.answer("DELETE", place, "", b"", headers).status == 204
    (root / "t" / "_latest_manifest").write_bytes(pointer)  # as it was just before
    assert of.catalog.answer("DELETE", place, "", b"", headers).status == 204
    assert not (root / "t" / "_latest_manifest").exists()


def test_a_commit_is_of_the_table_of_its_path_and_metrics_of_one_that_is_there(root: Path) -> None:
    of = Deleting(root)
    update = {"action": "set-properties", "updates": {"a": "1"}}
    body = {"requirements": [], "updates": [update]}
    for namespace, name in (("tables", "u"), ("other", "t"), (None, None)):
        named = {"namespace": [namespace], "name": name}
        status, said = posted(of.catalog, "tables/t", {**body, "identifier": named})
        assert status == 400 and "another table" in said["error"]["message"], said
    right = {"namespace": ["tables"], "name": "t"}
    assert posted(of.catalog, "tables/t", {**body, "identifier": right})[0] == 200
    metrics = [
        of.catalog.answer("POST", f"/v1/namespaces/tables/tables/{name}/metrics", "", b"{}", {})
        for name in ("t", "u", "..")
    ]
    assert [each.status for each in metrics] == [204, 404, 404]
    assert json.loads(metrics[1].body)["error"]["type"] == "NoSuchTableException"


def test_a_commit_over_tables_that_the_ledgers_have_forgotten_is_answered_by_what_they_show(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one of them shows it and another does not, it is refused: it may not be the same one."""
    of = Deleting(root)
    other = inlay.create(f"file://{root}/u", SCHEMA, properties={"publish.format": "v2"})
    other.append(opened(root).scan().to_arrow())
    other.publish()

    def change(name: str, snapshot_id: int) -> dict[str, Any]:
        iceberg = Iceberg(of.shown(name)["metadata-location"].removeprefix("file://"))
        (like, kind, spec), *_ = iceberg.data_files()
        made = pa.Table.from_pylist([{"id": snapshot_id, "s": "e", "n": 0}], SCHEMA)
        iceberg.add_deletes([(iceberg.rows(made, [1, 2, 3], like), kind, spec)], "append")
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        named = {**iceberg.snapshot, "snapshot-id": snapshot_id}
        updates = [{"action": "add-snapshot", "snapshot": named}]
        return {
            "identifier": {"namespace": ["tables"], "name": name},
            "requirements": [],
            "updates": [*updates, {**moved, "snapshot-id": snapshot_id}],
        }

    def commit(*changes: dict[str, Any]) -> int:
        body = json.dumps({"table-changes": changes}).encode()
        return of.catalog.answer("POST", "/v1/transactions/commit", "", body).status

    both = change("t", 501), change("u", 502)
    assert commit(*both) == 204
    monkeypatch.setattr(
        several_module, "already_applied", lambda ctx, loaded, named: (loaded, None)
    )
    versions = [opened(root, name).version for name in "tu"]
    assert commit(*both) == 204
    assert commit(both[0], change("u", 503)) == 400
    assert [opened(root, name).version for name in "tu"] == versions
    assert [opened(root, name).count() for name in "tu"] == [10, 10]


class Repeated:
    """Requests with a key, and what is there once they are done; everything begins in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        other = inlay.create(f"file://{root.parent}/other/o", SCHEMA)
        other.append(pa.Table.from_pylist([{"id": 1, "s": "x", "n": 1}], SCHEMA))
        other.publish(format="v2")
        self.metadata = f"{other.uri}/metadata/v{other.refresh().version}.metadata.json"

    def create(self) -> tuple[str, str, Any, Callable[[], bool]]:
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
        body = {"name": "t", "schema": {"type": "struct", "fields": fields}}
        return (
            "POST",
            "tables",
            body,
            lambda: (opened(self.root).version, rows(self.table)) == (1, []),
        )

    def register(self) -> tuple[str, str, Any, Callable[[], bool]]:
        body = {"name": "t", "metadata-location": self.metadata}
        return "POST", "register", body, lambda: [r["id"] for r in rows(self.table)] == [1]

    def drop(self) -> tuple[str, str, Any, Callable[[], bool]]:
        Deleting(self.root)
        gone = self.root / "t" / "_latest_manifest"
        return "DELETE", "tables/t", None, lambda: not gone.exists()

    def upsert(self) -> tuple[str, str, Any, Callable[[], bool]]:
        """Rows that come, and rows that go, new ones among them."""
        of = Deleting(self.root)
        for at in ([8], [7]):  # a file that has a vector
            iceberg = of.iceberg()
            [(like, kind, spec)] = iceberg.data_files()
            gone = iceberg.positions({like["file_path"]: at}, like)
            iceberg.add_deletes([(gone, kind, spec)])
            if at == [8]:
                assert of.post(iceberg.snapshot)[0] == 200
        made = [{"id": i, "s": "q", "n": 1} for i in (3, 20, 3)]
        file = iceberg.rows(pa.Table.from_pylist(made, SCHEMA), [1, 2, 3], like)
        keys = iceberg.keys(pa.table({"id": pa.array([3, 20], pa.int64())}), [1], like)
        twice = iceberg.positions({file["file_path"]: [0]}, like)
        iceberg.add_deletes([(each, kind, spec) for each in (file, keys, twice)])
        first, second = iceberg.found["snapshots"][-2:]
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        added = [{"action": "add-snapshot", "snapshot": each} for each in (first, second)]
        updates = [*added, {**moved, "snapshot-id": second["snapshot-id"]}]
        expected, version = [0, 1, 2, 3, 4, 5, 6, 20], opened(self.root).version

        def is_done() -> bool:
            # By equal keys: their publication settles them by another commit.
            once = opened(self.root).version in (version + 1, version + 2)
            return once and [r["id"] for r in rows(self.table)] == expected

        return "POST", "tables/t", {"requirements": [], "updates": updates}, is_done

    @property
    def table(self) -> Table:
        return opened(self.root)


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", ["create", "register", "drop", "upsert"])
def test_a_request_that_is_killed_at_any_write_is_done_once_when_it_is_sent_again(
    root: Path, what: str, landed: bool
) -> None:
    method, path, body, is_done = getattr(Repeated(root), what)()
    saved, sent = root.parent / "saved", json.dumps(body).encode()
    shutil.copytree(root, saved)
    whole = catalog_of(f"file://{root}", write=True)
    place, headers = f"/v1/namespaces/tables/{path}", {"idempotency-key": "a"}
    for wanted in range(1, 30):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        puts = 0

        def kill(n: int, key: str, wanted: int = wanted) -> None:
            nonlocal puts
            puts = n
            if n == wanted:
                raise Killed(key)

        def context(table: str) -> Context:
            ctx = connect(f"file://{root}/{table}")
            return replace(ctx, store=Dying(ctx.store, **{"after" if landed else "before": kill}))

        dying = replace(whole, writes=TableWrites(context))
        with suppress(Killed):
            assert dying.answer(method, place, "", sent, headers).status in (200, 204, 500)
        for _ in range(2):
            again = whole.answer(method, place, "", sent, headers)
            assert again.status in (200, 204), (wanted, again)
            assert is_done(), wanted
        if puts < wanted:
            return
    raise AssertionError("a request of more than 30 writes")


def test_a_client_that_ignores_conflicts_changes_nothing_by_asking_again(root: Path) -> None:
    of = Deleting(root)
    iceberg = of.iceberg()
    [(like, kind, spec)] = iceberg.data_files()
    gone = iceberg.positions({like["file_path"]: [1]}, like)
    iceberg.add_deletes([(gone, kind, spec)])
    opened(root).delete("id = 2")
    expected, version = [0, 1, 3, 4, 5, 6, 7, 8], 0
    named = {"ref-name": "main", "snapshot-id": iceberg.snapshot["snapshot-id"]}
    updates = [
        {"action": "add-snapshot", "snapshot": iceberg.snapshot},
        {"action": "set-snapshot-ref", "type": "branch", **named},
    ]
    began = iceberg.snapshot["parent-snapshot-id"]
    seen = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": began}
    for _ in range(3):
        status, said = posted(of.catalog, "tables/t", {"requirements": [seen], "updates": updates})
        assert (status, said["error"]["type"]) == (409, "CommitFailedException")
        assert of.ids() == expected
        assert version in (0, opened(root).version)
        version = opened(root).version
    assert opened(root).maintain.verify(depth="pages").errors == ()


def test_a_folder_whose_name_engines_cut_short_is_refused_before_it_is_a_table(root: Path) -> None:
    fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
    catalog = catalog_of(f"file://{root}", write=True)
    for name in ("a#b", "a?b"):
        body = {"name": name, "schema": {"type": "struct", "fields": fields}}
        assert posted(catalog, "tables", body)[0] == 400
        assert not (root / name / "_latest_manifest").exists()


REFUSALS = {400, 404, 406, 409}


def mangled(found: Any, random: random.Random) -> Any:
    """A JSON value with one thing in it that is not as it was."""
    if isinstance(found, dict) and found and random.random() < 0.9:
        name = random.choice(list(found))
        if random.random() < 0.2:
            return {k: v for k, v in found.items() if k != name}
        return {**found, name: mangled(found[name], random)}
    if isinstance(found, list) and found and random.random() < 0.9:
        at = random.randrange(len(found))
        if random.random() < 0.2:
            return [*found[:at], *found[at + 1 :]]
        return [*found[:at], mangled(found[at], random), *found[at + 1 :]]
    return random.choice(
        [None, -1, 0, 2**70, "x", "", 1.5, True, [], {}, [{}], "../../x", "file:///x"]
    )


def test_requests_that_are_not_right_are_refused_and_change_nothing(
    root: Path, engines: Engines, between: Between
) -> None:
    """Whatever a request lacks or has otherwise, the answer is one of the specification's, and a table that
    was not changed by a success is as it was."""
    engines.sql("CREATE TABLE lake.tables.t (id BIGINT, s VARCHAR) PARTITIONED BY (s)")
    engines("pyiceberg", "add", "tables.t", "n")
    engines("pyiceberg", "create", "tables.u", {"id": "int64", "s": "string"})
    recorded: list[tuple[str, bytes]] = []
    for statement in ("INSERT INTO lake.tables.t VALUES (1, 'a', 1), (2, 'b', 2)",):
        between.bodies.clear()
        engines.sql(statement)
        recorded += [(p, b) for p, b in between.bodies if b"table-changes" in b]
    between.bodies.clear()
    engines("pyiceberg", "append", "tables.u", [{"id": 1, "s": "a"}])
    engines("pyiceberg", "add", "tables.u", "n")
    engines("pyiceberg", "create", "tables.v", {"id": "int64", "s": "string"})
    recorded += [(p, b) for p, b in between.bodies if b]
    assert len(recorded) >= 4
    dice = random.Random(7)
    expected = {name: rows(opened(root, name)) for name in ("t", "u", "v")}
    statuses = set()
    for _ in range(400):
        path, body = dice.choice(recorded)
        found = mangled(json.loads(body), dice)
        sent = json.dumps(found).encode()
        answer = between.catalog.answer("POST", path, "", sent, {})
        statuses.add(answer.status)
        assert answer.status in {200, 204, *REFUSALS}, (answer, found)
        if answer.status in REFUSALS:
            said = json.loads(answer.body)["error"]
            assert said["message"] and said["code"] == answer.status
        for name, before in expected.items():
            assert [{k: r[k] for k in ("id", "s")} for r in rows(opened(root, name))] == [
                {k: r[k] for k in ("id", "s")} for r in before
            ], found
    assert statuses >= {200, 400, 409}
    for sent in (b"", b"{", b"[]", b"null", b"{}" * 9, b"[" * 100_000, b'{"updates": 1}'):
        assert between.catalog.answer("POST", recorded[0][0], "", sent, {}).status in REFUSALS


def test_what_a_commit_over_several_tables_cannot_do_is_refused_by_name(root: Path) -> None:
    catalog = catalog_of(f"file://{root}", write=True)
    for name in "tu":
        made = {"publish.format": "v3"}
        inlay.create(f"{root}/{name}", pa.schema([("id", pa.int64())]), properties=made)
        opened(root, name).append(pa.table({"id": [1]}))

    def change(name: str, *updates: dict[str, Any], required: Any = ()) -> dict[str, Any]:
        return {
            "identifier": {"namespace": ["tables"], "name": name},
            "requirements": list(required),
            "updates": updates,
        }

    def commit(*changes: dict[str, Any]) -> tuple[int, str]:
        body = json.dumps({"table-changes": changes}).encode()
        answer = catalog.answer("POST", "/v1/transactions/commit", "", body)
        return answer.status, answer.body.decode()

    owned = {"action": "set-properties", "updates": {"owner": "me"}}
    first = change("t", owned)
    brought = {"action": "add-snapshot", "snapshot": {"snapshot-id": 77, "manifest-list": "x"}}
    branch = {"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": 77}
    for second, word in (
        (change("new", owned, required=[{"type": "assert-create"}]), "creates none of them"),
        (change("u", brought, branch), "main branches"),
        (change("t", owned), "twice"),
    ):
        status, said = commit(first, second)
        assert status == 400 and word in said, said
        assert "file://" in said or "tables" in said
    assert "iceberg.owner" not in opened(root).properties
    assert commit(first, change("u", owned)) == (204, "")
    assert [opened(root, n).properties["iceberg.owner"] for n in "tu"] == ["me", "me"]

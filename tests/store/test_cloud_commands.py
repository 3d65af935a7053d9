"""Every command of `inlay` that takes a table, on gs:// and az://: the life of a table by commands."""

from __future__ import annotations

import io
import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Ran, Run, inlay

from inlay.cli.app import app
from inlay.cli.serving import CatalogServer, catalog_of

from .conftest import Cloud

# Not about a store that may be any: the AWS of this machine, and queues.
ELSEWHERE = {"local", "dlq", "doctor", "serve"}

__all__ = ["inlay"]


class Commands:
    """Runs commands, and remembers which."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.names: set[str] = set()

    def __call__(self, *arguments: str, code: int = 0) -> Ran:
        self.names.add(arguments[0])
        return self._run(*arguments, code=code)

    def rows(self, table: str, *more: str) -> list[tuple[Any, ...]]:
        lines = self("scan", table, "--json", *more).lines
        return sorted(tuple(line.values()) for line in lines)


@pytest.fixture
def run(inlay: Run) -> Commands:
    return Commands(inlay)


@pytest.fixture
def served(cloud: Cloud) -> Iterator[str]:
    """The REST catalog of the cloud's folder of tables, as `inlay serve` has it."""
    with CatalogServer(catalog_of(f"{cloud.uri}/tables"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_life_of_a_table_by_commands(
    cloud: Cloud, run: Commands, served: str, tmp_path: Path
) -> None:
    uri = f"{cloud.uri}/tables/people"
    Path("people.csv").write_text(
        "id,name,born\n1,Ada,1815-12-10\n2,Bob,1950-01-01\n3,,1990-05-05\n"
    )
    Path("more.csv").write_text("id,name,born\n3,Cy,1990-05-05\n4,Dee,2001-02-03\n")
    Path("gone.csv").write_text("id\n2\n")
    run("create", uri, "--like", "people.csv", "--primary-key", "id")
    run("append", uri, "people.csv", "--request-id", "r1", "-m", "first")
    again = run("append", uri, "people.csv", "--request-id", "r1").out
    assert "applied before" in again
    assert run.rows(uri) == [
        (1, "Ada", "1815-12-10"),
        (2, "Bob", "1950-01-01"),
        (3, None, "1990-05-05"),
    ]
    run("upsert", uri, "more.csv")
    run("update", uri, "--set", "name = upper(name)", "--where", "id = 1")
    run("delete", uri, "--keys", "gone.csv")
    now = [(1, "ADA", "1815-12-10"), (3, "Cy", "1990-05-05"), (4, "Dee", "2001-02-03")]
    assert run.rows(uri) == now
    assert run("count", uri, "--where", "name IS NOT NULL").out.split() == ["3"]
    run("scan", uri, "-o", "out.parquet")
    assert pq.read_table("out.parquet").num_rows == 3
    assert "files" in run("explain", uri, "--where", "id = 3", "--json").json
    assert run("history", uri, "--json").lines[-2]["message"] == "first"

    # Columns, partitions, properties.
    run("alter", uri, "--add", "n int not null", "--default", "n=7", "--comment", "n=seven")
    assert [line["column"] for line in run("schema", uri, "--json").lines][-1] == "n"
    run("partition", uri, "bucket(4, id)")
    run("set", uri, "my.owner=me", "history.days=1")
    assert run("show", uri, "--json").json["properties"]["my.owner"] == "me"
    now = [(*row, 7) for row in now]
    assert run.rows(uri) == now

    # Branches, tags, going back.
    run("tag", uri, "before")
    run("branch", uri, "trial")
    Path("five.csv").write_text("id,name,born,n\n5,Eve,1999-09-09,1\n")
    run("append", uri, "five.csv", "--ref", "trial")
    assert run.rows(uri) == now
    run("merge", uri, "trial")
    after = [*now, (5, "Eve", "1999-09-09", 1)]
    assert run.rows(uri) == after
    assert len(run.rows(uri, "--ref", "before")) == 3
    assert {line["name"] for line in run("refs", uri, "--json").lines} == {
        "main",
        "before",
        "trial",
    }
    run("drop-ref", uri, "trial")
    run("restore", uri, "--ref", "before")
    assert run.rows(uri) == now
    run("diff", uri, "1", "--json")
    assert len(run("diff", uri, "1", "--rows", "--net", "--json").lines) == 3

    # A file that lands, and one that is used where it is.
    for name, row in (("a", 10), ("b", 11)):
        sink = io.BytesIO()
        rows = {"id": [row], "name": ["Flo"], "born": [None], "n": [0]}
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("born", pa.date32()),
                pa.field("n", pa.int32(), nullable=False),
            ]
        )
        pq.write_table(pa.table(rows, schema), sink)
        cloud.store.put(f"ingest/people/{name}.parquet", sink.getvalue())
    assert {line["state"] for line in run("landing", uri, "--json").lines} == {"pending"}
    run("ingest", uri, f"{cloud.uri}/ingest/people/a.parquet")
    run("ingest", uri, f"{cloud.uri}/ingest/people/b.parquet", "--adopt")
    assert len(run.rows(uri)) == 5

    # What it is made of, and looking after it.
    assert (
        run("inspect", uri, "--html", "page.html").out and Path("page.html").stat().st_size > 10_000
    )
    for verb in ("inspect", "files", "tombstones", "partitions", "cost", "erase-status"):
        run(verb, uri, "--json")
    assert [line["table"] for line in run("tables", cloud.uri, "--json").lines] == [uri]
    run("delete", uri, "--where", "id = 10", "--mode", "surgery")
    run("rewrite", uri)
    run("compact", uri)
    refused = run("publish", uri, code=2).err
    assert "ingest/people/b.parquet" in refused and "adopted in place" in refused
    run("delete", uri, "--where", "id = 11", "--mode", "rewrite")
    run("publish", uri)
    with urllib.request.urlopen(
        f"{served}/v1/namespaces/tables/tables/people", timeout=30
    ) as answer:
        assert json.load(answer)["metadata"]["location"].endswith("/tables/people")
    run("adopt", uri, "--into", f"{cloud.uri}/tables/copy", "--copy")
    copy = f"{cloud.uri}/tables/copy"
    assert run.rows(copy) == run.rows(uri)

    # Overwriting, a change stream, a search, another catalog: on the copy.
    Path("one.csv").write_text("id,name,born,n\n1,ONE,1815-12-10,1\n")
    run("overwrite", copy, "one.csv", "--where", "id = 1")
    Path("feed.csv").write_text("op,id,name,born,n\nu,3,Cyd,1990-05-05,9\nd,4,,,10\n")
    run("apply-changes", copy, "feed.csv", "--order", "n", "--op", "op", "--on", "id")
    assert run.rows(copy) == [(1, "ONE", "1815-12-10", 1), (3, "Cyd", "1990-05-05", 9)]
    assert "'Cyd': 1 row in name" in run("subject", "search", copy, "--text", "Cyd").out
    Path("plan.json").write_text(
        json.dumps([{"update": copy, "set": {"n": "8"}, "where": "id = 3"}, {"read": uri}])
    )
    run("commit", "plan.json", "--request-id", "both")
    assert run.rows(copy)[1][3] == 8
    assert run("erasures", copy, "--json").lines == []
    assert "no receipt" in run("receipt", copy, "case-7", code=2).err
    run("waive", uri, "ingest/people/b.parquet", "--reason", "no erasure waits for it", code=2)
    run("set", copy, "publish.format=v3")
    run("hand-over", copy)
    run("append", copy, "one.csv", code=2)
    run("hand-over", copy, "--take-back")

    run("expire", uri, "--older-than", "0d")
    run("gc", uri, "--grace", "0d", "--clock-margin", "0s")
    assert run("verify", uri, "--depth", "pages").code == 0

    # A pointer that is lost, and a table that is dropped by mistake.
    cloud.store.delete(["tables/people/_latest_manifest"])
    run("count", uri, code=2)
    run("repair", uri)
    run("repair", uri, "--apply")
    kept = run.rows(uri)
    assert len(kept) == 3
    run("drop", uri, "--yes")
    run("count", uri, code=2)
    run("repair", uri, "--apply")
    assert run.rows(uri) == kept
    run("drop", uri, "--grace", "0d", "--yes")
    left = run("tables", cloud.uri, "--json").lines
    assert [line["table"] for line in left] == [copy]
    run("copy", copy, "--into", f"{cloud.uri}/tables/second")
    assert run.rows(f"{cloud.uri}/tables/second") == run.rows(copy)
    run("clone", copy, "--into", f"{cloud.uri}/tables/third")
    assert run.rows(f"{cloud.uri}/tables/third") == run.rows(copy)
    shown = {command.name for command in app.registered_commands if not command.hidden}
    assert run.names == shown - ELSEWHERE


def test_an_erasure_by_commands(cloud: Cloud, run: Commands) -> None:
    uri = f"{cloud.uri}/tables/people"
    Path("people.csv").write_text("id,name\n1,Ada Lovelace of Marylebone\n2,Bob\n")
    run("create", uri, "--like", "people.csv", "--primary-key", "id")
    run("append", uri, "people.csv")
    run(
        "delete", uri, "--where", "id = 1", "--mode", "erase", "--request-id", "case-7", "-m", "Ada"
    )
    assert run("erase-status", uri, "--json").lines[0]["phase"] == "rewrite"
    run("rewrite", uri)
    for _ in range(60):  # what is younger than a second of the store's clock stays for now
        run("gc", uri, "--grace", "0d", "--life", "0s", "--clock-margin", "0s")
        if not run("erase-status", uri, "--json").lines:
            break
    else:
        raise AssertionError(run("erase-status", uri).out)
    assert run("erase-status", uri, "--verify", "case-7").code == 0
    for info in cloud.store.list("tables/people/"):
        assert b"Ada" not in cloud.store.get(info.key).body
    assert run.rows(uri) == [(2, "Bob")]


@pytest.mark.parametrize("verb", ["count", "show", "history", "gc", "verify", "repair", "drop"])
def test_no_table_is_an_error_in_words(cloud: Cloud, run: Commands, verb: str) -> None:
    more = ["--yes"] if verb == "drop" else []
    refused = run(verb, f"{cloud.uri}/nothing/here", *more, code=2)
    assert refused.err.startswith("error: ") and "nothing/here" in refused.err


@pytest.mark.parametrize("verb", ["count", "create", "tables"])
def test_no_bucket_is_an_error_in_words(cloud: Cloud, run: Commands, verb: str) -> None:
    scheme = cloud.uri.partition("://")[0]
    more = ["--schema", "id bigint"] if verb == "create" else []
    refused = run(verb, f"{scheme}://no-such-bucket-of-ours/t", *more, code=2)
    assert "no-such-bucket-of-ours" in refused.err and "next:" in refused.err

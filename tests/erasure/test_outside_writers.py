"""Values planted in files of writers from outside of this repository, and searched for afterwards.

hyparquet-writer (JavaScript) and parquet-wasm (Rust's writer), which `make emulators` installs; without
them, or without Node.js, the tests are skipped. What is left of the files is read by hyparquet as well.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

import inlay.plan.surgery as strategy
from inlay.format.predicate import And, Comparison, In, Like, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.ops.erase.check_receipt import verify_receipt
from inlay.ops.metadata.load import load_entries, load_pointer
from inlay.plan.pruning.mentions import names_any
from inlay.storage.base import Location

from . import oracle
from .people import People, new_people
from .test_receipt import receipt

MODULES = Path(__file__).parents[2] / ".tools/emulators/node_modules"
SCRIPT = Path(__file__).with_name("outside.mjs")
IS_INSTALLED = shutil.which("node") and (MODULES / "hyparquet-writer").exists()
pytestmark = pytest.mark.skipif(
    not IS_INSTALLED, reason="JavaScript's Parquet writers are not installed: make emulators"
)

MAIL, PHONE = "zz-xanthippe@example.org", "+49-170-7d1fc0ffee"
ROWS, HER_ROW = 60, 13
SCHEMA = pa.schema([("id", pa.int64()), ("mail", pa.string()), ("phone", pa.string())])
PAIRS = {
    "owner": MAIL,
    "link": f"https://example.org/?for={quote(MAIL, safe='')}",
    "blob": base64.b64encode(b"\x00" + MAIL.encode() + b"!").decode(),
    "wide": MAIL.encode("utf-16-le").hex(),
    "nested": json.dumps({"a": json.dumps({"mail": MAIL})}),
    "harmless": "stays",
}
TEXT = Primitive("string")
IS_HER = Comparison(2, "=", Literal(TEXT, MAIL))


def node(folder: Path, ask: dict[str, Any]) -> str:
    asked = folder / "asked.json"
    asked.write_text(json.dumps(ask))
    command = ["node", str(SCRIPT), str(MODULES), str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def people_rows(ids: list[int]) -> pa.Table:
    mails = [MAIL if i == HER_ROW else f"user{i % 7}@example.org" for i in ids]
    phones = [PHONE if i == HER_ROW else f"+49-{i}" for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "mail": mails, "phone": phones})


def hyparquet(**more: Any) -> Callable[[Path, pa.Table], bytes]:
    def write(folder: Path, table: pa.Table) -> bytes:
        columns = [
            {
                "name": name,
                "data": table[name].to_pylist(),
                "type": "INT64" if name == "id" else "STRING",
                "longs": name == "id",
                **(more if name != "id" else {}),
            }
            for name in table.column_names
        ]
        return written(folder, {"writer": "hyparquet", "columns": columns})

    return write


def wasm(*, dictionary: bool) -> Callable[[Path, pa.Table], bytes]:
    def write(folder: Path, table: pa.Table) -> bytes:
        if dictionary:
            coded = table["mail"].combine_chunks().dictionary_encode()
            table = table.set_column(1, "mail", coded)
        stream = folder / "rows.arrow"
        with pa.ipc.new_stream(stream, table.schema) as sink:
            sink.write_table(table)
        return written(folder, {"writer": "wasm", "stream": str(stream)})

    return write


def written(folder: Path, ask: dict[str, Any]) -> bytes:
    out = folder / "out.parquet"
    more = {"out": str(out), "groupRows": 8, "pairs": PAIRS, "createdBy": f"made for {MAIL}"}
    node(folder, {**ask, **more})
    return out.read_bytes()


WRITERS: dict[str, Callable[[Path, pa.Table], bytes]] = {
    "hyparquet": hyparquet(),
    "hyparquet, plain": hyparquet(encoding="PLAIN", columnIndex=True, offsetIndex=True),
    "hyparquet, delta": hyparquet(encoding="DELTA_BYTE_ARRAY", columnIndex=True),
    "hyparquet, without statistics": hyparquet(statistics=False),
    "wasm": wasm(dictionary=False),
    "wasm, dictionary": wasm(dictionary=True),
}


BODIES: dict[tuple[str, range], bytes] = {}


def body_of(writer: str, ids: range, folder: Path) -> bytes:
    """Written once for all tests: each takes a process."""
    if (writer, ids) not in BODIES:
        BODIES[writer, ids] = WRITERS[writer](folder, people_rows(list(ids)))
    return BODIES[writer, ids]


def found(people: People, text: str) -> set[str]:
    """Keys of the bucket whose versions have the text, in any spelling, packed or not."""
    return {
        name.split("@")[0]
        for name, body in oracle._bodies(people.store)
        if not name.startswith("name of ")
        for _, data in oracle.views(body)
        if names_any(data, [text])
    }


@pytest.mark.parametrize("adopt", [False, True], ids=["copied", "adopted"])
@pytest.mark.parametrize("way", ["surgery", "rewrite"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "predicate",
    [
        IS_HER,
        In(2, TEXT, (MAIL, "nobody@example.org")),
        And((Like(2, "zz-xanthippe@%"), Comparison(1, "<", Literal(Primitive("int64"), 20)))),
    ],
    ids=["equal", "in", "like and range"],
)
def test_nothing_stays_of_what_outside_writers_wrote(
    writer: str,
    way: str,
    adopt: bool,
    predicate: Predicate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "surgery":
        monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
        monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    people = new_people(SCHEMA, row_group_rows=None, versioned=True)
    folder = "else" if adopt else "ingest/people"
    # Of the second file, no row is hers: only the pairs and the writer's name are.
    for n, ids in enumerate((range(ROWS), range(100, 120))):
        body = body_of(writer, ids, tmp_path)
        assert MAIL.encode() in body
        people.time.sleep(1)
        people.store.put(f"{folder}/{n}.parquet", body)
        done = people.ingest(Location("memory", "b", f"{folder}/{n}.parquet"), adopt=adopt)
        assert done.write.committed, done.outcomes
    people.erase(predicate)
    assert people.finish().receipts
    theirs = {f"else/{n}.parquet" for n in range(2)} if adopt else set()
    assert found(people, PHONE) <= theirs
    left = found(people, MAIL) - theirs
    assert left == set() and receipt(people)["look"]["kept"] == []
    stay = [i for i in range(ROWS) if i != HER_ROW]
    assert people.ids() == [*stay, *range(100, 120)]
    assert verify_receipt(people.ctx, "case-1").problems == ()
    # Another's reader has the same rows, and nothing else went from what surgery made.
    loaded = load_pointer(people.ctx)
    shown: list[int] = []
    # It does not unpack the compression that the others use.
    by_hyparquet = predicate is IS_HER and writer.startswith("hyparquet")
    for entry in load_entries(people.ctx, loaded.state).files():
        body = people.store.get(people.ctx.key(entry.key)).body
        (tmp_path / "made.parquet").write_bytes(body)
        if entry.is_foreign and by_hyparquet:
            rows = json.loads(node(tmp_path, {"read": str(tmp_path / "made.parquet")}))
            assert people_rows([row["id"] for row in rows]).to_pylist() == rows
            shown += [row["id"] for row in rows]
    if way == "surgery" and by_hyparquet:
        assert sorted(shown) == people.ids()
        assert receipt(people)["look"]["key_values"] == {"harmless": 2}


@pytest.mark.parametrize("writer", ["hyparquet", "wasm, dictionary"])
def test_what_the_condition_does_not_name_is_named_by_the_receipt(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By her number alone: what pairs say of her stays, by name."""
    monkeypatch.setattr(strategy, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(strategy, "rewrite_cost", lambda *_: strategy.Cost(10_000))
    people = new_people(SCHEMA, row_group_rows=None, versioned=True)
    people.time.sleep(1)
    body = body_of(writer, range(ROWS), tmp_path)
    people.store.put("ingest/people/0.parquet", body)
    people.ingest(Location("memory", "b", "ingest/people/0.parquet"))
    people.erase(Comparison(1, "=", Literal(Primitive("int64"), HER_ROW)))
    assert people.finish().receipts
    assert found(people, PHONE) == set()
    [entry] = people.snapshot.files.inline
    assert found(people, MAIL) == {people.ctx.key(entry.key)}
    look = receipt(people)["look"]
    assert set(PAIRS) <= set(look["key_values"]) and look["columns"] == ["id"]

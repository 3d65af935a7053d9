"""Requests that are nearly right are done, or refused in the specification's form with nothing done."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

import inlay

from .test_catalog_writes import SCHEMA, Deleting, opened

JUNK = (
    *(None, True, False, 0, -1, 1, 2**63, 2**64, -(2**63), 1.5, "", "x", "main", "\ud800", "1"),
    *("a" * 300, "../x", "file:///etc/passwd", [], {}, [None], [{}], {"a": 1}),
    *(float("inf"), float("nan"), 10**400, 3.0, 1e308, "\x00", "tables.t", {"": ""}),
)
STATUSES = {200, 204, 400, 403, 404, 406, 409}
TABLE, TABLES = "/v1/namespaces/tables/tables/t", "/v1/namespaces/tables/tables"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a catalog's tables."""
    made = tmp_path / "tables"
    made.mkdir()
    return made


class Requests:
    """Requests as engines send them, of every kind, and the same with parts changed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.of = Deleting(root, form=self.dice.choice(["v2", "v3"]))
        inlay.create(f"file://{root}/u", SCHEMA, properties={"publish.format": "v2"}).publish()

    def shown(self) -> Any:
        return json.loads(self.of.catalog.answer("GET", TABLE).body)["metadata"]

    def right(self) -> tuple[str, Any]:
        now, dice = self.shown(), self.dice
        [schema] = (s for s in now["schemas"] if s["schema-id"] == now["current-schema-id"])
        current, column = now["current-snapshot-id"], now["last-column-id"] + 1
        named = {"action": "set-properties", "updates": {"a": str(column)}}
        updates: list[Any] = []
        match dice.choice(
            ["rows", "rows", "schema", "spec", "refs", "create", "several", "register"]
        ):
            case "rows":
                updates = self._rows()
            case "schema":
                kinds: list[Any] = ["int", "decimal(9,2)", "timestamp_ns"]
                kinds += [{"type": "list", "element-id": column + 1, "element": "long"}]
                field = {"id": column, "name": f"c{column}", "required": False}
                fields = [*schema["fields"], {**field, "type": dice.choice(kinds)}]
                updates = [
                    {"action": "add-schema", "schema": {**schema, "fields": fields}},
                    {"action": "set-current-schema", "schema-id": -1},
                    *dice.choice([[], self._rows()]),
                ]
            case "spec":
                how = dice.choice(["identity", "bucket[4]", "truncate[3]", "void"])
                field = {"source-id": 1, "name": f"p{dice.randrange(9)}", "transform": how}
                updates = [
                    {"action": "add-spec", "spec": {"fields": [field]}},
                    {"action": "set-default-spec", "spec-id": -1},
                ]
            case "refs":
                ids = [s["snapshot-id"] for s in now["snapshots"]]
                ref = {"ref-name": dice.choice("gh"), "type": dice.choice(["tag", "branch"])}
                updates = [
                    {"action": "set-snapshot-ref", **ref, "snapshot-id": current},
                    {"action": "remove-snapshot-ref", "ref-name": dice.choice("gh")},
                    {"action": "remove-snapshots", "snapshot-ids": ids[:2]},
                    named,
                ]
                updates = dice.sample(updates, dice.randint(1, 2))
            case "create":
                spec = {"fields": [{"source-id": 1, "name": "p", "transform": "bucket[4]"}]}
                name = f"n{dice.randrange(9)}"
                made = {"name": name, "schema": schema, "partition-spec": spec}
                return TABLES, {**made, "stage-create": dice.random() < 0.3, "properties": {}}
            case "register":
                metadata = f"file://{self.of.root}/t/metadata/v1.metadata.json"
                return "/v1/namespaces/tables/register", {
                    "name": "r",
                    "metadata-location": metadata,
                }
            case _:
                changes = [
                    {
                        "identifier": {"namespace": ["tables"], "name": name},
                        "requirements": [],
                        "updates": [named],
                    }
                    for name in ("t", dice.choice("ut"))
                ]
                return "/v1/transactions/commit", {"table-changes": changes}
        requirements = [
            {"type": "assert-table-uuid", "uuid": now["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current},
            {"type": "assert-current-schema-id", "current-schema-id": schema["schema-id"]},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": column - 1},
        ]
        asked = dice.sample(requirements, dice.randrange(len(requirements)))
        return TABLE, {"requirements": asked, "updates": updates}

    def _rows(self) -> list[Any]:
        iceberg = self.of.iceberg()
        (like, kind, spec), *_ = iceberg.data_files()
        if self.dice.random() < 0.3:
            file = iceberg.positions({like["file_path"]: [0]}, like)
        else:
            made = pa.Table.from_pylist([{"id": self.dice.randrange(99), "s": "q", "n": 1}], SCHEMA)
            file = iceberg.rows(made, [1, 2, 3], like)
        iceberg.add_deletes([(file, kind, spec)], self.dice.choice(["append", "overwrite"]))
        named = self.dice.getrandbits(62)
        moved = {"ref-name": self.dice.choice(["main", "main", "b"]), "type": "branch"}
        return [
            {"action": "add-snapshot", "snapshot": {**iceberg.snapshot, "snapshot-id": named}},
            {"action": "set-snapshot-ref", **moved, "snapshot-id": named},
        ]

    def nearly_right(self) -> tuple[str, Any]:
        path, body = self.right()
        for _ in range(self.dice.choice([0, 1, 1, 1, 2])):
            body = self._changed(body)
        return path, body

    def _changed(self, body: Any) -> Any:
        made = copy.deepcopy(body)
        places = [place for place in _places(made) if place]
        if not places:
            return self.dice.choice(JUNK)
        *path, last = self.dice.choice(places)
        at = made
        for step in path:
            at = at[step]
        match self.dice.randrange(5):
            case 0:
                del at[last]
            case 1 if isinstance(at, list):
                at.append(copy.deepcopy(at[last]))
            case 2:
                at[last] = [at[last]]
            case _:  # whatever else
                at[last] = self.dice.choice(JUNK)
        return made


def _places(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = (
        body.items()
        if isinstance(body, dict)
        else enumerate(body if isinstance(body, list) else [])
    )
    for name, value in inner:
        yield from _places(value, (*path, name))


@pytest.mark.parametrize("seed", range(3))
def test_a_request_is_done_or_refused_in_the_form_of_the_specification(
    root: Path, seed: int
) -> None:
    requests = Requests(root, seed)
    catalog = requests.of.catalog
    for _ in range(50):
        path, body = requests.nearly_right()
        before = opened(root).snapshot
        answer = catalog.answer("POST", path, "", json.dumps(body).encode(), {})
        assert answer.status in STATUSES, (answer, body)
        if answer.status >= 400:
            said = json.loads(answer.body)["error"]
            assert said["code"] == answer.status and said["message"] and said["type"], said
            now = opened(root).snapshot
            assert now.version == before.version, (answer, body)
        # Whatever it was, the table is there for engines, whole.
        assert requests.shown()["last-sequence-number"] == opened(root).version, body
    assert opened(root).maintain.verify(depth="pages").errors == ()


def test_a_new_branch_begins_on_a_snapshot_that_is_shown_or_is_refused(
    root: Path,
) -> None:
    requests = Requests(root, 0)
    opened(root).append(pa.Table.from_pylist([{"id": 70, "s": "q", "n": 1}], SCHEMA))
    of, shown = requests.of, requests.shown()
    older = {s["snapshot-id"] for s in shown["snapshots"]} - {shown["current-snapshot-id"]}
    moved = {"ref-name": "b", "type": "branch", "snapshot-id": 900}
    for parent in ([], {}, "x", 1.5, True, 7, shown["current-snapshot-id"]):
        brought = {**of.iceberg().snapshot, "snapshot-id": 900, "parent-snapshot-id": parent}
        updates = [
            {"action": "add-snapshot", "snapshot": brought},
            {"action": "set-snapshot-ref", **moved},
            {"action": "remove-snapshots", "snapshot-ids": sorted(older)},
        ]
        body = json.dumps({"requirements": [], "updates": updates}).encode()
        answer = of.catalog.answer("POST", TABLE, "", body, {})
        is_right = parent == shown["current-snapshot-id"]
        assert answer.status in ((200,) if is_right else (400, 409)), (parent, answer)
        assert set(opened(root).snapshot.refs) == ({"b"} if is_right else set())


@pytest.mark.parametrize(
    "given", [b"1e999", b"-1e999", b"Infinity", b"NaN", b"9.5", b"9.0", b'"9"', b"true"]
)
@pytest.mark.parametrize("place", ["id", "element-id", "field-id"])
def test_what_is_no_id_is_refused_in_the_words_of_a_request(
    root: Path, place: str, given: bytes
) -> None:
    requests = Requests(root, 0)
    shown = requests.shown()
    [schema] = (s for s in shown["schemas"] if s["schema-id"] == shown["current-schema-id"])
    column: Any = {"id": 9, "name": "z", "required": False, "type": "long"}
    spec: Any = {"source-id": 1, "name": "p", "transform": "identity"}
    if place == "id":
        column["id"] = "GIVEN"
    elif place == "element-id":
        column["type"] = {"type": "list", "element-id": "GIVEN", "element": "long"}
    else:
        spec["field-id"] = "GIVEN"
    updates = [
        {"action": "add-spec", "spec": {"fields": [spec]}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    if place != "field-id":
        fields = [*schema["fields"], column]
        updates = [
            {"action": "add-schema", "schema": {**schema, "fields": fields}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    body = json.dumps({"requirements": [], "updates": updates}).encode()
    answer = requests.of.catalog.answer("POST", TABLE, "", body.replace(b'"GIVEN"', given), {})
    assert answer.status == 400, answer
    assert requests.shown() == shown


def test_what_a_request_makes_of_a_schema_is_its_own_fault(root: Path) -> None:
    """Nobody stops writing to a table, and repairs it, because of a request that was refused."""
    requests = Requests(root, 0)
    [schema] = requests.shown()["schemas"][-1:]
    column = {**schema["fields"][0], "name": "z"}
    made = {**schema, "fields": [*schema["fields"], column]}
    updates = [
        {"action": "add-schema", "schema": made},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    body = json.dumps({"requirements": [], "updates": updates}).encode()
    answer = requests.of.catalog.answer("POST", TABLE, "", body, {})
    assert answer.status == 400
    assert b"field id twice" in answer.body and b"Correct the request" in answer.body


# -- requests that are nothing like right ---------------------------------------------------------

# As parts of a path, as they are sent: encoded twice, in halves, of several levels, of other places.
ODD = (
    *(
        "t",
        "%74",
        "u",
        "nix",
        "",
        ".",
        "..",
        "%2e%2e",
        "t%2Fdata",
        "t/..",
        "%2Ft",
        "t%00",
        "%00",
        "%",
    ),
    *(
        "%zz",
        "%ED%A0%80",
        "%FF%FE",
        "caf%C3%A9",
        "t%1Fu",
        "tables%1Ft",
        "tables%1F",
        "%1F",
        "%1Ftables",
    ),
    *(
        "tables.t",
        "%E2%80%AE",
        "%F0%9F%A7%8A",
        "a" * 300,
        "%61" * 3_000,
        "t?x",
        "t#x",
        "t%3Fx",
        "t+t",
    ),
    *(
        "_latest_manifest",
        "metadata",
        "t%0d%0aX: y",
        "*",
        "[t]",
        "{t}",
        "$(t)",
        "~",
        "%25%37%34",
        "-",
        " ",
    ),
)
PLACES = (
    *("v1/config", "v1/namespaces", "v1/namespaces/{n}", "v1/namespaces/{n}/tables", "v1/{n}/{t}"),
    *(
        "v1/namespaces/{n}/tables/{t}",
        "v1/namespaces/{n}/tables/{t}/{t}",
        "v1/namespaces/{n}/views",
    ),
    *("v1/namespaces/{n}/tables/{t}/metrics", "v1/namespaces/{n}/register", "v1/tables/rename"),
    *("v1/namespaces/{n}/tables/{t}/credentials", "v1/namespaces/{n}/views/{t}", "{t}", "v2/{n}"),
    *("v1/transactions/commit", "v1/namespaces/{n}/properties", "v1//namespaces", "/v1/config//"),
    *("v1/namespaces/{n}/tables/{t}/plan", "v1/oauth/tokens", "v1/namespaces/{n}/namespaces/{n}"),
)
QUERIES = (
    *("", "parent={t}", "parent=", "pageSize={k}&pageToken={t}", "pageToken={t}", "pageSize={k}"),
    *("snapshots={t}", "warehouse={t}", "purgeRequested={t}", "&&&=", "%", "pageToken=%ED%A0%80"),
    *("pageToken=t&pageToken=u&pageSize=1", "a=b;c=d", "=" * 3_000, "x=1&" * 2_000, "pageSize=%31"),
)
SIZES = ("0", "-1", "1", "2", "9" * 40, "1e3", "%", "\u0661", "NaN", "")
TEXTS = (
    *(
        b"",
        b"{",
        b"}",
        b"null",
        b"[]",
        b'""',
        b"0",
        b"NaN",
        b'{"a": NaN}',
        b"-Infinity",
        b"\xff\xfe",
        b"{}x",
    ),
    *(
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'"\\ud800"',
        b'{"a": 1e999999}',
        b'{"a": ' + b"9" * 5_000 + b"}",
    ),
    *(
        b'{"updates": [], "updates": {}}',
        "\ufeff{}".encode(),
        "{}".encode("utf-16"),
        b"\x00" * 1_000,
    ),
    *(
        b'{"name": "\\u0000", "schema": {"type": "struct", "fields": []}}',
        b'{"table-changes": [[]]}',
    ),
    *(
        b'{"namespace": ["a", "b"]}',
        b'{"namespace": []}',
        b'{"namespace": ["tables"]}',
        b'{"name": 7}',
    ),
)


class Anything(Requests):
    """Requests of which every part may be anything."""

    def odd(self) -> tuple[str, str, str, bytes, dict[str, str]]:
        dice = self.dice
        method = dice.choice(["GET", "HEAD", *["POST"] * 4, "DELETE", "PUT", "PATCH", "get", ""])
        names = dict.fromkeys("nt", "tables") | {"t": dice.choice(ODD), "k": dice.choice(SIZES)}
        if dice.random() < 0.3:
            names["n"] = dice.choice(ODD)
        path, body = "/" + dice.choice(PLACES).format_map(names), self._text()
        if method == "POST" and dice.random() < 0.4:
            path, right = self.nearly_right()
            body = json.dumps(right).encode()
            at = dice.randrange(len(body) + 1)
            match dice.randrange(4):
                case 0:
                    body = body[:at]
                case 1:
                    body = body[:at] + dice.randbytes(3) + body[at + dice.randrange(4) :]
                case 2:
                    body = body.replace(b'"action": "', b'"action": "x-')
                case _:
                    body = body.replace(b'"type": "assert-', b'"type": "x-assert-')
        if method == "DELETE" and unquote(path).endswith("tables/t"):
            path += "x"  # it would be dropped, rightly
        query = dice.choice(QUERIES).format_map(names)
        key = dice.choice(["", "k", "\u00e9", "\ud800", "k" * 256, "a b", "\x00"])
        headers = {"idempotency-key": key} if dice.random() < 0.2 else {}
        return method, path, query, body, headers

    def _text(self) -> bytes:
        text = self.dice.choice(TEXTS)
        return text if self.dice.random() < 0.8 else text + self.dice.randbytes(9)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_the_answer_is_of_the_specification_and_no_row_is_lost(
    root: Path, seed: int
) -> None:
    requests = Anything(root, seed)
    catalog = requests.of.catalog
    for _ in range(100):
        asked = requests.odd()
        before = opened(root).snapshot
        answer = catalog.answer(*asked)
        assert answer.status in STATUSES, (answer, asked)
        if answer.status >= 400:
            assert opened(root).snapshot.version == before.version, (answer, asked)
            if asked[0] != "HEAD":
                said = json.loads(answer.body)["error"]
                assert said["code"] == answer.status and said["message"] and said["type"], said
        elif answer.body:
            json.loads(answer.body)
    assert {each.name for each in root.parent.iterdir()} == {"tables"}
    assert requests.shown()["last-sequence-number"] == opened(root).version
    assert opened(root).maintain.verify(depth="pages").errors == ()

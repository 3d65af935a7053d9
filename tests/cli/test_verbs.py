"""Each verb does what its help says, and reports it as JSON to a program."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from tests.cli.conftest import Run
from tests.tiers import in_short


def names(inlay: Run, table: str, *more: str) -> list[str]:
    return [row["name"] for row in inlay("scan", table, "--json", *more).lines]


def test_create_takes_the_columns_of_a_parquet_file(inlay: Run, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.decimal128(9, 2))])
    pq.write_table(schema.empty_table(), tmp_path / "some.parquet")
    inlay("create", "t", "--like", "some.parquet", "--sort-by", "k")
    shown = inlay("show", "t", "--json").json
    assert [(c["name"], c["type"], c["nullable"]) for c in shown["columns"]] == [
        ("k", "int32", False),
        ("v", "decimal128(9, 2)", True),
    ]
    assert shown["sort_by"] == ["k"]


def test_an_interval_of_parquet_is_refused(inlay: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS id, INTERVAL '1 month' AS x) TO '{path}' (FORMAT parquet)")
    inlay("create", "t", "--schema", "id int, x fixed(12)")
    for command in (("create", "u", "--like", str(path)), ("append", "t", str(path))):
        said = inlay(*command, code=2).err
        assert "'x' is an INTERVAL" in said and "next:" in said


def test_create_sets_properties(inlay: Run) -> None:
    inlay("create", "t", "--schema", "id int", "--set", "delete.mode=vector")
    assert inlay("show", "t", "--json").json["properties"]["delete.mode"] == "vector"


def test_append_of_several_files_is_one_commit(inlay: Run, people: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 4, "name": "Dee", "born": "2000-01-01"}\n')
    pq.write_table(pa.table({"born": [None], "name": ["Eve"], "id": [5]}), tmp_path / "b.parquet")
    result = inlay("append", people, "a.json", "b.parquet", "--json").json
    assert (result["version"], result["added_rows"]) == (3, 2)
    assert names(inlay, people) == ["Ada", "Bob", "Cy", "Dee", "Eve"]


def test_append_with_the_same_request_id_changes_nothing(inlay: Run, people: str) -> None:
    first = inlay("append", people, "people.csv", "--request-id", "x", "--json").json
    again = inlay("append", people, "people.csv", "--request-id", "x", "--json").json
    assert (first["committed"], again["committed"]) == (True, False)
    assert again["version"] == first["version"]
    assert inlay("count", people, "--json").json["rows"] == 6


def test_ingest_takes_an_object_once_and_names_what_it_cannot_take(
    inlay: Run, people: str, tmp_path: Path
) -> None:
    rows = pa.table({"id": [7], "name": ["Gil"], "born": pa.array([None], pa.date32())})
    pq.write_table(rows, tmp_path / "good.parquet")
    (tmp_path / "bad.parquet").write_text("not parquet at all")
    good, bad = (tmp_path / "good.parquet").as_uri(), (tmp_path / "bad.parquet").as_uri()

    ran = inlay("ingest", people, good, bad, "--json", code=2).json
    assert [each["outcome"] for each in ran["outcomes"]] == ["ingested", "rejected"]
    assert "bad.parquet" in json.dumps(ran["outcomes"][1])
    again = inlay("ingest", people, good, "--json").json
    assert [each["outcome"] for each in again["outcomes"]] == ["duplicate"]
    assert names(inlay, people) == ["Ada", "Bob", "Cy", "Gil"]


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_delete_hides_the_rows_in_every_mode(inlay: Run, people: str, mode: str) -> None:
    result = inlay("delete", people, "--where", "name LIKE 'B%'", "--mode", mode, "--json").json
    assert result["committed"]
    assert names(inlay, people) == ["Ada", "Cy"]


def test_delete_explain_deletes_nothing(inlay: Run, people: str) -> None:
    told = inlay("delete", people, "--where", "id < 3", "--explain", "--json").json
    assert told["rows"] == 2
    assert inlay("count", people, "--json").json == {"rows": 3, "version": 2}


def test_delete_by_a_file_of_keys(inlay: Run, people: str, tmp_path: Path) -> None:
    (tmp_path / "gone.csv").write_text("id\n1\n3\n")
    inlay("delete", people, "--keys", "gone.csv")
    assert names(inlay, people) == ["Bob"]


def test_keys_whose_rows_name_other_columns_are_refused(
    inlay: Run, people: str, tmp_path: Path
) -> None:
    """A name that a row lacks would be NULL, which equals nothing: the row would be left out."""
    (tmp_path / "gone.jsonl").write_text('{"id": 1, "name": "Ada"}\n{"id": 3}\n')
    answer = inlay("delete", people, "--keys", "gone.jsonl", code=2)
    assert "object 2 lacks 'name'" in answer.err
    assert names(inlay, people) == ["Ada", "Bob", "Cy"]


def test_update_sets_columns_where_the_condition_is_true(inlay: Run, people: str) -> None:
    inlay("update", people, "--set", "name = 'Ada L.'", "--where", "id = 1")
    assert sorted(names(inlay, people)) == ["Ada L.", "Bob", "Cy"]


GIVEN_TWICE = [
    ("update", "people", "--where", "id = 1", "--set", "name = 'x'", "--set", "name='y'"),
    ("set", "people", "delete.mode=vector", "delete.mode=tombstone"),
    ("alter", "people", "--add", "a int", "--add", "a string"),
    ("alter", "people", "--rename", "name=first", "--rename", "name=last"),
    ("alter", "people", "--widen", "id=decimal(20,0)", "--widen", "id=double"),
    ("alter", "people", "--comment", "id=one", "--comment", "id=two"),
    ("alter", "people", "--add", "a int", "--default", "a=1", "--default", "a=2"),
    ("delete", "people", "--where", "id = 1", "--metadata", "job=1", "--metadata", "job=2"),
    ("create", "more", "--schema", "id int", "--set", "sort_by=id", "--set", "sort_by="),
]
# One option of each command.
SHORT = [each for each in GIVEN_TWICE if each[0] != "alter" or each[2] == "--rename"]


@pytest.mark.parametrize("arguments", in_short(GIVEN_TWICE, SHORT))
def test_a_name_given_twice_is_refused(inlay: Run, people: str, arguments: tuple[str, ...]) -> None:
    """The last would count, and nothing say so."""
    assert "is given twice for" in inlay(*arguments, code=2).err
    assert inlay("count", people, "--json").json == {"rows": 3, "version": 2}


def test_upsert_replaces_rows_with_the_same_key(inlay: Run, people: str, tmp_path: Path) -> None:
    (tmp_path / "changes.csv").write_text("id,name,born\n2,Bea,1950-01-01\n9,Ivy,\n")
    inlay("upsert", people, "changes.csv")
    assert sorted(names(inlay, people)) == ["Ada", "Bea", "Cy", "Ivy"]


def test_scan_of_the_past(inlay: Run, people: str) -> None:
    inlay("delete", people, "--where", "id = 1")
    assert names(inlay, people, "--version", "2") == ["Ada", "Bob", "Cy"]
    then = inlay("history", people, "--json").lines[1]["time"]
    assert names(inlay, people, "--as-of", then) == ["Ada", "Bob", "Cy"]


def test_scan_chooses_columns_rows_and_how_many(inlay: Run, people: str) -> None:
    ran = inlay("scan", people, "-c", "born,id", "-w", "id > 1", "-n", "1", "--json")
    assert ran.lines == [{"born": "1950-01-01", "id": 2}]
    assert list(ran.lines[0]) == ["born", "id"]


def test_scan_gives_the_first_rows_of_an_order(inlay: Run, people: str) -> None:
    ran = inlay("scan", people, "-c", "name", "--order-by", "born DESC, id", "-n", "2")
    assert ran.out == "name\nCy\nBob\n"
    refused = inlay("scan", people, "--order-by", "born", code=2)
    assert "needs a limit" in refused.err


def test_a_dash_is_stdout(inlay: Run, people: str) -> None:
    assert inlay("scan", people, "-o", "-").out == inlay("scan", people).out
    assert inlay("scan", people, "-o", "-", "--json").out == inlay("scan", people, "--json").out
    assert not Path("-").exists()


def test_scan_in_a_pipe_is_csv(inlay: Run, people: str) -> None:
    assert inlay("scan", people, "-c", "id,name").out == "id,name\n1,Ada\n2,Bob\n3,Cy\n"


def test_scan_on_a_terminal_shows_the_first_rows_and_says_that_there_are_more(
    inlay: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inlay.cli.reading as reading

    (tmp_path / "many.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(100, 150)))
    inlay("create", "many", "--schema", "id int")
    inlay("append", "many", "many.csv")

    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(reading, "sys", terminal)
    ran = inlay("scan", "many")
    assert "119" in ran.out
    assert "120" not in ran.out
    assert "the first 20 rows" in ran.err
    assert "149" in inlay("scan", "many", "--limit", "100").out


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.json"])
def test_scan_writes_files_that_append_reads_back(inlay: Run, people: str, name: str) -> None:
    assert inlay("scan", people, "--output", name, "--json").json == {"output": name, "rows": 3}
    inlay("create", "copy", "--like", "out.parquet") if name.endswith("parquet") else inlay(
        "create", "copy", "--schema", "id bigint not null, name string, born date"
    )
    inlay("append", "copy", name)
    assert inlay("scan", "copy", "--json").lines == inlay("scan", people, "--json").lines


def test_count_and_explain_take_conditions(inlay: Run, people: str) -> None:
    assert inlay("count", people, "-w", "born >= DATE '1950-01-01'").out.strip() == "2"
    assert inlay("explain", people, "-w", "id > 100", "--json").json["files_read"] == 0


def test_show_history_files_and_tombstones_describe_the_table(inlay: Run, people: str) -> None:
    inlay("delete", people, "--where", "name = 'Bob'")
    shown = inlay("show", people, "--json").json
    assert (shown["version"], shown["rows_in_files"], shown["delete_markers"]) == (3, 3, 1)
    assert shown["primary_key"] == ["id"]
    assert [v["operation"] for v in inlay("history", people, "--json").lines] == [
        "delete",
        "append",
        "create",
    ]
    (file,) = inlay("files", people, "--json").lines
    assert file["rows"] == 3
    (marker,) = inlay("tombstones", people, "--json").lines
    assert marker["where"] == "name = 'Bob'"


@pytest.mark.parametrize("verb", ["show", "history", "files", "tombstones", "erase-status"])
def test_people_get_text(inlay: Run, people: str, verb: str) -> None:
    inlay("delete", people, "--where", "name = 'Bob'")
    out = inlay(verb, people).out
    assert out.strip()
    assert not out.lstrip().startswith("{")


def test_set_changes_a_property_and_takes_it_back(inlay: Run, people: str) -> None:
    inlay("set", people, "history.days=30", "my.owner=ada")
    properties = inlay("show", people, "--json").json["properties"]
    assert (properties["history.days"], properties["my.owner"]) == ("30", "ada")
    inlay("set", people, "history.days=", "my.owner=")
    properties = inlay("show", people, "--json").json["properties"]
    assert properties["history.days"] == "7"
    assert "my.owner" not in properties


def test_maintenance_removes_rows_files_versions_and_objects(
    inlay: Run, people: str, tmp_path: Path
) -> None:
    inlay("append", people, "people.csv")
    inlay("delete", people, "--where", "id = 2")
    assert "pack" in inlay("compact", people, "--dry-run").out

    explained = inlay("rewrite", people, "--explain").out
    for way in ("tombstone kept", "surgery ", "whole rewrite", "requests"):
        assert way in explained
    [(_, choice), _] = inlay("rewrite", people, "--explain", "--json").json["choices"]
    assert (choice["touched"]["groups"], choice["row_groups"]) == (1, 1)
    assert choice["surgery"]["read_bytes"] > 0

    rewritten = inlay("rewrite", people, "--json").json
    assert (rewritten["removed_rows"], rewritten["removed_markers"]) == (2, 1)
    compacted = inlay("compact", people, "--json").json
    assert (compacted["input_files"], compacted["output_files"]) == (2, 1)
    expired = inlay("expire", people, "--older-than", "0", "--json").json
    # As of any time within the kept age the table can be read: the version before the last stays.
    assert expired["expired"] > 0
    assert inlay("gc", people, "--grace", "7d", "--dry-run", "--json").json["objects"] == 0
    assert names(inlay, people) == ["Ada", "Cy", "Ada", "Cy"]


def test_rewrite_takes_a_condition(inlay: Run, people: str) -> None:
    inlay("append", people, "people.csv")
    inlay("delete", people, "--where", "id = 2")
    assert inlay("rewrite", people, "--where", "id = 77", "--json").json["files"] == 0


def test_collect_garbage_is_another_name_of_gc(inlay: Run, people: str) -> None:
    one = inlay("gc", people, "--dry-run", "--json").json
    two = inlay("collect-garbage", people, "--dry-run", "--json").json
    assert one["operation"] == two["operation"] == "collect_garbage"


def test_an_erasure_is_brought_to_its_receipt_by_hand(
    inlay: Run, people: str, tmp_path: Path
) -> None:
    said = inlay("delete", people, "--where", "id = 2", "--mode", "erase", "--request-id", "case-7")
    assert "can no longer be read" in said.err
    assert names(inlay, people) == ["Ada", "Cy"]
    (open_,) = inlay("erase-status", people, "--json").lines
    assert (open_["id"], open_["phase"]) == ("case-7", "rewrite")
    assert open_["waiting"]
    assert "waits for  1 of file" in inlay("erase-status", people).out

    (rewritten,) = inlay("rewrite", people, "--json").lines
    assert rewritten["removed_rows"] == 1
    ended = inlay("gc", people, "--grace", "0", "--life", "0", "--clock-margin", "0", "--json").json
    assert len(ended["receipts"]) == 1
    assert inlay("erase-status", people, "--json").lines == []
    assert "0 erasures" in inlay("erase-status", people).out
    assert len(list((tmp_path / people / "erasure").iterdir())) == 1
    held = [f for f in (tmp_path / people).rglob("*.parquet") if "Bob" in str(pq.read_table(f))]
    assert held == []


def test_an_empty_key_in_the_environment_is_none(
    inlay: Run, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees a digest under an empty key can try conditions."""
    monkeypatch.setenv("INLAY_ERASURE_KEY", "")
    inlay("delete", people, "--where", "id = 2", "--mode", "erase", "--request-id", "case-7")
    inlay("rewrite", people)
    inlay("gc", people, "--grace", "0", "--life", "0", "--clock-margin", "0")
    assert "none: no HMAC key was set" in inlay("receipt", people, "case-7").out


def test_a_receipt_is_shown_checked_and_registered(
    inlay: Run, people: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key.pem").write_bytes(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    (tmp_path / "public.pem").write_bytes(
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "hmac.key").write_text("secret\n")
    monkeypatch.setenv("INLAY_ERASURE_KEY", "secret")
    monkeypatch.setenv("INLAY_RECEIPT_KEY_FILE", str(tmp_path / "key.pem"))
    inlay("delete", people, "--where", "id = 2", "--mode", "erase", "--request-id", "<b>7")
    (open_,) = inlay("erasures", people, "--json").lines
    assert (open_["state"], open_["ended"]) == ("rewrite", None)
    inlay("rewrite", people)
    inlay("gc", people, "--grace", "0", "--life", "0", "--clock-margin", "0")
    monkeypatch.delenv("INLAY_ERASURE_KEY")
    keys = ("--key-file", str(tmp_path / "hmac.key"), "--public-key", str(tmp_path / "public.pem"))
    verify = ("erase-status", people, "--verify", "<b>7")
    (checked,) = inlay(*verify, "--where", "id = 2", *keys, "--json").lines
    assert (checked["problems"], checked["rows"], checked["number"]) == ([], 0, 1)
    assert checked["signed"].endswith(", checked")
    bound = ("--where", "id = :who", "--param", "who=2")
    assert inlay(*verify, *bound, *keys, "--json").lines == [checked]
    assert "not used" in inlay(*verify, "--where", "id = 2", "--param", "2", code=2).err
    assert "--param needs --where" in inlay(*verify, "--param", "2", code=2).err
    other = inlay(*verify, "--where", "id = 3", *keys, code=1).out
    assert "! the receipt is of another condition" in other
    assert "1 rows that the condition selects" in other
    assert "id" in inlay("receipt", people, "<b>7").out
    inlay("receipt", people, "<b>7", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;7" in page and "<b>7" not in page and "<script" not in page
    (entry,) = csv.DictReader(inlay("erasures", people, "--csv").out.splitlines())
    assert (entry["id"], entry["state"], entry["overdue"]) == ("<b>7", "ended", "False")
    assert "1 erasure: 0 under way" in inlay("erasures", people).out
    (tmp_path / people / "erasure" / "junk").write_bytes(b"{")
    assert "erasure/junk is no receipt" in inlay("erasures", people).err
    assert "--verify ID" in inlay("erase-status", people, "--where", "id = 2", code=2).err


def test_a_person_is_searched_in_all_text(inlay: Run, people: str) -> None:
    search = ("subject", "search", people)
    found = inlay(*search, "--text", "Bob", "--text", "bo", "--ignore-case").out
    assert "'Bob': 1 row in name, 1 file" in found and "'bo': 1 row in name" in found
    (row,) = inlay(*search, "--text", "Bob", "--json").lines
    assert (row["text"], row["column"], row["rows"]) == ("Bob", "name", 1)
    assert "nowhere in this table" in inlay(*search, "--text", "nobody").out
    assert "cannot 'find'" in inlay("subject", "find", people, "--text", "x", code=2).err


def test_everything_that_an_erasure_waits_for_is_shown(inlay: Run, people: str) -> None:
    for turn in range(25):
        inlay("append", people, "people.csv", "--request-id", str(turn))
    inlay("delete", people, "--where", "id = 2", "--mode", "erase", "--request-id", "case-7")
    (open_,) = inlay("erase-status", people, "--json").lines
    waiting = [each["name"] for each in open_["waiting"]]
    shown = inlay("erase-status", people).out
    assert len(waiting) == 26 and "26 of file" in shown
    assert [name in shown for name in waiting] == [True] * 20 + [False] * 6
    assert "and 6 more" in shown


def test_tables_are_partitioned_and_partitions_listed(inlay: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at\n1,2024-02-29T10:00:00Z\n2,2024-03-01T10:00:00Z\n3,\n")
    columns = "id bigint, at timestamptz"
    inlay("create", "t", "--schema", columns, "--partition-by", "day(at), bucket(2, id)")
    inlay("append", "t", "a.csv")
    assert inlay("show", "t", "--json").json["partition_by"] == ["day(at)", "bucket(2, id)"]
    listed = inlay("partitions", "t")
    assert "at_day=2024-02-29, id_bucket_2=0" in listed.out and "at_day=NULL" in listed.out
    first = inlay("partitions", "t", "--json").lines[0]
    assert (first["files"], first["partition"][0]["value"]) == (1, "2024-02-29")
    inlay("partition", "t", "month(at)")
    inlay("append", "t", "a.csv")
    assert "at_month=2024-02" in inlay("partitions", "t").out
    inlay("partition", "t", "--none")
    assert inlay("show", "t", "--json").json["partition_by"] == []
    assert "day does not take" in inlay("partition", "t", "day(id)", code=2).err
    assert "--none" in inlay("partition", "t", code=2).err


def test_apply_changes_in_the_order_of_events(inlay: Run, people: str, tmp_path: Path) -> None:
    inlay(
        "create", "accounts", "--schema", "id bigint, lsn bigint, v string", "--primary-key", "id"
    )
    (tmp_path / "one.csv").write_text("op,id,lsn,v\nc,1,1,a\nd,2,9,\n")
    (tmp_path / "two.csv").write_text("op,id,lsn,v\nu,1,5,b\nu,2,5,late\n")
    (tmp_path / "bad.csv").write_text("op,id,lsn,v\nDELETE ,1,9,\n")
    changes = ("apply-changes", "accounts")
    inlay(*changes, "one.csv", "--order", "lsn", "--op", "op", "--request-id", "b1")
    said = inlay(*changes, "two.csv", "--order", "lsn", "--op", "op", "--json").json
    assert (said["inserted"], said["updated"], said["late"]) == (0, 1, 1)
    assert "1 record was late" in said["note"]
    assert (
        "'DELETE ' in 1" in inlay(*changes, "bad.csv", "--order", "lsn", "--op", "op", code=2).err
    )


def test_values_of_a_condition_are_bound(inlay: Run, people: str) -> None:
    crafted = "x' OR 'a' = 'a"
    counted = ("count", people, "--json", "--where")
    assert inlay(*counted, "name = :name", "--param", f"name={crafted}").json["rows"] == 0
    assert (
        inlay(*counted, "name = ? AND id = ?", "--param", "Ada", "--param", "1").json["rows"] == 1
    )
    inlay(
        "update",
        people,
        "--set",
        "name=:n",
        "--where",
        "id = :i",
        "--param",
        "i=1",
        "--param",
        f"n={crafted}",
    )
    strange = ("name = :name", "--param", "name=Ada", "--param", "nmae=Bob")
    assert "--param 'nmae' is no name" in inlay(*counted, *strange, code=2).err
    inlay("delete", people, "--where", "name = ?", "--param", crafted)
    assert sorted(names(inlay, people)) == ["Bob", "Cy"]
    assert "none is given" in inlay(*counted, "name = ?", code=2).err


def test_overwrite_replaces_what_it_wrote(inlay: Run, people: str, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("id,name,born\n2,Bea,1950-01-01\n")
    for _ in range(2):
        inlay("overwrite", people, "day.csv", "--where", "id = ?", "--param", "2")
    assert sorted(names(inlay, people)) == ["Ada", "Bea", "Cy"]
    assert (
        "not among those" in inlay("overwrite", people, "day.csv", "--where", "id = 1", code=2).err
    )


def test_a_copy_and_a_clone_say_what_became_of_the_files(inlay: Run, people: str) -> None:
    """A copy has files of its own, a clone shares them: a hold on them is in the way of a drop, by name."""
    copied, cloned = (
        inlay("copy", people, "--into", "one").out,
        inlay("clone", people, "--into", "two").out,
    )
    assert "copied files" in copied and "shared files" in cloned and "copied" not in cloned
    assert "inlay tag TABLE NAME --release" in inlay("drop", people, "--dry-run", code=2).err

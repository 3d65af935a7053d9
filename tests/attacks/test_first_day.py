"""What somebody does on the first day: look around, name things, watch, clear up."""

from __future__ import annotations

import datetime as dt
import io
import logging
import subprocess
import sys
import warnings
from contextlib import redirect_stderr
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest, RefHeld, TableNotFound
from inlay.ops.verify.repair import repair

PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def place(tmp_path):
    return tmp_path / "tables" / "people"


@pytest.fixture
def people(place):
    table = inlay.create(place, PEOPLE)
    table.append(pa.table({"id": [1, 2], "name": ["Ada", "Bob"]}))
    return table


# -- the end of a table -------------------------------------------------------------------------------


def test_a_dropped_table_is_hidden_can_be_repaired_and_goes_after_the_grace(people, place):
    before = people.scan().to_arrow()
    look = inlay.drop(place, dry_run=True)
    assert (look.deleted, look.dry_run, inlay.exists(place)) == (False, True, True)

    done = inlay.drop(place)
    assert not done.deleted and not inlay.exists(place)
    with pytest.raises(TableNotFound):
        inlay.open(place)
    again = inlay.drop(place)
    assert not again.deleted and again.due_us == done.due_us  # the grace is not begun again

    assert repair(inlay.connect(place), dry_run=False).mends
    assert inlay.open(place).scan().to_arrow() == before

    inlay.drop(place)
    gone = inlay.drop(place, grace=dt.timedelta(0))
    assert gone.deleted and gone.objects > 3
    assert [each for each in place.rglob("*") if each.is_file()] == []
    with pytest.raises(TableNotFound):
        inlay.drop(place)
    assert inlay.create(place, PEOPLE).count() == 0


def test_what_is_not_the_tables_stays(people, place):
    (place / "notes.txt").write_text("mine")
    done = inlay.drop(place, grace=dt.timedelta(0))
    assert done.deleted and len(done.kept) == 1
    assert [each.name for each in place.rglob("*") if each.is_file()] == ["notes.txt"]


def test_holds_and_erasures_refuse_a_drop(people, place):
    people.refs.tag("case", hold=True)
    with pytest.raises(RefHeld, match="case"):
        inlay.drop(place, grace=dt.timedelta(0))
    people.refs.set_hold("case", False)
    people.refs.drop("case")
    people.delete("id = 1", mode="erase")
    with pytest.raises(InvalidRequest, match="under way"):
        inlay.drop(place)
    assert inlay.open(place).count() == 1


def test_tables_below_a_prefix_are_listed(people, place, tmp_path):
    inlay.create(tmp_path / "tables" / "more" / "deep", PEOPLE)
    found = inlay.tables(tmp_path / "tables")
    assert [each.rpartition("/tables/")[2] for each in found] == ["more/deep", "people"]
    assert [inlay.open(each).version for each in found] == [1, 2]


# -- columns ------------------------------------------------------------------------------------------


def test_a_key_and_comments_come_later(people):
    people.alter(primary_key="id", comment={"name": "as on the passport"})
    assert people.schema.field("name").metadata == {b"comment": b"as on the passport"}
    people.upsert(pa.table({"id": [2, 3], "name": ["Bo", "Cy"]}))
    rows = people.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["name"] for row in rows] == ["Ada", "Bo", "Cy"]
    assert not people.alter(primary_key=["id"]).committed  # as it is
    assert inlay.open(people.uri, version=2).snapshot.primary_key == ()
    people.alter(rename={"id": "number"}, comment={"name": ""}, primary_key=["number", "name"])
    assert people.schema.field("name").metadata is None
    assert len(people.snapshot.primary_key) == 2
    with pytest.raises(InvalidRequest, match="no column 'id'"):
        people.alter(primary_key=["id"])


def test_a_range_delete_uses_a_key_that_came_later(people):
    people.alter(primary_key=["id"])
    people.delete("id BETWEEN 1 AND 1")
    assert people.inspect.tombstones()["kind"].to_pylist() == ["range"]
    assert people.count() == 1


def test_arrow_metadata_that_is_not_kept_is_named(tmp_path):
    field = pa.field("id", pa.int64(), metadata={"unit": "kg", "comment": "kept"})
    with pytest.warns(UserWarning, match=r"owner, id\.unit"):
        table = inlay.create(tmp_path / "a", pa.schema([field], metadata={"owner": "me"}))
    assert table.schema.field("id").metadata == {b"comment": b"kept"}
    frame = pa.Table.from_pandas(pd.DataFrame({"id": [1], "word": ["x"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inlay.create(tmp_path / "b", frame.schema).append(frame)


# -- notebooks, logs, progress ------------------------------------------------------------------------


def test_a_notebook_shows_the_table_as_text(tmp_path):
    table = inlay.create(tmp_path / "<b>t", pa.schema([("<i>id", pa.int64())]), primary_key="<i>id")
    table.append(pa.table({"<i>id": range(5)}))
    table.delete('"<i>id" = 3')
    shown = table._repr_html_()
    assert "<i>id" not in shown and "<b>t" not in shown
    for said in ("&lt;i&gt;id", "int64", "key", "4 in 1 file", "version <b>3", "deletes <b>1"):
        assert said in shown


def test_a_notebook_shows_results_plans_and_reports_as_tables(people):
    done = people.delete("id = 1")
    for shown, said in (
        (done, ["<th>operation</th><td>delete</td>", "<th>requests</th>"]),
        (people.scan(where="name = '<b>'").explain(), ["<th>where</th>", "&lt;b&gt;"]),
        (people.inspect.report(), ["<th>live rows</th>", "<th>uri</th>"]),
        (people.maintain.compact(), ["<th>version</th>"]),
        (people.maintain.collect_garbage(dry_run=True), ["<th>dry run</th><td>True</td>"]),
    ):
        html = shown._repr_html_()
        assert html.startswith("<table>") and "<b>" not in html
        assert all(part in html for part in said), html
    assert done.note == "" and "<th>note</th>" not in done._repr_html_()


def test_a_table_has_a_head_a_length_and_columns(people):
    assert people.columns == ["id", "name"]
    assert len(people) == people.count() > 0
    assert people.head(1).num_rows == 1
    assert len(people.to_pandas()) == len(people)
    people.delete("TRUE")
    assert len(people) == 0 and people  # a table without rows is one


def test_the_log_says_what_was_committed(people, caplog):
    with caplog.at_level(logging.INFO, logger="inlay"):
        people.append(pa.table({"id": [3], "name": ["Cy"]}))
    assert "append of" in caplog.text and "version 3" in caplog.text
    assert "Cy" not in caplog.text


def test_progress_is_drawn_or_handed_over(people, monkeypatch):
    calls = []
    table = inlay.open(people.uri, progress=lambda *told: calls.append(told))
    table.maintain.verify(depth="pages")
    assert calls and all(len(each) == 3 for each in calls)
    for missing in ((), ("rich",), ("rich", "tqdm")):
        import inlay.progress as module

        found = module.find_spec
        monkeypatch.setattr(
            module,
            "find_spec",
            lambda name, gone=missing, f=found: None if name in gone else f(name),
        )
        with redirect_stderr(io.StringIO()):
            assert inlay.open(people.uri, progress=True).maintain.verify(depth="pages").ok


def test_long_appends_and_scans_report_and_end(tmp_path, monkeypatch):
    monkeypatch.setattr("inlay.ops.data.REPORT_ROWS", 10)
    calls = []
    schema = pa.schema([("id", pa.int64())])
    t = inlay.create(str(tmp_path / "t"), schema)
    t = inlay.open(t.uri, progress=lambda *each: calls.append(each))
    t.append(pa.table({"id": range(5)}))
    assert not calls  # short work draws nothing
    rows = [pa.record_batch({"id": range(n, n + 8)}) for n in range(0, 40, 8)]
    t.append(pa.RecordBatchReader.from_batches(schema, rows))
    assert [done for _, done, _ in calls] == [16, 32, 40]
    assert calls[-1] == ("rows written", 40, 40)
    calls.clear()
    assert t.scan().to_arrow().num_rows == 45
    assert calls == [("files read", 1, 2), ("files read", 2, 2)]
    calls.clear()
    reader = t.scan(limit=1).to_reader()
    reader.read_all()
    assert not calls


@pytest.mark.parametrize(
    ("rows", "step"),
    [
        ([{"id": 1}], "from_pylist"),
        ({"id": [1]}, "pa.table"),
        ("a.csv", "inlay append"),
        (7, "Arrow"),
    ],
)
def test_rows_in_other_forms_are_refused_with_what_to_give(people, rows, step):
    with pytest.raises(InvalidRequest) as refused:
        people.append(rows)
    assert step.lower() in refused.value.next_step.lower()


def test_the_package_shows_what_it_has():
    assert {*inlay.__all__} <= {*dir(inlay)}
    assert not [
        name for name in dir(inlay) if not name.startswith("__") and name not in inlay.__all__
    ]
    assert all(hasattr(inlay, name) for name in inlay.__all__)


# -- odd data -----------------------------------------------------------------------------------------


def test_a_text_file_is_not_ingested_and_the_error_says_what_reads_it(people, tmp_path):
    for name in ("a.csv", "b.jsonl.gz", "c.TSV"):
        (tmp_path / name).write_text("id,name\n1,x\n")
        [outcome] = people.ingest([(tmp_path / name).as_uri()]).outcomes
        assert "is not ingested" in outcome.error.message
        assert "inlay append" in outcome.error.next_step
    assert people.count() == 2


def test_pandas_frames_with_an_index_categories_and_zones_come_back(tmp_path):
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(["a", None, "b"]),
            "at": pd.to_datetime(
                ["2026-03-29 00:30", "2026-10-25 02:30", None], utc=True
            ).tz_convert("Europe/Zurich"),
            "n": pd.array([1, None, 3], dtype="Int64"),
            "x": [0.5, float("nan"), -0.0],
            "tags": [["a"], [], None],
        },
        index=pd.Index([10, 20, 30], name="key"),
    )
    rows = pa.Table.from_pandas(frame)
    table = inlay.create(tmp_path / "t", rows.schema)
    table.append(frame)
    back = table.scan().to_arrow()
    assert back.equals(rows.replace_schema_metadata(None).cast(back.schema))
    assert str(back.schema.field("at").type) == "timestamp[ns, tz=Europe/Zurich]"
    assert pa.types.is_dictionary(back.schema.field("kind").type)
    assert table.count(where="kind = 'a' AND year(at) = 2026 AND n = 1 AND length(tags) = 1") == 1
    assert table.count("hour(at) = 0") == 1  # UTC


def test_the_command_line_lists_drops_and_names_what_is_missing(people, place, tmp_path):
    def run(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "inlay", *words], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == code, done.stderr
        return done

    assert run("tables", "tables").stdout.split() == ["table", "tables/people"] or (
        "people" in run("tables", "tables").stdout
    )
    assert "TABLE" in run("create", code=2).stderr
    assert "--yes" in run("drop", str(place), code=2).stderr
    assert "--where" in run("delete", str(place), code=2).stderr
    assert inlay.exists(place)
    run("drop", str(place), "--yes", "--grace", "0d")
    assert not inlay.exists(place)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    help_ = run("scan", "--help").stdout
    assert "<bool>" not in help_ and "<str>" not in help_ and "list[" not in help_


def test_rows_that_arrow_does_not_take_are_refused_by_column(tmp_path):
    pd = pytest.importorskip("pandas")
    import polars as pl

    t = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    for data, named in [
        (pd.DataFrame({"id": [1, "Mustermann"]}, dtype=object), "'id'"),
        (pd.DataFrame({"id": [1], "s": [{"a": 1}]}, dtype=object).assign(s=[object()]), "'s'"),
        (pd.DataFrame({"id": [complex(1)]}), "'id'"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "name of its own"),
        (pd.Series([1], name="id"), "to_frame"),
        (pl.Series("id", [1]), "to_frame"),
        (pa.chunked_array([[1]]), "pa.table"),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            t.append(data)
        assert named in str(refused.value)
        assert "Mustermann" not in str(refused.value)
    assert t.count() == 0
    t.append(pl.Series("rows", [{"id": 1, "s": "x"}]))  # a series of structs is a table
    assert t.count() == 1


class Shell:
    """What `get_ipython()` returns, as far as it is asked."""

    def __init__(self) -> None:
        self.display_formatter = self
        self.formatters = {"text/html": self}
        self.deferred_printers: dict = {}
        self.type_printers: dict = {}

    def for_type_by_name(self, module: str, name: str, shown) -> None:
        self.deferred_printers[module, name] = shown


def test_a_notebook_shows_the_tables_of_inspection_and_no_others(people, monkeypatch):
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    people.append(pa.table({"id": [9], "name": ["x"]}), message="<script>late</script>")
    history = people.inspect.history()
    assert isinstance(history, pa.Table)
    [(named, shown)] = shell.deferred_printers.items()
    assert named == (pa.Table.__module__, pa.Table.__name__)
    html = shown(history)
    assert "&lt;script&gt;late" in html and "<script>" not in html
    assert html.count("<tr>") == history.num_rows + 1 and "title='" in html
    inspect = people.inspect
    for made in (inspect.files, inspect.refs, inspect.columns, inspect.tombstones, inspect.schemas):
        assert shown(made()).startswith("<table><thead>")
    assert shown(people.scan().to_arrow()) is None
    assert shown(pa.concat_tables([history] * 40)).endswith("more rows</td></tr></tbody></table>")
    # Whoever has said how Arrow's tables are shown is not overruled.
    shell.deferred_printers = {named: "theirs"}
    assert people.inspect and shell.deferred_printers == {named: "theirs"}

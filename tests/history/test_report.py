"""What `inlay inspect` shows: figures, tree and page, whatever the names in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from inlay.cli.inspecting import as_script, page_of
from inlay.cli.tree import tree_of
from inlay.format.entry import ColumnStats, DataFile
from inlay.ops.commit.driver import commit
from inlay.ops.inspect.report import MAX_MARKS
from inlay.plan.change import AddFiles, Change
from inlay.table import Table
from inlay.text.written import to_json

from .histories import new_table, rows

HOSTILE = (
    '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>&amp;"\'`${1}'
)


@pytest.fixture
def events() -> Table:
    t = new_table(properties={"compact.small_file_bytes": 10_000})
    for n in range(12):
        t.append(rows([(i, i % 5) for i in range(n * 10, n * 10 + 10)]), request_id=f"batch {n}")
    t.delete("id BETWEEN 20 AND 34")
    t.delete("v = 4")
    t.delete("id = 0", mode="vector")
    return t


def test_a_query_is_explained_condition_by_condition(events: Table) -> None:
    query = events.inspect.report("id >= 100 AND v = 1 AND at IS NOT NULL").query
    assert query is not None
    explained = events.scan(where="id >= 100 AND v = 1 AND at IS NOT NULL").explain()
    assert (query.files, query.read, query.pruned) == (
        explained.files,
        explained.files_read,
        explained.pruned,
    )
    by_text = {c.text: c for c in query.conditions}
    assert by_text["id >= 100"].spares == 9  # one of the twelve was emptied by the delete
    assert "have bounds that include" in by_text["id >= 100"].why
    assert by_text["v = 1"].spares == 0
    assert "every file has bounds" in by_text["v = 1"].why


def test_a_condition_without_statistics_says_so() -> None:
    t = new_table(properties={"stats.columns": 1})
    t.append(rows([(1, 1)]))
    [condition] = t.inspect.report("v = 1").query.conditions  # type: ignore[union-attr]
    assert condition.why == "1 of 1 files have no statistics of v (stats.columns)"


def test_rows_are_counted_where_metadata_counts_them_and_bounded_else() -> None:
    t = new_table()
    t.append(rows([(n, n % 3) for n in range(30)]))
    t.append(rows([(n, n % 3) for n in range(30, 50)]))

    def shown() -> tuple[int, bool]:
        report = t.inspect.report()
        assert report.live_rows >= t.count()
        assert not report.live_rows_counted or report.live_rows == t.count()
        said = "" if report.live_rows_counted else "at most "
        assert f", {said}{report.live_rows} rows;" in _text_of(report)
        return report.live_rows, report.live_rows_counted

    assert shown() == (50, True)
    t.delete("id >= 30")  # all of a file, as its bounds say
    assert shown() == (30, True)
    t.delete("v = 1")
    assert shown() == (30, False)
    t.maintain.compact()
    t.maintain.rewrite()
    assert shown() == (20, True)
    t.update({"v": "7"}, where="id = 3")
    assert shown()[0] in (20, 21)


def test_files_are_placed_along_columns(events: Table) -> None:
    report = events.inspect.report()
    axis = next(a for a in report.axes if a.column == "id")
    assert axis.ticks[0] == (0.0, "0") and axis.ticks[-1] == (1.0, "119")
    assert max(axis.depth) <= 2  # neighbours may share a bucket
    at = report.axes.index(axis)
    places = [mark.places[at] for mark in report.marks]
    assert places == sorted(places)  # type: ignore[type-var]
    assert sum(m.files for m in report.marks) == events.inspect.files().num_rows
    assert sum(b.files for b in report.sizes) == events.inspect.files().num_rows


def test_maintenance_is_what_compaction_plans(events: Table) -> None:
    report = events.inspect.report("id = 5")
    care = report.maintenance
    assert care.query_files is not None
    before = len(report.marks)
    plan = events.maintain.compact(dry_run=True).plan
    assert sum(w.units for w in care.works) == len(plan.units)  # type: ignore[union-attr]
    events.maintain.compact()
    assert care.files == before
    assert events.inspect.files().num_rows == care.files_after
    assert events.inspect.report("id = 5").query.read == care.query_files[1]  # type: ignore[union-attr]


def test_a_million_files_would_come_out_as_a_bounded_page() -> None:
    t = new_table()
    stats = {1: lambda n: ColumnStats(n * 10, n * 10 + 30)}
    files = tuple(
        DataFile(
            key=f"data/{n}.parquet",
            size=1000 + n,
            footer_size=100,
            rows=10,
            row_groups=1,
            schema_id=0,
            stats={i: of(n) for i, of in stats.items()},
        )
        for n in range(MAX_MARKS * 2 + 1)
    )
    commit(t._ctx, Change(operation="append", updates=(AddFiles(files),)), base=t._loaded)
    report = t.refresh().inspect.report("id < 1000")
    assert len(report.marks) <= MAX_MARKS
    assert sum(m.files for m in report.marks) == len(files)
    assert report.query is not None and report.query.read == 100
    assert sum(m.read or 0 for m in report.marks) == 100
    assert len(page_of(report)) < 1_000_000


def test_an_empty_table_has_a_report() -> None:
    t = new_table()
    report = t.inspect.report("id = 1")
    assert [f.what for f in report.findings] == ["The table has no data files."]
    assert page_of(report)
    _text_of(report)


# -- the tree -------------------------------------------------------------------------------------


def _text_of(report: Any) -> str:
    console = Console(width=200, no_color=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(tree_of(report))
    return console.export_text()


def test_the_tree_names_what_matters(events: Table) -> None:
    text = _text_of(events.inspect.report("id = 5"))
    for said in ("history", "data files", "deletes to apply", "metadata", "query", "maintenance"):
        assert said in text
    assert "request batch 11" in text
    assert "id BETWEEN" in text or "id >= 20 AND id <= 34" in text
    assert "reads 1 of 11 files" in text


# -- the page -------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Elements as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data: dict[str, str] = {}
        self._at = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._at = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.data[self._at] = self.data.get(self._at, "") + data


@pytest.fixture
def hostile() -> Table:
    schema = pa.schema([("id", pa.int64()), (HOSTILE, pa.string())])
    t = new_table(schema=schema, sort_by=[HOSTILE], primary_key="id")
    t.append(
        pa.table({"id": [1, 2], HOSTILE: [HOSTILE, "\u2028\x1b[31m"]}, schema=schema),
        request_id=HOSTILE,
    )
    quoted = HOSTILE.replace('"', '""')
    value = HOSTILE.replace("'", "''")
    t.delete(f"\"{quoted}\" = '{value} no'")
    t.delete(f"\"{quoted}\" LIKE '%{value[:9]}%' AND id = 7")
    return t


def test_hostile_names_stay_text_in_the_page(hostile: Table) -> None:
    page = page_of(hostile.inspect.report())
    found = _Page(page)
    assert found.tags.count("script") == 2
    assert "img" not in found.tags
    shown = json.loads(found.data["report"])
    assert HOSTILE in [c["name"] for c in shown["table"]["columns"]]
    assert shown == json.loads(json.dumps(to_json(asdict(hostile.inspect.report()))))
    assert "\u2028" not in page


def test_the_page_fetches_nothing_and_runs_its_own_script_only(events: Table) -> None:
    page = page_of(events.inspect.report())
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "innerHTML" not in page and "eval(" not in page
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'\"", page)


@pytest.mark.parametrize("value", ["</script>", "<!--", "&lt;", {"a<b": ["\u2028"]}])
def test_script_json_reads_back(value: Any) -> None:
    text = as_script(value)
    assert "<" not in text and "&" not in text and text.isascii()
    assert json.loads(text) == value


def test_hostile_names_cannot_drive_a_terminal(hostile: Table) -> None:
    text = _text_of(hostile.inspect.report())
    assert "\x1b" not in text
    assert "</script>" in text


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed")
@pytest.mark.parametrize("which", ["events", "hostile", "empty"])
def test_a_browser_draws_the_page(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    t = new_table() if which == "empty" else request.getfixturevalue(which)
    path = tmp_path / "page.html"
    path.write_text(page_of(t.inspect.report("id >= 1")), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    ran = subprocess.run(
        [*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "CONSOLE" not in ran.stderr  # no error, nothing refused by the policy
    assert "What maintenance would gain" in ran.stdout
    assert "<title>owned" not in ran.stdout
    assert "<svg" in ran.stdout  # even an empty table has a time line

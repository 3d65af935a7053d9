"""The page of `inlay inspect --html`: its colours are in its legend, and its commands work."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from importlib.resources import files

import pyarrow as pa
import pytest
import typer

import inlay
from inlay.cli.app import app
from inlay.cli.inspecting import page_of

ASSETS = files("inlay.cli") / "assets"


def test_every_colour_that_is_drawn_is_defined_for_light_and_dark():
    style = (ASSETS / "inspect.css").read_text()
    light, dark = (set(re.findall(r"--([\w-]+):", part)) for part in style.split("@media", 2)[:2])
    used = set(re.findall(r"var\(--([\w-]+)\)", style + (ASSETS / "inspect.js").read_text()))
    assert used and used <= light and used <= dark
    assert light == dark


def test_no_shade_is_drawn_that_the_legend_lacks():
    """Half of a colour is another one to the eye; many files that lie on each other may shine through."""
    script = (ASSETS / "inspect.js").read_text()
    shades = [
        float(n)
        for part in re.findall(r'"fill-opacity":([^,}]*)', script)
        for n in re.findall(r"\d?\.\d+", part)
    ]
    assert shades and min(shades) >= 0.7


def test_findings_name_a_cause_and_commands_that_parse(tmp_path):
    table = inlay.create(tmp_path / "a b", pa.schema([("id", pa.int64()), ("word", pa.string())]))
    for part in range(12):
        rows = {"id": range(part, 1200, 12), "word": [f"w{n % 97}" for n in range(100)]}
        table.append(pa.table(rows))
    table.delete("word LIKE 'w1%'")
    report = table.inspect.report("word = 'w5'")
    assert {f.command.split()[1] for f in report.findings if f.command} == {
        "set",
        "compact",
        "rewrite",
    }
    commands = dict(typer.main.get_command(app).commands)
    for found in report.findings:
        assert found.what.endswith(".") and "`" not in found.what + found.why
        if found.command:
            assert found.why
            words = shlex.split(found.command.replace("TABLE", shlex.quote(table.uri)))
            commands[words[1]].make_context(words[1], words[2:])
    by_query = report.findings[0]
    assert "12 of 12 files" in by_query.what and "compact.columns=word" in by_query.command
    assert "A lookup of one value of id opens 12 of 12 files" in report.findings[1].what


def test_a_table_that_is_ordered_already_needs_a_compaction_and_no_setting(tmp_path):
    schema = pa.schema([("id", pa.int64())])
    table = inlay.create(tmp_path / "t", schema, sort_by=["id"])
    for part in range(12):
        table.append(pa.table({"id": range(part, 1200, 12)}))
    first, deep = table.inspect.report("id = 600").findings[:2]
    assert first.command == deep.command == "inlay compact TABLE"
    table.maintain.compact()
    assert table.inspect.report("id = 600").query.conditions[0].why.startswith("1 file has bounds")


def test_the_page_shows_the_commands_and_nothing_of_backticks(tmp_path):
    table = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    assert "`" not in page_of(table.inspect.report()).split('id="report">')[1].split("</script>")[0]


def test_a_condition_that_calculates_is_shown_as_it_was_written(tmp_path):
    table = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("word", pa.string())]))
    for first in (0, 10):
        table.append(pa.table({"id": range(first, first + 10), "word": ["x"] * 10}))
    query = table.inspect.report("id < 5 AND upper(word) = 'X'").query
    assert query.where == "id < 5 AND upper(word) = 'X'"
    assert [(c.text, c.spares) for c in query.conditions] == [("id < 5", 1), (query.where, 1)]
    assert "calculates" in query.conditions[1].why
    assert table.inspect.report("upper(word) = 'X'").query.read == 2


@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no chromium to draw the page"
)
def test_files_of_a_size_have_the_colours_of_the_files(tmp_path):
    """Deletes whose rows nobody counted were drawn there as rows that are deleted."""
    table = inlay.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("word", pa.string())]))
    table.append(pa.table({"id": range(100), "word": [f"w{n % 7}" for n in range(100)]}))
    table.delete("word LIKE 'w1%'")
    page = tmp_path / "page.html"
    page.write_text(page_of(table.inspect.report()))
    drawn = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    section, *_ = [part for part in drawn.split("<section")[1:] if "Data files" in part]
    fills = set(re.findall(r'fill="var\(--([\w-]+)\)"', section))
    assert "amber-soft" in fills and fills.isdisjoint({"amber", "orange", "red"})

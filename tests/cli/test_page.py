"""docs/CLI.md, followed line by line: each command on a table of this machine does its work."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.cli.conftest import Run

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"
# Of places that are not on this machine, and servers that run until they are ended.
ELSEWHERE = ("s3://", "$DELETE_DEAD_LETTERS", "inlay local", "inlay doctor")


def lines() -> list[list[str]]:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    written = block.replace("$(date -u +%FT%TZ)", "2099-01-31T12:00:00Z").splitlines()
    here = [line for line in written if line and not any(word in line for word in ELSEWHERE)]
    return [shlex.split(line.partition("  #")[0]) for line in here]


def test_the_page_runs_in_order(inlay: Run, tmp_path: Path) -> None:
    at = pa.array([datetime(2026, 1, 1)], pa.timestamp("us", "UTC"))
    rows = pa.table({"id": [7], "name": ["Cy"], "born": [date(1990, 5, 5)], "at": at})
    pq.write_table(rows, tmp_path / "tuesday.parquet")
    pq.write_table(
        pa.table({"id": [1], "order_date": [date(2026, 1, 1)]}), tmp_path / "orders.parquet"
    )
    head = "id,name,born,at\n"
    (tmp_path / "monday.csv").write_text(head + "1,Ada,1815-12-10,\n2,Bob,,\n42,test-x,,\n")
    (tmp_path / "more.csv").write_text(head + "11,Eve,,2026-01-31T12:00:00Z\n")
    (tmp_path / "gone.csv").write_text("id\n2\n")
    (tmp_path / "leavers.csv").write_text("case,id\ncase-70,70\ncase-71,71\n")
    (tmp_path / "changes.json").write_text('{"id": 7, "name": "Cyd"}\n{"id": 8, "name": "Dee"}\n')
    feed = {"op": "u", "id": 7, "name": "Cyd", "born": None, "at": "2027-01-01T00:00:00Z"}
    (tmp_path / "feed.json").write_text(json.dumps(feed) + "\n")
    plan = [
        {"delete": "./people", "where": "id = :id", "params": {"id": 999}},
        {"upsert": "./orders", "rows": [{"id": 1, "order_date": "2026-01-01"}], "on": ["id"]},
    ]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = lines()
    assert len(done) > 35
    for line in done:
        assert line[0] == "inlay"
        inlay(*line[1:])
    asked = ("--columns", "id,name", "--order-by", "id", "--limit", "9", "--json")
    left = inlay("scan", "people", *asked).lines
    assert left == [{"id": 1, "name": "Ada"}, {"id": 7, "name": "Cyd"}, {"id": 8, "name": "Dee"}]
    assert (tmp_path / "people.html").exists() and (tmp_path / "then.parquet").exists()

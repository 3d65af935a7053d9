"""`inlay commit`: several tables in one commit, from a plan in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

ORDER = {"append": "orders", "rows": [{"id": 1, "sku": "A-1"}]}
STOCK = {
    "update": "./stock",
    "set": {"n": "n - :by"},
    "where": "sku = :sku",
    "params": {"by": 1, "sku": "A-1"},
}


@pytest.fixture
def shop(inlay: Run, tmp_path: Path) -> Run:
    (tmp_path / "stock.csv").write_text("sku,n\nA-1,10\n")
    inlay("create", "orders", "--schema", "id bigint not null, sku string", "--primary-key", "id")
    inlay("create", "stock", "--like", "stock.csv", "--primary-key", "sku")
    inlay("append", "stock", "stock.csv")
    return inlay


def left(shop: Run) -> tuple[int, int]:
    [stock] = shop("scan", "stock", "--json").lines
    return len(shop("scan", "orders", "--json").lines), stock["n"]


def test_a_plan_is_one_commit_and_done_once(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps([ORDER, STOCK]))
    shown = shop("commit", "plan.json", "--request-id", "o-1").out
    assert "orders" in shown and "./stock" in shown and "requests" in shown
    again = shop("commit", "plan.json", "--request-id", "o-1", "--json").lines
    assert [(r["table"], r["version"], r["applied_before"]) for r in again] == [
        ("orders", 2, True),
        ("./stock", 3, True),
    ]
    assert left(shop) == (1, 9)


def test_a_plan_of_standard_input_with_files(shop: Run, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "more.csv").write_text("id,sku\n1,A-1\n2,A-1\n")
    plan = tmp_path / "in"
    plan.write_text(
        json.dumps({"operations": [{"append": "orders", "files": ["more.csv"]}, STOCK]})
    )
    with plan.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("inlay.cli.transactions.sys.stdin", stdin)
        from inlay.cli.transactions import _read

        assert len(_read("-")["operations"]) == 2
    shop("commit", "in")
    assert left(shop) == (2, 9)


WRONG = {
    "no file": None,
    "no JSON": "[",
    "nothing": "[]",
    "a name twice": '[{"append": "orders", "append": "stock", "rows": []}]',
    "a rounded number": '[{"append": "orders", "rows": [{"id": 0.12345678901234567890123}]}]',
    "an unknown field": '[{"append": "orders", "rows": [], "Ada": 1}]',
    "a table twice": json.dumps([ORDER, {**ORDER, "append": "./orders"}]),
    "a table that is not there": json.dumps([ORDER, {**ORDER, "append": "./nowhere"}]),
    "a value that does not fit": '[{"append": "orders", "rows": [{"id": "Ada"}]}]',
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_done(shop: Run, tmp_path: Path, name: str) -> None:
    if WRONG[name] is not None:
        (tmp_path / "plan.json").write_text(WRONG[name])
    said = shop("commit", "plan.json", code=2).err
    assert said.startswith("error: ") and "Traceback" not in said
    assert left(shop) == (0, 10)

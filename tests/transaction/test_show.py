"""`inlay show` of a table that is prepared for a transaction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.transaction.conftest import SCHEMA, leave_prepared, rows
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app


@pytest.mark.parametrize("decided", [None, True, False])
def test_show_names_a_transaction_while_nobody_has_decided_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decided: bool | None
) -> None:
    tables = [inlay.create(tmp_path / n, SCHEMA, primary_key="id") for n in "ab"]
    for table in tables:
        table.append(rows((1, 10)))
    leave_prepared(tables, monkeypatch, decided=decided)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "b")])
    facts = json.loads(CliRunner().invoke(app, ["show", str(tmp_path / "b"), "--json"]).stdout)
    assert shown.exit_code == 0
    if decided is None:
        assert "open since" in shown.stdout
        assert sorted(facts["transaction"]["tables"]) == sorted(
            t._ctx.location("").rstrip("/") for t in tables
        )
    else:
        assert "transaction" not in facts and "open since" not in shown.stdout

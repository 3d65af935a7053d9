"""The budgets of docs/benchmarks/index.md hold, as the server counts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cost.py"
sys.path.insert(0, str(BENCHMARK.parent))


@pytest.fixture(scope="module")
def cost() -> Any:
    spec = importlib.util.spec_from_file_location("inlay_cost_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_operation_is_within_its_budget(
    cost: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cost.main(["--metadata-files", "1000"])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "delete by a predicate" in told.out


def test_the_page_has_what_was_measured(cost: Any) -> None:
    """A table for each section, each of them in the page of measurements as `--write` stores it."""
    from collections import Counter

    import page

    count = cost.Count(Counter(PutObject=3), metadata=7, other=8, down=9)
    lines = [cost.Line(section, "planted", count, "a budget") for section in ("One", "Two")]
    assert cost.tables(lines, "###").splitlines() == [
        *("### One", "", *cost.table_of(lines, "One"), ""),
        *("### Two", "", *cost.table_of(lines, "Two")),
    ]
    assert "| planted ★ | 3 PUT | 7 | 8 | 9 | 15.00 |" in cost.table_of(lines, "Two")
    stored = "\n".join(page.stored(page.TABLES)["operations"])
    assert stored.count("### ") >= 5 and stored.count("★") >= 10
    assert stored in page.PAGE.read_text("utf-8")


def test_an_operation_over_its_budget_is_reported(cost: Any) -> None:
    from collections import Counter

    server = cost.Server(None)
    dear = cost.Count(Counter(PutObject=4), metadata=10_101, other=0, down=0)
    server.add("append", dear, requests=3, items=1)
    (line,) = server.lines
    assert line.over == "4 requests, 10,101 bytes of metadata"
    fits = cost.Count(Counter(PutObject=3), metadata=10_100, other=0, down=0)
    server.add("append", fits, requests=3, items=1)
    assert server.lines[1].over == ""

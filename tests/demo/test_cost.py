"""The budgets of docs/COST.md hold, as the server counts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cost.py"


@pytest.fixture(scope="module")
def cost() -> Any:
    spec = importlib.util.spec_from_file_location("inlay_cost_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    import sys

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


def test_the_page_has_a_table_for_every_section(cost: Any) -> None:
    from collections import Counter

    count = cost.Count(Counter(PutObject=3), metadata=7, other=8, down=9)
    page = cost.PAGE.read_text("utf-8")
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    measured = [h for h in headings if f"## {h}\n" in page and "★ |" in section_of(page, h)]
    assert len(measured) >= 3
    lines = [cost.Line(h, f"planted in {h}", count, "a budget") for h in measured]
    again = cost.rewritten(page, lines)
    for heading in measured:
        assert f"| planted in {heading} ★ | 3 PUT | 7 | 8 | 9 | 15.00 |" in section_of(
            again, heading
        )
    assert [line for line in again.splitlines() if not line.startswith("|")] == [
        line for line in page.splitlines() if not line.startswith("|")
    ]


def section_of(page: str, heading: str) -> str:
    return page.partition(f"## {heading}\n")[2].partition("\n## ")[0]


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

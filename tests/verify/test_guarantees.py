"""docs/GUARANTEES.md names tests and commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulator.mistakes import SEEDS
from tests.store.wired import OPERATIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8")


def test_the_tests_it_names_exist() -> None:
    named = set(re.findall(r"`(tests/[a-z_/]+(?:\.py)?)`", PAGE))
    assert len(named) > 10
    assert [n for n in sorted(named) if not (ROOT / n).exists()] == []


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_its_commands_are_targets_and_modules() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make ([a-z-]+)", PAGE, re.MULTILINE)
    assert set(targets) >= {"simulate", "mutations"}
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []
    for module in re.findall(r"python -m inlay\.([a-z.]+)", PAGE):
        path = ROOT / "layers/inlay/inlay" / (module.replace(".", "/") + ".py")
        assert path.exists(), module


def test_its_numbers_are_those_of_the_code() -> None:
    from tests.simulator.fault_proxy import FAULTS

    from inlay.format.properties import PROPERTIES
    from inlay.ops.commit.driver import MAX_ATTEMPTS, MAX_SECONDS

    assert f"Each of {len(OPERATIONS)} operations" in PAGE
    assert f"each of {len(FAULTS)} faults" in " ".join(PAGE.split())
    assert f"within {SEEDS} schedules" in " ".join(PAGE.split())
    assert f"{MAX_ATTEMPTS} attempts and {MAX_SECONDS:.0f} seconds" in PAGE
    for name in ("ledger.days", "gc.grace_days"):
        assert f"`{name}` ({PROPERTIES[name].default})" in PAGE

"""What code and pages cite exists: documents, their sections, and the files pages link to."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = [
    *ROOT.glob("layers/inlay/**/*.py"),
    *ROOT.glob("functions/**/*.py"),
    *ROOT.glob("pipelines/**/*.py"),
    *ROOT.glob("benchmarks/**/*.py"),
    *ROOT.glob("tests/**/*.py"),
]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]

# docs/FORMAT.md, section 5 | docs/FORMAT.md, "Ledger" | docs/FORMAT.md
CITED = re.compile(r'(docs/[\w/-]+\.md)(?:,\s+(?:#\s+)?(?:section (\d+)|"([^"]+)"))?')
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


def citations() -> list[tuple[Path, str, str, str]]:
    found = []
    for file in CODE:
        text = file.read_text(encoding="utf-8")
        found += [(file, *match.groups(default="")) for match in CITED.finditer(text)]
    return found


def test_what_code_cites_exists():
    assert len(citations()) > 20
    missing = []
    for file, page, number, name in citations():
        if file == Path(__file__):
            continue
        at = f"{file.relative_to(ROOT)}: {page}"
        if not (ROOT / page).is_file():
            missing.append(at)
            continue
        known = headings(ROOT / page)
        if number and not any(re.match(rf"{number}\b", each) for each in known):
            missing.append(f"{at}, section {number}")
        if name and not any(" ".join(name.split()) in each for each in known):
            missing.append(f'{at}, "{name}"')
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_between_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = [
        target for target, _ in LINK.findall(text) if not (page.parent / target).resolve().exists()
    ]
    assert missing == []


def test_code_cites_no_document_that_the_repository_does_not_have():
    """Names of documents that a reader of this repository cannot open."""
    unknown = re.compile(r"\b(FACTS|STYLE|DESIGN)\b|[Dd]esign section \d")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in CODE
        if file != Path(__file__)
        for line in file.read_text(encoding="utf-8").splitlines()
        if unknown.search(line)
    ]
    assert found == []


def test_the_modules_and_functions_of_the_architecture_exist():
    """Its trips name `room/module.function`, relative to the package or to the repository."""
    named = set(re.findall(r"\b[a-z_]+(?:/[a-z_0-9]+)+/?(?:\.\w+)*", ARCHITECTURE.read_text()))
    assert len(named) > 60
    assert sorted(name for name in named if not exists_in_code(name)) == []


def exists_in_code(name: str) -> bool:
    """Whether `name` is a folder, a file, a module, or a module and what it defines."""
    path, *attributes = name.split(".")
    for root in (ROOT, ROOT / "layers/inlay", ROOT / "layers/inlay/inlay"):
        if (root / name).exists():
            return True
        module = root / f"{path}.py"
        if module.is_file():
            text = module.read_text(encoding="utf-8")
            return all(re.search(rf"^ *(def|class) {each}\b", text, re.M) for each in attributes)
    return False


def test_every_page_is_on_the_site():
    """`make docs` is strict about it, too; this says it at once."""
    listed = set(
        re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    )
    pages = {str(p.relative_to(ROOT / "docs")) for p in ROOT.glob("docs/**/*.md")}
    assert pages - listed == set(), "list these under `nav` in mkdocs.yml"
    assert listed - pages == set(), "mkdocs.yml lists pages that do not exist"

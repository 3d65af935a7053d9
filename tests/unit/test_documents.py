"""What code and pages cite exists: documents, their sections, and the files pages link to."""

import ast
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
PACKAGE = ROOT / "layers/inlay/inlay"
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


@pytest.mark.parametrize(("page", "least"), [("ARCHITECTURE.md", 60), ("CONTRIBUTING.md", 20)])
def test_the_modules_and_functions_of_a_page_exist(page, least):
    """They are written `room/module.function`, relative to the package or to the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![./\w-])[a-z_]+(?:/[a-z_0-9]+)+/?(?:\.\w+)*", text))
    assert len(named) > least
    assert sorted(name for name in named if not exists_in_code(name)) == []


def test_the_modules_that_docstrings_and_comments_name_exist():
    """They are written `room.module.name`, with or without `inlay` before it. Rooms are the folders of the
    package, but for `spark`, whose name begins those of Spark's settings and methods."""
    rooms = [
        p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name not in ("spark", "__pycache__")
    ]
    named = re.compile(rf"`(?:inlay\.)?((?:{'|'.join(rooms)})(?:\.\w+)+)`")
    found = {name for file in CODE for name in named.findall(file.read_text(encoding="utf-8"))}
    assert len(found) > 60
    others = {"parquet.thrift"}  # the format's own definition
    assert sorted(name for name in found - others if not exists_in_code(as_path(name))) == []


def as_path(name: str) -> str:
    """`ops.drop.drop` as `ops/drop.drop`: the first part that is no folder is the module."""
    parts = name.split(".")
    depth = 1
    while depth < len(parts) and (PACKAGE / "/".join(parts[:depth])).is_dir():
        depth += 1
    return ".".join(["/".join(parts[:depth]), *parts[depth:]])


def exists_in_code(name: str) -> bool:
    """Whether `name` is a folder, a file, a module, or a module and what it defines."""
    path, *attributes = name.split(".")
    for root in (ROOT, ROOT / "layers/inlay", PACKAGE):
        if (root / name).exists():
            return True
        module = root / f"{path}.py"
        if module.is_file():
            text = module.read_text(encoding="utf-8")
            return all(
                re.search(rf"^ *(def|class) {each}\b|^ *{each}\b[^=(\n]*=", text, re.M)
                for each in attributes
            )
    return False


def test_every_page_is_on_the_site():
    """`make docs` is strict about it, too; this says it at once."""
    listed = set(
        re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    )
    pages = {str(p.relative_to(ROOT / "docs")) for p in ROOT.glob("docs/**/*.md")}
    assert pages - listed == set(), "list these under `nav` in mkdocs.yml"
    assert listed - pages == set(), "mkdocs.yml lists pages that do not exist"


def test_a_module_has_one_subject_and_one_promise():
    heads = {
        path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    several = [
        path
        for path, head in heads.items()
        if "; and" in head.partition("\n\n")[0].replace("\n", " ") or head.count("Promise") > 1
    ]
    assert not several, "split the module, or say what its one subject is"

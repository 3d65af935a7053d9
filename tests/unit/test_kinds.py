"""A kind that does not exist yet: the type checker names every place that has to decide about it.

A copy of the package gets a further kind in every closed union, literal and enumeration, and mypy checks
the copy once. What it names is compared with the walk that is listed here: a place that goes missing
answers for kinds it does not know. A last case that stands for the rest says why that is right for any
kind.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "layers/inlay/inlay"

# By the union: the module that has it, and every file that decides by its kinds.
WALKS: Mapping[str, tuple[str, set[str]]] = {
    "MarkerBody": (
        "format/entry.py",
        {
            "format/entry.py",
            "plan/scan.py",
            "plan/verify.py",
            "parquet/read/deleted_rows.py",
            "ops/inspect/tables.py",
            "ops/maintain/rewrite_file.py",
            "ops/verify/table.py",
        },
    ),
    "Predicate": (
        "format/predicate.py",
        {
            "format/predicate.py",
            "plan/pruning/literals.py",
            "plan/pruning/mentions.py",
            "plan/pruning/prune.py",
            "parquet/arrow/evaluate.py",
            "parse/show.py",
            "format/predicate_fold.py",
        },
    ),
    "Expression": (
        "format/expression.py",
        {
            "format/expression.py",
            "parquet/arrow/assignments.py",
            "parquet/arrow/calculate.py",
            "parse/calculate.py",
            "parse/setters.py",
        },
    ),
    # The added kind has no place in the text either, which the others point at.
    "Syntax": (
        "parse/syntax.py",
        {"parse/calculate.py", "parse/grammar.py", "parse/setters.py", "parse/where.py"},
    ),
    "Type": (
        "format/schema.py",
        {
            "format/codec.py",
            "format/schema.py",
            "plan/schema_evolution.py",
            "parquet/arrow/types.py",
            "parquet/surgery/stamp.py",
            "iceberg/schema.py",
            "ops/adopt/adopt.py",
            "parse/calculate.py",
            "ops/inspect/tables.py",
            "format/type_fold.py",
            "parquet/read/exact_columns.py",
        },
    ),
    "RowUpdate": (
        "plan/change.py",
        {"plan/commit/apply.py", "plan/commit/conflicts.py", "plan/commit/draft.py"},
    ),
    "TableUpdate": ("plan/change.py", {"plan/commit/conflicts.py", "plan/commit/draft.py"}),
    "Requirement": ("plan/change.py", {"plan/commit/conflicts.py"}),
    "Outcome": (
        "plan/change.py",
        {
            "plan/commit/apply.py",
            "ops/commit/driver.py",
            "ops/commit/group.py",
            "ops/transaction.py",
        },
    ),
    "Admission": ("plan/commit/apply.py", {"plan/commit/apply.py", "ops/commit/group.py"}),
    "Condition": (
        "storage/base.py",
        {"storage/azure.py", "storage/gcs.py", "storage/rules.py", "storage/s3.py"},
    ),
    "Result": (
        "ops/transaction.py",
        {"ops/transaction.py", "ops/catalog/several.py", "table/transaction.py"},
    ),
    "Swapped": ("ops/commit/register.py", {"ops/commit/driver.py"}),
    "NotProposed": (
        "ops/commit/driver.py",
        {"ops/commit/driver.py", "ops/commit/group.py", "ops/transaction.py"},
    ),
    "CommitResult": (
        "ops/commit/driver.py",
        {
            "ops/catalog/commit.py",
            "ops/commit/driver.py",
            "ops/commit/group.py",
            "ops/hand_over.py",
            "ops/maintain/compact.py",
            "ops/transaction.py",
            "ops/maintain/cluster_slices.py",
        },
    ),
    "SourceOutcome": (
        "ops/write/ingest.py",
        {"cli/writing.py", "functions/completion.py", "functions/ingest_arrivals.py"},
    ),
    # Literals.
    "LeafName": (
        "format/leaf_types.py",
        {
            "format/leaf_types.py",
            "parquet/arrow/types.py",
            "parquet/read/data_file.py",
            "iceberg/schema.py",
            "spark/types.py",
        },
    ),
    "Family": (
        "format/leaf_types.py",
        {
            "format/values.py",
            "plan/pruning/mentions.py",
            "iceberg/schema.py",
            "iceberg/source.py",
            "delta/log.py",
            "parse/show.py",
        },
    ),
    "SegmentKind": ("plan/answers.py", {"ops/metadata/load.py"}),
    "TextKind": ("format/landing.py", {"format/landing.py"}),
    "DeleteMode": (
        "format/properties.py",
        {"ops/delete_request.py", "ops/write/delete.py", "ops/write/update.py"},
    ),
    "NullKeys": ("ops/write/keyed_rows.py", {"ops/write/keyed_rows.py"}),
    "Meaning": ("plan/change_records.py", {"plan/change_records.py"}),
    "OrderKind": (
        "plan/maintain/order.py",
        {"plan/maintain/order.py", "ops/maintain/in_order.py", "spark/cluster.py"},
    ),
    "UnitKind": (
        "plan/maintain/compaction.py",
        {"ops/inspect/advice.py", "ops/maintain/compact.py"},
    ),
    "ClauseKind": ("spark/dml.py", {"spark/dml.py"}),
    "Action": ("spark/dml.py", {"spark/dml.py"}),
    "RefKind": ("format/snapshot.py", {"format/snapshot.py"}),
    "Phase": ("format/snapshot.py", {"ops/erase/finish.py", "ops/erase/request.py"}),
    "Method": ("plan/surgery.py", {"ops/maintain/rewrite_file.py"}),
    "Strategy": ("plan/surgery.py", {"plan/surgery.py"}),
    "GroupFate": ("parquet/footer/pages.py", {"parquet/footer/pages.py"}),
    "TransformName": ("format/partition.py", {"format/partition.py", "ops/inspect/tables.py"}),
    "Operator": (
        "format/predicate.py",
        {
            "format/binding.py",
            "plan/pruning/prune.py",
            "parquet/arrow/evaluate.py",
            "parse/where.py",
        },
    ),
    "Native": ("spark/native.py", {"spark/native.py"}),
    "PartitionOverwrite": ("spark/options.py", {"spark/options.py"}),
    # Enumerations.
    "ErrorKind": (
        "errors.py",
        {"errors.py", "functions/ingest_arrivals.py", "iceberg/catalog.py"},
    ),
    "LandedKind": ("format/landing.py", {"ops/erase/landing.py"}),
    "LetterAction": ("cli/deployment.py", {"cli/deployment.py"}),
    "Severity": ("doctor/finding.py", {"doctor/finding.py"}),
    "Wildcard": ("format/predicate.py", {"format/predicate.py"}),
    "MessageFate": (
        "functions/verdict.py",
        {"functions/messages.py", "functions/ingest/handler.py"},
    ),
    "ObjectKind": ("format/keys.py", {"plan/maintain/roots.py", "ops/hand_over.py"}),
}


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The files that mypy names for the kind that was added to each union."""
    copy = tmp_path_factory.mktemp("kinds")
    ignored = shutil.ignore_patterns("__pycache__")
    for part in (PACKAGE, "functions"):
        shutil.copytree(ROOT / part, copy / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, (module, _) in WALKS.items():
        path = copy / PACKAGE / module
        path.write_text(_with_a_kind(path.read_text(encoding="utf-8"), name), encoding="utf-8")
    cache = ROOT / ".mypy_cache" / "kinds"
    command = (sys.executable, "-m", "mypy", "--cache-dir", str(cache), PACKAGE, "functions")
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=280)
    assert not done.stderr, done.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for line in done.stdout.splitlines():
        if ": error: " in line:
            for name in re.findall(r"Added(\w+)|ADDED(\w+)", line):
                found["".join(name)].add(line.partition(":")[0].removeprefix(f"{PACKAGE}/"))
    return found


def _with_a_kind(source: str, name: str) -> str:
    if re.search(rf"^class {name}\((Str)?Enum\):", source, re.M):
        text, count = re.subn(
            rf"^class {name}\((?:Str)?Enum\):\n(    \"\"\"(.|\n)*?\"\"\"\n\n?)?",
            rf'\g<0>    ADDED{name} = "added"\n',
            source,
            flags=re.M,
        )
    elif re.search(rf"^{name} = (Literal|OneOf)\[\s*", source, re.M):
        text, count = re.subn(
            rf"^({name} = (Literal|OneOf)\[\s*)", rf'\1"Added{name}", ', source, flags=re.M
        )
    else:
        added = f"@dataclass(frozen=True, slots=True)\nclass Added{name}:\n    pass\n\n\n"
        if "@dataclasses.dataclass" in source:
            added = added.replace("@dataclass", "@dataclasses.dataclass")
        text, count = re.subn(
            rf"^{name} = (\(\n)?", rf"{added}\g<0>Added{name} | ", source, flags=re.M
        )
    assert count == 1, f"{name} was not found"
    return text


@pytest.mark.parametrize("name", WALKS)
def test_every_place_that_must_decide_is_named(name: str, named: Mapping[str, set[str]]) -> None:
    assert named[name] == WALKS[name][1]


# A type of floating numbers, in every place that mypy names for `LeafName`, and in the two that
# only Arrow knows of: it neither compares nor adds halves.
HALF = (
    ("format/leaf_types.py", '    "double",\n', '    "double",\n    "half",\n'),
    ("format/leaf_types.py", 'case "float" | "double":', 'case "float" | "double" | "half":'),
    (
        "parquet/arrow/types.py",
        '        case "double":\n',
        '        case "half":\n            return pa.float16()\n        case "double":\n',
    ),
    ("parquet/arrow/types.py", "if pa.types.is_float16(arrow):", "if False:"),
    (
        "parquet/arrow/evaluate.py",
        "    target = arrow_primitive(kind)\n",
        '    target = pa.float32() if kind.name == "half" else arrow_primitive(kind)\n',
    ),
    ("parquet/write/writer.py", "total = pc.sum(column).as_py()", "total = math.nan"),
    ("parquet/read/data_file.py", '"float" | "date":', '"float" | "date" | "half":'),
    ("iceberg/schema.py", 'case "uint32" | "uint64":', 'case "uint32" | "uint64" | "half":'),
    (
        "spark/types.py",
        '        case "double":\n',
        '        case "half":\n            return SparkLeaf(st.FloatType())\n        case "double":\n',
    ),
)
USES_HALVES = """
import pyarrow as pa, inlay
h = pa.array([1.5, None, float("nan"), 2.5], pa.float16())
schema = pa.schema([("id", pa.int64()), ("h", pa.float16())])
table = inlay.create("memory://halves", schema, sort_by="id")
assert [str(f.type) for f in table.snapshot.schema.fields] == ["int64", "half"]
table.append(pa.table({"id": [1, 2, 3, 4], "h": h}))
assert pa.table(table.scan(where="h > 2 AND h < 9"))["h"].to_pylist() == [2.5]
table.delete(where="h = 1.5")
assert pa.table(table.scan())["id"].to_pylist() == [2, 3, 4]
"""


def test_a_column_type_is_added_in_few_files(named: Mapping[str, set[str]], tmp_path: Path) -> None:
    shutil.copytree(ROOT / PACKAGE, tmp_path / "inlay")
    for module, old, new in HALF:
        path = tmp_path / "inlay" / module
        source = path.read_text(encoding="utf-8")
        assert source.count(old) == 1, (module, old)
        path.write_text(source.replace(old, new), encoding="utf-8")
    assert named["LeafName"] < {module for module, _, _ in HALF}
    assert len({module for module, _, _ in HALF}) <= 8
    done = subprocess.run(
        (sys.executable, "-c", USES_HALVES),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_a_last_case_for_the_rest_says_why() -> None:
    silent = [place for path in _sources() for place in _silent(path)]
    assert not silent, (
        "write the kinds out, end in assert_never, or say why the rest is right:\n"
        + ("\n".join(silent))
    )


def _sources() -> Iterator[Path]:
    for part in ("layers/inlay", "functions", "pipelines"):
        yield from sorted((ROOT / part).rglob("*.py"))


def _silent(path: Path) -> Iterator[str]:
    """Cases for whatever is left that neither refuse nor have a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(node, ast.Match):
            continue
        last = node.cases[-1]
        first = last.body[0]
        takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        refuses = isinstance(first, ast.Raise) or "assert_never(" in ast.unparse(first)
        said = any("#" in line for line in lines[last.pattern.lineno - 1 : first.lineno])
        if takes_all and last.guard is None and not refuses and not said:
            yield f"{path.relative_to(ROOT)}:{last.pattern.lineno}"

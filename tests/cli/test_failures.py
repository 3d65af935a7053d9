"""Errors: who has to act decides the exit code, and the message says what to do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from tests.cli.conftest import Run

from inlay import errors
from inlay.cli.failures import EXIT_CODES, error_text, failing_well
from inlay.errors import ErrorKind, InlayError


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ErrorKind.INPUT, 2), (ErrorKind.RETRY, 75), (ErrorKind.REBASE, 75), (ErrorKind.PAGE, 70)],
)
def test_the_exit_code_says_who_has_to_act(kind: ErrorKind, code: int) -> None:
    assert EXIT_CODES[kind] == code


def test_every_kind_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(ErrorKind)


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreUnavailable("no answer"),
        errors.ConcurrentChange("changed", table="t", version=4),
        errors.SchemaMismatch("column a is text", key="data/x.parquet"),
        errors.CorruptTable("cut short [bold]"),
    ],
)
def test_an_error_shows_its_message_what_it_is_about_and_the_next_step(
    error: InlayError, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    with pytest.raises(typer.Exit) as exit_, failing_well(as_json=False):
        raise error
    err = capsys.readouterr().err
    assert exit_.value.exit_code == EXIT_CODES[error.kind]
    assert error.message in err
    assert error.next_step in err
    for about in (error.table, error.key, error.version):
        assert about is None or str(about) in err
    assert "Traceback" not in err


def test_a_fault_of_ours_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError), failing_well(as_json=True):
        raise ZeroDivisionError


def test_a_condition_that_does_not_fit_is_pointed_at(inlay: Run, people: str) -> None:
    ran = inlay("scan", people, "--where", "id = 1 AND agee > 4", code=2)
    assert ran.out == ""
    lines = ran.err.splitlines()
    at = lines.index("  id = 1 AND agee > 4")
    assert lines[at + 1].index("^") == lines[at].index("agee")


def test_an_assignment_that_does_not_fit_is_named(inlay: Run, people: str) -> None:
    assert "nme" in inlay("update", people, "--set", "nme = 'x'", code=2).err


def test_with_json_the_error_is_json_on_stderr(inlay: Run, people: str) -> None:
    ran = inlay("scan", "nowhere", "--json", code=2)
    assert ran.out == ""
    told = json.loads(ran.err)
    assert (told["error"], told["kind"]) == ("TableNotFound", "input")
    assert told["next_step"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("append", "people", "nothing.csv"), "nothing.csv"),
        (("append", "people", "people.xyz"), "people.xyz"),
        (("append", "people", "s3://bucket/a.parquet"), "inlay ingest"),
        (("append", "people", "bad.parquet"), "bad.parquet"),
        (("scan", "people", "-o", "out.xlsx"), "out.xlsx"),
        (("scan", "people", "-o", "no/such/folder/out.csv"), "out.csv"),
        (("scan", "people", "-c", "nme"), "nme"),
        (("scan", "people", "--version", "99"), "99"),
        (("scan", "people", "--as-of", "yesterday"), "yesterday"),
        (("set", "people", "delete.mode"), "NAME=VALUE"),
        (("set", "people", "delete.mode=never"), "tombstone"),
        (("delete", "people"), "where"),
        (("delete", "people", "--where", "id = 1", "--mode", "slowly"), "slowly"),
        (("delete", "people", "--keys", "people.csv", "--explain"), "--where"),
        (("create", "people", "--schema", "id int"), "there already is a table"),
        (("create", "more"), "--schema"),
        (("create", "more", "--like", "people.xyz"), "people.xyz"),
        (("gc", "people", "--grace", "soon"), "soon"),
        (("show", "http://example.com/t"), "s3://"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(
    inlay: Run, people: str, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    (tmp_path / "people.xyz").write_text("?")
    (tmp_path / "bad.parquet").write_text("not parquet")
    ran = inlay(*arguments, code=2)
    assert ran.out == ""
    assert word in ran.err
    assert "Traceback" not in ran.err


def test_the_place_in_a_long_condition_is_cut_out() -> None:
    error = errors.InvalidPredicate("no such column", text="a " * 5000 + "b", position=10_000)
    assert len(error_text(error)) < 400


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("count people >&-", 0),
        ("scan people --json >/dev/full", 2),
        ("count nobody 2>&-", 2),
        ("append people - <&-", 2),
        ("--help >/dev/full", 2),
        *(
            pytest.param(line, code, marks=pytest.mark.wide)
            for line, code in (
                ("count people >/dev/full", 2),
                ("scan people >/dev/full", 2),
                ("scan --help >/dev/full", 2),
                ("local --help >/dev/full", 2),
                ("--version >/dev/full", 2),
                ("--version >&-", 0),
            )
        ),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_streams_that_are_closed_or_full_end_in_words(people: str, line: str, code: int) -> None:
    # As a shell starts it: Click's runner has streams of its own.
    ran = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m inlay {line}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr and "Exception ignored" not in ran.stderr


def test_a_program_that_cannot_start_is_named_and_is_not_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "absent" / "python"
    with pytest.raises(typer.Exit), failing_well(as_json=False):
        subprocess.Popen([str(program)])
    message = capsys.readouterr().err
    assert str(program) in message and "output" not in message


@pytest.mark.parametrize("module", ["typer", "inlay.cli.app", "pyarrow"])
def test_an_interrupt_while_modules_are_loaded_ends_without_a_traceback(
    people: str, module: str
) -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"sys.argv = ['inlay', 'scan', {people!r}]\n"
        "from inlay.cli import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr


def test_a_thread_of_arrows_that_outlives_the_command_does_not_change_its_exit() -> None:
    # Arrow reads ahead through a Python object; that read returns while the interpreter is torn down.
    script = (
        "import io, os, sys, time\n"
        "import pyarrow as pa\n"
        "from pyarrow import csv\n"
        "asked, ended = os.pipe(), os.pipe()\n"
        "class Source(io.RawIOBase):\n"
        "    left = [b'a\\n1\\n', b'2\\n', b'3\\n']\n"
        "    def readable(self): return True\n"
        "    def read(self, size=-1):\n"
        "        found = Source.left.pop(0) if Source.left else b''\n"
        "        if found: return found\n"
        "        os.write(asked[1], b'x')\n"
        "        return os.read(ended[0], 1)\n"
        "reader = csv.open_csv(pa.PythonFile(Source(), mode='r'))\n"
        "os.read(asked[0], 1)\n"
        "class Last:\n"
        "    def __del__(self, write=os.write, sleep=time.sleep, to=ended[1]):\n"
        "        write(to, b'\\n')\n"
        "        sleep(1)\n"
        "last = Last()\n"
        "last.itself = last\n"
        "sys.argv = ['inlay', '--version']\n"
        "from inlay.cli import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90)
    assert (ran.returncode, ran.stderr) == (0, "") and ran.stdout


def test_a_warning_is_a_note_without_a_place_in_the_source(tmp_path: Path) -> None:
    noted = pa.field("id", pa.int64(), metadata={"PARQUET:other": "1"})
    pq.write_table(pa.table({"id": [1]}, schema=pa.schema([noted])), tmp_path / "noted.parquet")
    ran = subprocess.run(
        [sys.executable, "-m", "inlay", "create", "people", "--like", "noted.parquet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0
    assert ran.stderr.startswith("note:  Arrow metadata is not kept by a table: id.PARQUET:other")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "meant"), [("peple", "./people"), ("./Peoples/", "./people"), ("xyz", None)]
)
def test_a_name_that_is_nearly_a_tables_is_told(
    inlay: Run, people: str, typed: str, meant: str | None
) -> None:
    told = inlay("count", typed, code=2).err
    assert "there is no table at" in told
    assert f"Did you mean {meant}?" in told if meant else "Check the name, or create" in told

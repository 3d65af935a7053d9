"""A file whose pages are damaged: found, named with what takes it out, and left out of a scan if asked."""

from __future__ import annotations

import io
import json
import pickle
import random
import subprocess
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import inlay
from inlay.cli.app import app
from inlay.errors import InlayError, InvalidRequest, NeedsMemory, SnapshotGone, UnreadableFile
from inlay.ops.write.ingest import Ingested, Rejected
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read import data_file

OTHERS = Path(__file__).parents[2].parent / "shared/data/parquet-testing"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("f", pa.float64())])


def rows(first: int, count: int = 400) -> pa.Table:
    made = random.Random(first)
    ids = range(first, first + count)
    texts = [f"t{made.getrandbits(40)}" for _ in ids]
    return pa.table({"id": ids, "text": texts, "f": [made.random() for _ in ids]}, schema=SCHEMA)


def body_of(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100, **options)
    return sink.getvalue()


def broken(body: bytes, column: int = 1, group: int = 2) -> bytes:
    """With other bytes in the middle of a column chunk."""
    chunk = decode_footer(body, file_size=len(body)).row_groups[group].column(column)
    middle = (chunk.start + chunk.end) // 2
    return body[:middle] + bytes(b ^ 0x5A for b in body[middle : middle + 8]) + body[middle + 8 :]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def landed(table: inlay.Table, body: bytes, **options: bool) -> Ingested | Rejected:
    place = Path(table.uri).parent / f"{uuid.uuid4().hex}.parquet"
    place.write_bytes(body)
    [outcome] = table.ingest([place.as_uri()], **options).outcomes  # type: ignore[arg-type]
    table.refresh()
    return outcome  # type: ignore[return-value]


@pytest.fixture
def table(uri: str) -> inlay.Table:
    """Three files, of which the second is damaged in `text`."""
    made = inlay.create(uri, SCHEMA, primary_key="id")
    made.append(rows(0))
    landed(made, broken(body_of(rows(1000), write_page_checksum=True)))
    landed(made, body_of(rows(2000)))
    return made


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


SOUND = [*range(400), *range(2000, 2400)]


def damaged_key(table: inlay.Table) -> str:
    with pytest.raises(UnreadableFile) as refused:
        table.scan().to_arrow()
    assert refused.value.key is not None
    return refused.value.key


def test_the_error_names_the_command_that_takes_the_file_out(table: inlay.Table) -> None:
    with pytest.raises(UnreadableFile) as refused:
        table.scan().to_arrow()
    key = refused.value.key
    command = f"inlay delete TABLE --where TRUE --file {key}"
    assert command in str(refused.value) and "--on-damaged skip" in str(refused.value)
    ran = CliRunner().invoke(app, command.replace("TABLE", table.uri).split()[1:])
    assert ran.exit_code == 0, ran.output
    assert ids(table.refresh().scan().to_arrow()) == SOUND
    table.maintain.compact()
    assert ids(table.refresh().scan().to_arrow()) == SOUND
    assert key not in table.inspect.files()["key"].to_pylist()


@pytest.mark.filterwarnings("ignore:a damaged file")
def test_a_scan_leaves_it_out_as_a_whole_and_says_so(table: inlay.Table) -> None:
    key = damaged_key(table)
    scan = table.scan(on_damaged="skip")
    assert scan.damaged == ()
    assert ids(scan.to_arrow()) == SOUND
    [found] = scan.damaged
    assert (found.key, found.rows) == (key, 400)
    assert isinstance(found.error, UnreadableFile)
    assert ids(pickle.loads(pickle.dumps(scan)).to_arrow()) == SOUND
    assert ids(scan.to_reader().read_all()) == SOUND
    assert len(scan.damaged) == 1


@pytest.mark.filterwarnings("ignore:a damaged file")
def test_every_kind_of_scan_leaves_it_out(table: inlay.Table) -> None:
    skip = {"on_damaged": "skip"}
    assert table.count(**skip) == len(SOUND)
    assert table.count(where="id >= 1000", **skip) == 400
    assert ids(table.scan(where="text > ''", columns=["id"], **skip).to_arrow()) == SOUND
    assert ids(table.scan(limit=600, **skip).to_arrow()) == SOUND[:600]
    top = table.scan(order_by="text", limit=5, **skip).to_arrow()["text"].to_pylist()
    assert top == sorted(t for n in (0, 2000) for t in rows(n)["text"].to_pylist())[:5]
    # Only what is asked for is looked at.
    assert len(ids(table.scan(columns=["id"], **skip).to_arrow())) == 1200
    table.delete("id IN (5, 2005)", mode="vector")
    assert len(ids(table.refresh().scan(**skip).to_arrow())) == len(SOUND) - 2


@pytest.mark.filterwarnings("ignore:a damaged file")
@pytest.mark.parametrize("what", ["cut", "emptied", "other rows", "another object", "no Parquet"])
def test_what_is_not_what_was_written_is_left_out_as_well(table: inlay.Table, what: str) -> None:
    key = damaged_key(table)
    path = Path(table.uri) / key
    path.write_bytes(
        {
            "cut": path.read_bytes()[:-50],
            "emptied": b"",
            "other rows": body_of(rows(1000)),
            "another object": body_of(rows(2000, 30)),
            "no Parquet": b"<html>" * 99,
        }[what]
    )
    again = inlay.open(table.uri)
    with pytest.raises(InlayError) as refused:
        again.scan().to_arrow()
    assert refused.value.key == key and "--file KEY" in refused.value.next_step
    skip = {"on_damaged": "skip"}
    assert ids(again.scan(**skip).to_arrow()) == SOUND
    assert again.count(**skip) == len(SOUND)
    assert ids(again.scan(limit=600, **skip).to_arrow()) == SOUND[:600]
    assert again.scan(order_by="f", limit=800, **skip).to_arrow().num_rows == len(SOUND)
    again.delete("TRUE", file=key)
    assert ids(again.refresh().scan().to_arrow()) == SOUND


def test_what_is_gone_is_not_left_out(table: inlay.Table) -> None:
    """Of a version that has expired all files are."""
    (Path(table.uri) / damaged_key(table)).unlink()
    with pytest.raises(SnapshotGone):
        inlay.open(table.uri).scan(on_damaged="skip").to_arrow()


def test_it_warns(table: inlay.Table) -> None:
    key = damaged_key(table)
    with pytest.warns(UserWarning, match=f"left out, with 400 rows: {key}"):
        table.scan(on_damaged="skip").to_arrow()


def test_other_choices_are_refused(table: inlay.Table) -> None:
    with pytest.raises(InvalidRequest, match="on_damaged") as refused:
        table.scan(on_damaged="ignore")
    assert "raise, skip" in refused.value.next_step


def test_what_needs_another_machine_is_not_damaged(
    table: inlay.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "memory_limit", lambda: 10)
    with pytest.raises(NeedsMemory):
        table.scan(on_damaged="skip").to_arrow()


def test_a_damaged_delete_is_not_a_damaged_file(table: inlay.Table) -> None:
    """Without it rows would come back, or all files be left out."""
    table.delete("id < 300", mode="vector")
    table.refresh()
    [vector] = [p for p in Path(table.uri).rglob("*") if p.suffix == ".puffin"]
    vector.write_bytes(b"x" * vector.stat().st_size)
    with pytest.raises(InlayError) as refused:
        table.scan(on_damaged="skip").to_arrow()
    assert refused.value.key is not None and "data/" not in refused.value.key


def test_the_commands_leave_it_out_as_well(table: inlay.Table) -> None:
    key = damaged_key(table)
    ran = CliRunner().invoke(app, ["scan", table.uri, "--json"])
    assert ran.exit_code != 0
    command = [sys.executable, "-m", "inlay"]
    skip = [table.uri, "--json", "--on-damaged", "skip"]
    shown = subprocess.run([*command, "scan", *skip], capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == SOUND
    assert key in shown.stderr and "400 rows" in shown.stderr
    shown = subprocess.run([*command, "count", *skip], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == {"rows": 800, "version": table.version, "left_out": [key]}
    assert key in shown.stderr


def test_verify_finds_it_at_the_depth_that_reads_pages(table: inlay.Table) -> None:
    assert table.maintain.verify(depth="footers").errors == ()
    [found] = table.maintain.verify(depth="pages").errors
    assert (found.kind, found.key) == ("file_unreadable", damaged_key(table))
    assert "inlay delete" in found.next_step


def test_verify_says_until_when_older_versions_need_what_was_taken_out(table: inlay.Table) -> None:
    key, before = damaged_key(table), table.version
    table.refs.tag("kept", before)
    table.delete("TRUE", file=key)
    table.maintain.compact()
    table.append(rows(9000, 3))
    assert key not in table.refresh().inspect.files()["key"].to_pylist()
    verified = table.maintain.verify(depth="pages")
    [found] = verified.errors
    # The tag, and the delete before the compaction drops the entry, are versions as well.
    last = max(v for v in range(1, table.version) if holds(table, v, key))
    assert (found.kind, found.key) == ("file_unreadable", key)
    assert found.message.endswith(f"only older versions need it, up to version {last}")
    assert f"when version {last} expires" in found.next_step and "ref kept" in found.next_step
    table.maintain.expire(days=0, min_versions=1)
    [found] = table.refresh().maintain.verify(depth="pages").errors
    assert f"up to version {before}" in found.message
    table.refs.drop("kept")
    assert table.refresh().maintain.verify(depth="pages").ok


def holds(table: inlay.Table, version: int, key: str) -> bool:
    return key in inlay.open(table.uri, version=version).inspect.files()["key"].to_pylist()


@pytest.mark.filterwarnings("ignore:a damaged file")
def test_a_dataset_and_a_lazy_frame_leave_it_out_as_well(table: inlay.Table) -> None:
    polars = pytest.importorskip("polars")
    key = damaged_key(table)
    dataset = table.to_dataset(on_damaged="skip")
    assert ids(dataset.to_table()) == SOUND
    assert ids(pickle.loads(pickle.dumps(dataset)).to_table(columns=["id", "text"])) == SOUND
    assert ids(dataset.filter(pa.compute.field("text") > "").to_table()) == SOUND
    assert dataset.count_rows() == len(SOUND)
    with pytest.warns(UserWarning, match=key):
        lazy = table.to_lazy(on_damaged="skip")
        found = lazy.filter(polars.col("text") > "").select("id").collect()
    assert sorted(found["id"]) == SOUND
    with pytest.raises(UnreadableFile):
        table.to_dataset().to_table()
    for made in (table.to_dataset, table.to_lazy):
        with pytest.raises(InvalidRequest, match="on_damaged"):
            made(on_damaged="ignore")


def test_what_is_explained_counts_damaged_files(table: inlay.Table) -> None:
    """It opens none."""
    explained = table.scan(on_damaged="skip").explain()
    assert (explained.files_read, explained.rows) == (3, 1200)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_property_has_it_refused_when_it_comes(uri: str, adopt: bool) -> None:
    made = inlay.create(uri, SCHEMA, properties={"ingest.check_pages": "yes"})
    bad = landed(made, broken(body_of(rows(0), write_page_checksum=True)), adopt=adopt)
    assert isinstance(bad, Rejected) and isinstance(bad.error, UnreadableFile)
    assert "valid Parquet file" in bad.error.next_step
    assert isinstance(landed(made, body_of(rows(0)), adopt=adopt), Ingested)
    assert made.count() == 400


def test_an_adopted_one_is_named_with_its_place(uri: str) -> None:
    made = inlay.create(uri, SCHEMA)
    landed(made, broken(body_of(rows(0), write_page_checksum=True)), adopt=True)
    with pytest.raises(UnreadableFile) as refused:
        made.scan().to_arrow()
    assert "inlay delete TABLE --where TRUE --file KEY" in refused.value.next_step
    made.delete("TRUE", file=refused.value.key)
    assert made.refresh().count() == 0


@pytest.mark.filterwarnings("ignore:a damaged file")
@pytest.mark.skipif(not OTHERS.exists(), reason=f"{OTHERS} is not here")
def test_the_files_that_others_keep_for_this(uri: str) -> None:
    body = (OTHERS / "datapage_v1-corrupt-checksum.parquet").read_bytes()
    made = inlay.create(uri, pq.read_schema(io.BytesIO(body)).remove_metadata())
    assert isinstance(landed(made, body), Ingested)
    scan = made.scan(on_damaged="skip")
    assert scan.to_arrow().num_rows == 0 and len(scan.damaged) == 1
    assert [f.kind for f in made.maintain.verify(depth="pages").errors] == ["file_unreadable"]
    careful = inlay.create(f"{uri}2", made.schema, properties={"ingest.check_pages": "yes"})
    assert isinstance(landed(careful, body), Rejected)


def flips(seed: int) -> Iterator[bytes]:
    """One file, with bytes of its pages changed at random places."""
    rng = random.Random(seed)
    options = {
        "compression": rng.choice(["snappy", "zstd", "none", "gzip"]),
        "use_dictionary": rng.random() < 0.5,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "write_page_checksum": rng.random() < 0.5,
    }
    body = body_of(rows(1000), **options)
    end = decode_footer(body, file_size=len(body)).start
    for _ in range(4):
        changed = bytearray(body)
        for _ in range(rng.choice([1, 1, 3, 30])):
            changed[rng.randrange(4, end)] ^= rng.randrange(1, 256)
        yield bytes(changed)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_all_other_files_are_read(seed: int, tmp_path: Path) -> None:
    """Or the damage is of the kind that nobody can see: then values differ, and no row is missing."""
    for n, body in enumerate(flips(seed)):
        made = inlay.create(str(tmp_path / f"{n}" / "t"), SCHEMA)
        made.append(rows(0))
        landed(made, body)
        made.append(rows(2000))
        scan = made.refresh().scan(on_damaged="skip")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = scan.to_arrow()
        others = found.filter(pa.compute.is_in(found["id"], pa.array(SOUND)))
        expected = pa.concat_tables([rows(0), rows(2000)]).sort_by("id")
        if scan.damaged:
            assert found.sort_by("id").equals(expected)
            assert made.maintain.verify(depth="pages").errors
        else:
            assert found.num_rows == 1200
            assert others.num_rows >= 800


@pytest.mark.filterwarnings("ignore:adopting")
@pytest.mark.parametrize("copy", [False, True])
def test_an_adoption_checks_pages_as_well(tmp_path: Path, copy: bool) -> None:
    source = inlay.create(str(tmp_path / "source"), SCHEMA)
    source.append(rows(0))
    source.publish()
    [file] = Path(source.uri).glob("data/**/*.parquet")
    whole = file.read_bytes()
    end = decode_footer(whole, file_size=len(whole)).start
    file.write_bytes(whole[:4] + bytes(b ^ 0x5A for b in whole[4:end]) + whole[end:])
    checked = {"ingest.check_pages": "yes"}
    with pytest.raises(InlayError) as refused:
        inlay.adopt(source.uri, str(tmp_path / "a"), copy=copy, properties=checked)
    assert file.name in str(refused.value)
    inlay.adopt(source.uri, str(tmp_path / "b"), copy=copy)
    file.write_bytes(whole)
    inlay.adopt(source.uri, str(tmp_path / "c"), copy=copy, properties=checked)
    assert inlay.open(str(tmp_path / "c")).count() == 400


def fed(feed: Iterable[dict[str, object]], rows: Counter[tuple[object, ...]]) -> None:
    """Applies changes to a multiset of rows."""
    for row in feed:
        sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        rows[tuple(row[name] for name in SCHEMA.names)] += sign


@pytest.mark.filterwarnings("ignore:a damaged file")
def test_a_change_feed_leaves_it_out_of_all_versions(table: inlay.Table) -> None:
    key = damaged_key(table)
    table.delete("id BETWEEN 1000 AND 1050 OR id = 7", mode="vector")  # sound pages of it
    table.delete("TRUE", file=key)
    table.refresh()
    for net in (False, True):
        with pytest.raises(UnreadableFile) as refused:
            table.changes(0, net=net).to_arrow()
        assert refused.value.key == key and "--on-damaged skip" in refused.value.next_step
        feed = table.changes(0, net=net, on_damaged="skip")
        changes = feed.to_arrow().to_pylist()
        assert {c["id"] for c in changes if 1000 <= c["id"] < 1400} == set()
        state: Counter[tuple[object, ...]] = Counter()
        fed(changes, state)
        assert state == Counter(tuple(r.values()) for r in table.scan().to_arrow().to_pylist())
        [left_out] = feed.damaged
        assert (left_out.key, left_out.rows) == (key, 400)
        again = pickle.loads(pickle.dumps(feed))
        assert again.to_arrow().to_pylist() == changes and len(again.damaged) == 1
    # What the delete took is in sound pages: no row goes that never came.
    hit = table.version - 1
    feed = table.changes(hit - 1, hit, columns=["id"], on_damaged="skip")
    assert [(c["id"], c["_change_type"]) for c in feed.to_arrow().to_pylist()] == [(7, "delete")]
    with pytest.warns(UserWarning, match=f"left out, with 400 rows: {key}"):
        table.changes(0, on_damaged="skip").to_arrow()
    with pytest.raises(InvalidRequest, match="on_damaged"):
        table.changes(0, on_damaged="ignore")
    shown = subprocess.run(
        [sys.executable, "-m", "inlay", "diff", table.uri, "0", "--json", "--on-damaged", "skip"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(shown.stdout.splitlines()) == 801 and key in shown.stderr


def is_damaged(path: Path) -> bool:
    """As pyarrow sees it."""
    try:
        pq.read_table(path, page_checksum_verification=True, partitioning=None)
    except (OSError, pa.ArrowException):
        return True
    return False


@pytest.mark.filterwarnings("ignore:a damaged file")
@pytest.mark.parametrize("seed", range(8))
def test_a_feed_and_the_scans_of_its_versions_agree_without_damaged_files(
    seed: int, tmp_path: Path
) -> None:
    """Applied to what other files have at one version, it gives what they have at another."""
    rng = random.Random(seed)
    table = inlay.create(str(tmp_path / "t"), SCHEMA, primary_key="id")
    first = 0
    for _ in range(14):
        low = rng.randrange(0, first + 1)
        where = f"id BETWEEN {low} AND {low + rng.randrange(200)}"
        step = rng.choice(
            ["land", "bad", "bad", "delete", "delete", "file", "upsert", "restore", "compact"]
        )
        keys = table.inspect.files()["key"].to_pylist()
        with suppress(UnreadableFile):  # what needs to read a damaged file
            match step:
                case "land":
                    landed(table, body_of(rows(first)))
                case "bad":
                    body = body_of(rows(first), write_page_checksum=True)
                    landed(table, broken(body, rng.randrange(1, 3)))
                case "delete":
                    table.delete(where, mode=rng.choice(["vector", "tombstone", "surgery"]))
                case "file" if keys:
                    table.delete("TRUE", file=rng.choice(keys))
                case "upsert":
                    table.upsert(rows(low, 30))
                case "restore":
                    table.refs.restore(version=rng.randrange(1, table.version + 1))
                case _:
                    table.maintain.compact()
        first += 400 * (step in ("land", "bad"))
        table.refresh()

    state: Counter[tuple[object, ...]] = Counter()
    root = Path(table.uri)
    files = (str(path.relative_to(root)) for path in root.rglob("*.parquet"))
    bad = {key for key in files if is_damaged(root / key)}
    for version in range(1, table.version + 1):
        feed = table.changes(version - 1, version, on_damaged="skip")
        fed(feed.to_arrow().to_pylist(), state)
        assert {file.key for file in feed.damaged} <= bad
        then = inlay.open(table.uri, version=version)
        shown = then.scan(columns=[*SCHEMA.names, "_file"], on_damaged="skip").to_arrow()
        expected = Counter(
            tuple(row[name] for name in SCHEMA.names)
            for row in shown.to_pylist()
            if row["_file"] not in bad
        )
        assert +state == expected and not -state
    net: Counter[tuple[object, ...]] = Counter()
    fed(table.changes(0, net=True, on_damaged="skip").to_arrow().to_pylist(), net)
    assert net == state


VERBS: dict[str, Callable[[inlay.Table], object]] = {
    "copy": lambda t: t.copy_to(f"{t.uri}-copy"),
    "clone": lambda t: t.clone_to(f"{t.uri}-clone"),
    "publish": lambda t: t.publish(),
    "compact": lambda t: t.maintain.compact(),
    "rewrite": lambda t: t.maintain.rewrite(strategy="rewrite"),
    "surgery": lambda t: t.delete("text > 't5'", mode="surgery"),
    "vectors": lambda t: t.delete("text > 't5'", mode="vector"),
    "update": lambda t: t.update({"f": "0.0"}, where="text > 't5'"),
    "upsert": lambda t: t.upsert(rows(1100, 30)),
    "overwrite": lambda t: t.overwrite(rows(0, 0), where="text > 't5'"),
    "changes": lambda t: t.changes(0).to_arrow(),
    "dataset": lambda t: t.to_dataset().to_table(),
    "pandas": lambda t: t.to_pandas(),
    "first": lambda t: t.scan(order_by="text", limit=5).to_arrow(),
    "key": lambda t: t.alter(primary_key="text"),
    "restore": lambda t: t.refs.restore(version=2),
    "erase": lambda t: (t.delete("text > 't5'", mode="erase"), t.maintain.rewrite())[1],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("deleted", [False, True])
def test_what_cannot_go_on_names_the_command(table: inlay.Table, verb: str, deleted: bool) -> None:
    """Whatever reads data: it is done without the file's damaged pages, or says what takes the file out."""
    key = damaged_key(table)
    if deleted:
        table.delete("id = 1003")
        table.refresh()
    errors: list[InlayError] = []
    try:
        result = VERBS[verb](table)
        errors = [failure.error for failure in getattr(result, "failures", ())]
    except InlayError as error:
        errors = [error]
    assert errors or verb not in (
        "changes",
        "dataset",
        "pandas",
        "key",
        "surgery",
        "vectors",
        "update",
    )
    for error in errors:
        assert f"inlay delete TABLE --where TRUE --file {key}" in str(error)

"""When an erasure may go on: which deletes it concerns, what may still hold rows of it, and what nobody
can rewrite."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyroaring import FrozenBitMap
from tests.maintenance.bench import new_bench

from inlay.errors import InvalidRequest
from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows
from inlay.format.predicate import And, Comparison, In, IsNull, Like, Literal, Not, Operator, Or
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.format.snapshot import Erasure, HeadObject, Phase, Ref, Segment, Snapshot, Tier
from inlay.plan.change import Conflict
from inlay.plan.erasure import (
    concerns,
    is_purged,
    key_id,
    landing_prefix,
    landing_zone,
    legal_holds,
    named_defaults,
    predicate_digest,
    ref_suffix,
    unclean_files,
    validate_clean,
    validate_phase,
)
from inlay.plan.metadata.state import State

LONG, TEXT, DOUBLE = Primitive("int64"), Primitive("string"), Primitive("double")
SCHEMA = Schema(0, (Field(1, "id", LONG),))
PHASES: tuple[Phase, ...] = ("rewrite", "purge", "sweep")


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return replace(new_bench().load().snapshot, schemas=(SCHEMA,), schema_id=0)


def erasure(name: str, phase: Phase = "rewrite", opened: int = 5) -> Erasure:
    return Erasure(
        id=name, predicate=None, text="", phase=phase, opened_version=opened, opened_us=1
    )


def file(key: str, low: int, high: int, sequence: int = 1) -> DataFile:
    stats = {1: ColumnStats(low, high, 0, kind=LONG)}
    return DataFile(
        key=key,
        size=9,
        footer_size=9,
        rows=10,
        row_groups=1,
        schema_id=0,
        sequence=sequence,
        stats=stats,
    )


def below(name: str, upper: int, sequence: int | None, of: str | None = None) -> Marker:
    body = KeyRange(1, upper=upper, kind=LONG)
    return Marker(id=name, body=body, sequence=sequence, erasure=of)


@pytest.mark.parametrize("phase", PHASES)
def test_an_erasure_concerns_its_own_deletes_and_older_ones(phase: Phase) -> None:
    """Later ones, too, once its condition is gone: they may name its rows."""
    asked = erasure("e", phase, opened=5)
    assert concerns(below("m", 5, 99, of="e"), asked)
    assert not concerns(below("m", 5, 1, of="f"), asked)
    for sequence in (1, 4, 5):
        assert concerns(below("m", 5, sequence), asked)
    for sequence in (6, 99):
        assert concerns(below("m", 5, sequence), asked) is (phase != "rewrite")


def of(
    snapshot: Snapshot, files: Sequence[DataFile], markers: Sequence[Marker], **options: Any
) -> State:
    tiers = {"files": Tier((), tuple(files)), "markers": Tier((), tuple(markers))}
    return State(replace(snapshot, **tiers, **options))


def test_a_file_is_unclean_for_each_erasure_of_which_a_delete_may_hit_it(
    snapshot: Snapshot,
) -> None:
    low, high = file("low", 0, 9), file("high", 20, 29)
    e, f, purging = erasure("e"), erasure("f", opened=3), erasure("p", "purge")

    def unclean(*markers: Marker, files: Any = (low, high), of_: Any = (e, f)) -> Any:
        found = unclean_files(of(snapshot, files, markers), iter(of_))
        assert all(entry.key == key for kept in found.values() for key, entry in kept.items())
        return {name: set(kept) for name, kept in found.items()}

    assert unclean() == {"e": set(), "f": set()}
    assert unclean(below("m", 5, 9, of="e")) == {"e": {"low"}, "f": set()}
    assert unclean(below("m", 25, 9, of="f")) == {"e": set(), "f": {"low", "high"}}
    assert unclean(below("m", 25, 9, of="of another")) == {"e": set(), "f": set()}
    assert unclean(below("m", 5, 4)) == {"e": {"low"}, "f": set()}
    assert unclean(below("m", 5, 3)) == {"e": {"low"}, "f": {"low"}}
    assert unclean(below("m", 5, 6)) == {"e": set(), "f": set()}
    assert unclean(below("m", 5, 6), of_=(purging,)) == {"p": {"low"}}
    assert unclean(below("m", -1, 3)) == {"e": set(), "f": set()}, "it hits no file"
    positions = Marker(id="v", body=Rows((1,)), file="high", sequence=2)
    assert unclean(positions, below("m", 5, 9, of="e"))["e"] == {"low", "high"}
    assert unclean(positions, files=(low,)) == {"e": set(), "f": set()}, "its file is gone"


def test_files_are_clean_of_the_erasures_that_are_asked_for(snapshot: Snapshot) -> None:
    open_ = (erasure("e"), erasure("f"))
    marked = [below("m", 5, 9, of="e")]
    state = of(snapshot, [file("a", 0, 9)], marked, erasures=open_)
    clean = of(snapshot, [file("a", 10, 19)], marked, erasures=open_)
    for asked in (["e"], ["e", "f"]):
        conflict = validate_clean(state, asked)
        assert conflict == Conflict("files still have to be rewritten for erasure e")
        assert validate_clean(clean, asked) is None
    for other in (["f"], ["no longer open"], []):
        assert validate_clean(state, other) is None


def test_a_step_is_taken_from_the_phase_that_it_names(snapshot: Snapshot) -> None:
    now = replace(snapshot, erasures=(erasure("e", "purge"), erasure("f", "sweep")))
    assert validate_phase(now, ["e"], "purge") is validate_phase(now, ["g"], None) is None
    assert validate_phase(now, [], "rewrite") is None
    for asked, phase in (
        (["e"], "rewrite"),
        (["e"], None),
        (["e", "f"], "purge"),
        (["f", "e"], "purge"),
        (["g"], "purge"),
    ):
        conflict = validate_phase(now, asked, phase)
        assert conflict is not None and f"is no longer in phase {phase}" in conflict.reason


def test_a_ref_is_purged_once_it_has_neither_deletes_nor_dead_entries(snapshot: Snapshot) -> None:
    head = HeadObject(id="h", size=1)
    ref = Ref(kind="branch", version=9, head=head)
    asked = erasure("e")
    own, other, later = below("m", 5, 9, of="e"), below("n", 5, 9, of="f"), below("o", 5, 9)
    clean = of(snapshot, [file("a", 0, 9)], [])
    assert is_purged(clean, ref, asked)
    assert not is_purged(clean, replace(ref, head=None), asked), "main's content, as it was"
    for markers, purged in (
        ([other], True),
        ([later], True),
        ([own], False),
        ([other, own], False),
        ([own, later], False),
        ([below("old", 5, 3)], False),
    ):
        assert is_purged(of(snapshot, [], markers), ref, asked) is purged, markers
        assert not is_purged(of(snapshot, [], markers), replace(ref, head=None), asked)
    whole, dead = (
        Segment(id=name, count=3, size=9, sequence=1, dead=FrozenBitMap(gone))
        for name, gone in (("w", ()), ("d", (1,)))
    )
    for segments, purged in (((whole,), True), ((dead,), False), ((whole, dead), False)):
        tree = replace(clean.snapshot, files=Tier(segments, ()))
        assert is_purged(State(tree), ref, asked) is purged


def test_refs_are_told_by_what_holds_them(snapshot: Snapshot) -> None:
    refs = {
        "b": Ref(kind="tag", version=1, hold=True),
        "a": Ref(kind="tag", version=2, hold=True),
        "c": Ref(kind="branch", version=3),
    }
    assert legal_holds(replace(snapshot, refs=refs)) == ["a", "b"]
    assert ref_suffix(None) == "" and ref_suffix("work") == " (for work)"


def is_(field_id: int, op: Operator, value: Any, kind: Primitive = TEXT) -> Comparison:
    return Comparison(field_id, op, Literal(kind, value))


ADA = is_(1, "=", "ada")
# A condition; of the columns `name` ("ada"), `age` (40) and `s.mail` ("ada@x") those of which it names or
# selects the default.
NAMED: list[tuple[Any, set[str]]] = [
    (ADA, {"name"}),
    (is_(1, "=", "eve"), set()),
    (is_(1, "!=", "ada"), set()),
    (is_(1, "!=", "eve"), {"name"}),
    (In(1, TEXT, ("ada", "eve")), {"name"}),
    (In(1, TEXT, ("bob", "eve")), set()),
    (Like(1, "a%"), {"name"}),
    (Like(1, "e%"), set()),
    (Not(ADA), set()),
    (Not(is_(1, "!=", "ada")), {"name"}),
    (is_(2, ">", 39, LONG), {"age"}),
    (is_(2, ">", 40, LONG), set()),
    (is_(4, "=", "ada@x"), {"s.mail"}),
    (is_(5, "=", "ada"), set()),
    (IsNull(1), set()),
    (Not(IsNull(1)), {"name"}),
    # All that it names, whether or not it selects that row.
    (And((ADA, is_(1, "=", "eve"))), {"name"}),
    (And((ADA, is_(2, ">", 40, LONG))), {"name"}),
    (And((is_(1, "=", "eve"), is_(2, "=", 40, LONG))), {"age"}),
    (Or((is_(1, "=", "eve"), is_(4, "=", "ada@x"))), {"s.mail"}),
    (Or((ADA, is_(2, "=", 40, LONG))), {"name", "age"}),
]


@pytest.mark.parametrize(("predicate", "columns"), NAMED)
def test_a_default_is_named_or_selected_by_the_condition(predicate: Any, columns: set[str]) -> None:
    first = Schema(0, (Field(1, "name", TEXT, default="ada"), Field(5, "plain", TEXT)))
    second = Schema(
        1,
        (
            Field(1, "name", TEXT),
            Field(2, "age", LONG, default=40),
            Field(3, "s", Struct((Field(4, "mail", TEXT, default="ada@x"),))),
        ),
    )
    assert named_defaults(predicate, (first, second)) == columns
    assert named_defaults(predicate, (second, first)) == columns
    assert named_defaults(predicate, (second,)) == columns - {"name"}


def test_a_number_is_no_nan_and_a_nan_is_above_every_number() -> None:
    def columns(predicate: Any, default: float) -> set[str]:
        schema = Schema(0, (Field(1, "x", DOUBLE, default=default),))
        return set(named_defaults(predicate, [schema]))

    above = is_(1, ">", 5.0, DOUBLE)
    assert columns(above, 6.0) == {"x"} and columns(above, 4.0) == set()
    assert columns(is_(1, "=", float("nan"), DOUBLE), 4.0) == set()


def test_a_digest_says_what_was_asked_to_who_has_the_key() -> None:
    """The same for the same text of the same erasure of the same table, whatever its characters."""
    key, text = b"secret", "name = 'Zoë'"
    assert predicate_digest(text, None, table="t", erasure="e") is None
    message = json.dumps(["t", "e", text], separators=(",", ":")).encode("ascii")
    expected = f"{key_id(key)}:{hmac.new(key, message, 'sha256').hexdigest()}"
    assert predicate_digest(text, key, table="t", erasure="e") == expected
    others = [
        predicate_digest("name = 'Zoe'", key, table="t", erasure="e"),
        predicate_digest(text, key, table="u", erasure="e"),
        predicate_digest(text, key, table="t", erasure="f"),
        predicate_digest(text, b"other", table="t", erasure="e"),
    ]
    assert len({expected, *others}) == 5
    assert key_id(key) == "1ed3c4be0a1f686a"


@pytest.mark.parametrize(
    ("root", "prefix"),
    [
        ("lake/tables/events", "lake/ingest/events/"),
        ("tables/events", "ingest/events/"),
        ("lake/tables/a/b", "lake/ingest/a/b/"),
        ("lake/events", None),
        ("tables/", None),
        ("mytables/events", None),
    ],
)
def test_files_land_beside_the_tables(root: str, prefix: str | None) -> None:
    assert landing_prefix(root) == landing_zone(root, None) == prefix
    assert landing_zone(root, "") is None
    assert landing_zone(root, "inbox/events/") == "inbox/events/"


@pytest.mark.parametrize(
    "given",
    [
        "inbox/events",
        "/inbox/events/",
        "s3://bucket/inbox/",
        "/",
        "lake/tables/events/",
        "lake/tables/events/data/",
        "lake/tables/",
        "lake/",
    ],
)
def test_what_is_no_folder_beside_the_table_is_no_landing_zone(given: str) -> None:
    with pytest.raises(InvalidRequest, match="is no prefix under which files land"):
        landing_zone("lake/tables/events", given)
    assert landing_zone("lake/tables/events", "lake/tables/other/") == "lake/tables/other/"

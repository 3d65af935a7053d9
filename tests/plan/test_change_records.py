"""Which record of a key counts, and what operations mean."""

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.errors import InvalidRequest
from inlay.plan.change_records import (
    COMMON,
    PRESETS,
    Operations,
    Rank,
    counts_over,
    newest,
    rank,
)

ORDERS = st.sampled_from([None, -math.inf, -1.0, 0.0, 1.0, math.nan])
RECORDS = st.lists(
    st.builds(
        lambda first, second, is_delete: rank([first, second], is_delete=is_delete),
        ORDERS,
        ORDERS,
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def applied(batches: list[list[tuple[int, Rank]]]) -> int:
    """The number of the record that counts after the newest of each batch met what was there."""
    there: tuple[int, Rank] | None = None
    for batch in batches:
        place = newest(found for _, found in batch)
        if place is None:
            continue
        if there is None or counts_over(batch[place][1], there[1]):
            there = batch[place]
    assert there is not None
    return there[0]


@given(RECORDS, st.sets(st.integers(0, 8)))
def test_any_cut_into_batches_keeps_the_same_record(ranks: list[Rank], cuts: set[int]) -> None:
    records = list(enumerate(ranks))
    ends = sorted({*(cut for cut in cuts if cut < len(records)), len(records)})
    batches = [records[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    assert applied(batches) == newest(ranks)


@given(RECORDS)
def test_the_order_of_arrival_matters_to_equal_ranks_only(ranks: list[Rank]) -> None:
    best = newest(ranks)
    assert best is not None
    for other in list(permutations(ranks))[:50]:
        place = newest(other)
        assert place is not None and other[place] == ranks[best]


@given(RECORDS)
def test_a_repeated_stream_changes_nothing_but_which_copy_counts(ranks: list[Rank]) -> None:
    place = newest([*ranks, *ranks])
    assert place is not None and place - len(ranks) == newest(ranks)


def test_orders_are_compared_from_the_left_null_first_nan_last() -> None:
    values = [None, -math.inf, -1.0, 0.0, math.inf, math.nan]
    ranks = [rank([a, b], is_delete=d) for a in values for b in values for d in (False, True)]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


def test_at_one_order_a_delete_counts_whichever_came_first() -> None:
    row, delete = rank([7], is_delete=False), rank([7], is_delete=True)
    assert newest([row, delete]) == 1 and newest([delete, row]) == 0
    assert newest([row, row]) == 1 and newest([delete, delete]) == 1


@pytest.mark.parametrize(
    ("preset", "rows", "deletes", "refused"),
    [
        ("common", "c r u i I U insert UPDATE Upsert", "d D delete DELETE Delete", "t truncate x"),
        ("debezium", "c r u", "d", "t m C D delete"),
        ("debezium-flat", "false", "true", "False TRUE"),
        ("dms", "I U", "D", "i u d INSERT"),
        ("snowflake", "INSERT", "DELETE", "insert UPDATE"),
        ("canal", "INSERT UPDATE", "DELETE", "insert TRUNCATE ALTER"),
        ("delta", "insert update_postimage", "delete", "update INSERT"),
    ],
)
def test_what_producers_write(preset: str, rows: str, deletes: str, refused: str) -> None:
    operations = PRESETS[preset]
    assert {operations.meaning(value) for value in rows.split()} == {"row"}
    assert {operations.meaning(value) for value in deletes.split()} == {"delete"}
    unknown = [*refused.split(), "", None, "delete ", " d", "DELETE\n", "dElete"]
    assert {operations.meaning(value) for value in unknown} == {None}
    with pytest.raises(InvalidRequest, match="Nothing of the batch was applied"):
        operations.refuse(dict.fromkeys(unknown, 1))


def test_every_known_value_of_every_preset_has_one_meaning() -> None:
    for name, operations in PRESETS.items():
        groups = [operations.rows, operations.deletes, operations.before, set(operations.refused)]
        assert sum(map(len, groups)) == len(set().union(*groups)), name


def test_the_half_of_an_update_that_shows_the_old_row_is_no_delete() -> None:
    assert PRESETS["snowflake"].meaning("DELETE", flagged=True) == "before"
    assert PRESETS["snowflake"].meaning("INSERT", flagged=True) == "row"
    assert PRESETS["delta"].meaning("update_preimage") == "before"


def test_a_tombstone_is_a_delete_and_any_value_a_row() -> None:
    tombstones = Operations.of("kafka-tombstones", column="payload")
    assert tombstones.column == "payload"
    assert tombstones.meaning(None) == "delete" and tombstones.meaning("") == "row"


def test_a_refusal_names_and_counts_the_values() -> None:
    with pytest.raises(InvalidRequest) as refused:
        COMMON.refuse({"truncate": 2, "delete ": 40, None: 3, "": 1}, table="memory://t")
    text = str(refused.value)
    assert text.startswith("46 change records have an operation that is not known: 'delete ' in 40")
    assert "NULL in 3" in text and "'' in 1" in text and "To truncate" in text
    COMMON.refuse({})


def test_a_refusal_shows_no_value_of_a_column_that_holds_no_operations() -> None:
    with pytest.raises(InvalidRequest) as refused:
        COMMON.refuse({"ann@example.org": 1, "4111 1111 1111 1111": 1, "x" * 21: 1})
    assert "ann" not in str(refused.value) and "4111" not in str(refused.value)
    assert "a text of 21 characters" in str(refused.value)


def test_values_of_ones_own() -> None:
    own = Operations.of({"rows": ["+"], "deletes": ["-"]}, column="kind")
    assert own == Operations("kind", frozenset("+"), frozenset("-"))
    assert [own.meaning(value) for value in ("+", "-", "I")] == ["row", "delete", None]


@pytest.mark.parametrize(
    "given",
    [
        "oracle",
        {"row": ["I"]},
        {"rows": "IU"},
        {"rows": ["I"], "deletes": ["I"]},
        {"rows": [None]},
        5,
    ],
)
def test_operations_that_cannot_be_meant(given: object) -> None:
    with pytest.raises(InvalidRequest):
        Operations.of(given)  # type: ignore[arg-type]

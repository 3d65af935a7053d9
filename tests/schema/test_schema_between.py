"""The steps that lead from one schema to another, found from the two alone."""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from inlay.errors import InvalidRequest
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Type
from inlay.plan.schema_evolution import Evolution, evolution_between, evolve

INT, LONG, TEXT = Primitive("int32"), Primitive("int64"), Primitive("string")


def new_type(dice: random.Random, depth: int) -> Type:
    """Ids are given when it is added."""
    match dice.randrange(6 if depth < 3 else 2):
        case 0 | 1 | 2:
            return dice.choice([INT, LONG, TEXT])
        case 3:
            names = dice.sample("abcd", dice.randint(1, 3))
            return Struct(tuple(Field(0, n, new_type(dice, depth + 1)) for n in names))
        case 4:
            return ListOf(Field(0, "element", new_type(dice, depth + 1)))
        case _:
            key = Field(0, "key", TEXT, nullable=False)
            return MapOf(key, Field(0, "value", new_type(dice, depth + 1)))


def step(dice: random.Random, schema: Schema) -> Evolution:
    """One change, which may not be possible."""
    paths = [path for path, _ in schema.walk()]
    path = dice.choice(paths)
    match dice.randrange(6):
        case 0:
            return Evolution(drop=(path,))
        case 1:
            return Evolution(rename=((path, dice.choice("pqrs")),))
        case 2:
            return Evolution(widen=((path, LONG),))
        case 3:
            return Evolution(comment=((path, dice.choice(["", "x"])),))
        case 4:
            return Evolution(order=(path,))
        case _:
            parent = dice.choice([(), path])
            field = Field(0, dice.choice("abcdefgh"), new_type(dice, 0), doc=dice.choice(["", "y"]))
            return Evolution(add=((parent, field),))


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 6))
def test_the_steps_between_two_schemas_lead_from_one_to_the_other(seed: int, steps: int) -> None:
    """Whatever was done between them, step by step; new fields are numbered alike, as long as none of them
    is gone again or has another place."""
    dice = random.Random(seed)
    before = Schema(0, (Field(1, "id", INT, nullable=False),))
    for _ in range(8):
        with suppress(InvalidRequest):
            before = evolve(before, step(dice, before), schema_id=0, next_id=before.max_id() + 1)
    after, last = before, before.max_id()
    for _ in range(steps):
        with suppress(InvalidRequest):
            after = evolve(after, step(dice, after), schema_id=0, next_id=last + 1)
            last = max(last, after.max_id())
    made = evolve(
        before, evolution_between(before, after), schema_id=0, next_id=before.max_id() + 1
    )
    new = [field.id for _, field in after.walk() if field.id not in before.fields_by_id]
    if new == list(range(before.max_id() + 1, before.max_id() + 1 + len(new))):
        assert [f.name for f in made.fields] == [f.name for f in after.fields]
        assert made.fields == after.fields

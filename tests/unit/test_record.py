"""Records are what frozen dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import pydoc
from functools import cached_property

import pytest

import inlay
from inlay import engine
from inlay.record import Mutable, Record, aside, field, replace, secret


class Point(Record):
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


@aside("made")
class Known(Record, kw_only=True, dict=True):
    name: str
    made: int | None = None

    @cached_property
    def long(self) -> list[str]:
        return [self.name]


@secret("key")
class Login(Record):
    user: str
    key: str


class Counter(Mutable):
    count: int = 0


def test_records_are_compared_hashed_and_shown_by_their_fields():
    assert Point(1, 2.0) == Point(x=1, y=2.0) != Point(1, 3.0)
    assert Point(1) != Known(name="1") and Point(1) != (1, 0.0, [])
    assert repr(Point(1)) == "Point(x=1, y=0.0, tags=[])"
    assert len({Login("a", "b"), Login("a", "b"), Login("a", "c")}) == 2
    assert Point(1).tags is not Point(1).tags
    for copied in (
        pickle.loads(pickle.dumps(Point(1))),
        copy.copy(Point(1)),
        copy.deepcopy(Point(1)),
    ):
        assert copied == Point(1)


def test_records_never_change():
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        replace(Point(1), z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Known("positional")  # type: ignore[misc]
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)


def test_fields_aside_are_no_part_of_equality_and_text_and_secret_ones_of_no_text():
    assert Known(name="a", made=1) == Known(name="a", made=2) != Known(name="b", made=1)
    assert hash(Known(name="a", made=1)) == hash(Known(name="a"))
    assert Known(name="a") != Point(1)
    assert repr(Known(name="a", made=1)) == "Known(name='a')"
    assert repr(Login("me", "hush")) == "Login(user='me')"
    assert Login("me", "hush") != Login("me", "other")


def test_what_a_property_keeps_does_not_go_into_a_copy():
    """It follows from the fields, and one of them is another."""
    one = Known(name="a")
    assert one.long == ["a"]
    assert replace(one, name="b").long == ["b"]
    assert dataclasses.replace(one, name="b").long == ["b"]


def test_other_libraries_take_a_record_for_a_dataclass():
    assert dataclasses.is_dataclass(Point) and dataclasses.asdict(Counter(2)) == {"count": 2}
    assert dataclasses.asdict(Point(1, tags=["a"])) == {"x": 1, "y": 0.0, "tags": ["a"]}
    assert dataclasses.replace(Point(1), y=5.0) == Point(1, 5.0)
    x, y, tags = dataclasses.fields(Point)
    assert (x.name, x.default, y.default) == ("x", dataclasses.MISSING, 0.0)
    assert tags.default_factory is list


def exported() -> list[type]:
    doors = {name: getattr(inlay, name) for name in inlay.__all__}
    doors |= {name: getattr(engine, name) for name in engine.NAMES}
    return [each for each in doors.values() if isinstance(each, type)]


@pytest.mark.parametrize("kind", exported(), ids=lambda kind: kind.__name__)
def test_help_shows_the_classes_that_the_doors_export(kind):
    """The signature of a record is made of its types, which must be there when somebody asks."""
    assert f"class {kind.__name__}" in pydoc.render_doc(kind, renderer=pydoc.plaintext)

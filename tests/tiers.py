"""Which tests a change waits for (*short*), and which show the same again in another setting (*wide*).

`make test` runs the short tier: every promise and mechanism, once. `make test-wide` runs the rest, and
`make test-all` both. `slow` is in neither: hours. Wide is

- a test or a case that is marked `wide`, or that `tiers.toml` names with a reason, itself or by a fixture:
  another store, another engine's process, other writers' files;
- of a test with several parameters each case but few, among which each value of each parameter is:
  `covering`;
- of seeds each but the first `SEEDS`;
- of the examples that Hypothesis draws for a test two thirds: `draw`.

Under `whole` the table names tests each of whose cases is a mechanism of its own.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

TABLE = Path(__file__).with_name("tiers.toml")
# CPU seconds of the short tier: two cores for ten minutes, less a fifth for what waits and for collecting.
SHORT_SECONDS = 960
SEEDS = 1
# Fewer examples than these show too little.
MIN_EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A test `file::test` with the value of each of its parameters, its seed, if it has one, and the names
    of the fixtures that it needs."""

    test: str
    values: Mapping[str, Hashable] = field(default_factory=dict)
    seed: Hashable = None
    fixtures: frozenset[str] = frozenset()

    @staticmethod
    def of(item: pytest.Item) -> Case:
        test = item.nodeid.partition("[")[0]
        given, fixtures = (
            getattr(item, "callspec", None),
            frozenset(getattr(item, "fixturenames", ())),
        )
        if given is None:
            return Case(test, fixtures=fixtures)
        left, values = dict(given.params), {}
        # Values need not be hashable; a list of parameters holds each as one object.
        for mark in item.iter_markers("parametrize"):
            names = mark.args[0] if mark.args else mark.kwargs["argnames"]
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else names
            if left.keys() >= set(names):
                values[",".join(names)] = tuple(id(left.pop(name)) for name in names)
        values |= {fixture: id(value) for fixture, value in left.items()}
        return Case(test, values, values.pop("seed", None), fixtures)


@dataclass(frozen=True, slots=True)
class Tiers:
    """The table: a reason by test file or `file::test`, or by fixture."""

    wide: Mapping[str, str]
    whole: Mapping[str, str]
    fixtures: Mapping[str, str]

    @staticmethod
    def read() -> Tiers:
        return Tiers(**tomllib.loads(TABLE.read_text()))

    def wide_among(self, cases: Sequence[Case]) -> set[int]:
        """Positions of the cases that are left to the wide tier."""
        places: dict[str, list[int]] = defaultdict(list)
        for at, case in enumerate(cases):
            places[case.test].append(at)
        short: set[int] = set()
        for test, at in places.items():
            known = {test, test.partition("::")[0]}
            if known & self.whole.keys():
                short.update(at)
            elif not (known | cases[at[0]].fixtures) & {**self.wide, **self.fixtures}.keys():
                short.update(at[n] for n in _short_among([cases[n] for n in at]))
        return set(range(len(cases))) - short


def _short_among(cases: Sequence[Case]) -> list[int]:
    seeds = list(dict.fromkeys(case.seed for case in cases))[:SEEDS]
    seeded = [n for n, case in enumerate(cases) if case.seed in seeds]
    if len(seeds) < 2:
        return [seeded[n] for n in covering([cases[n] for n in seeded])]
    # A seed is no value that must meet others: the cases of the first, and one case of each other.
    first = _short_among([replace(case, seed=None) for case in cases if case.seed == seeds[0]])
    of_first = [n for n, case in enumerate(cases) if case.seed == seeds[0]]
    others = [next(n for n, case in enumerate(cases) if case.seed == seed) for seed in seeds[1:]]
    return sorted([of_first[n] for n in first] + others)


def _told(item: pytest.Item) -> tuple[Any, str]:
    """What has the settings of a test that draws examples, and under which name: its function, or the class
    of a state machine."""
    machine = getattr(item, "cls", None)
    if isinstance(getattr(machine, "settings", None), settings):
        return machine, "settings"
    test: Any = getattr(item, "obj", None)
    return getattr(test, "__func__", test), "_hypothesis_internal_use_settings"


def settings_of(item: pytest.Item) -> settings | None:
    """What Hypothesis is told about a test that draws examples."""
    return getattr(*_told(item), None)


def draw(item: pytest.Item, share: float) -> None:
    """Draws only this share of the examples of a test. Hypothesis has no public way to change
    settings from outside: `tests/unit/test_tiers.py` holds that this one works."""
    if (told := settings_of(item)) is not None:
        place, name = _told(item)
        # Cases of one test share its function.
        place.told = whole = getattr(place, "told", told)
        number = max(min(MIN_EXAMPLES, whole.max_examples), round(whole.max_examples * share))
        setattr(place, name, settings(whole, max_examples=number))


def in_short(names: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """Values of a parameter, of which only `short` are in the short tier."""
    return [name if name in short else pytest.param(name, marks=pytest.mark.wide) for name in names]


def paired(names: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Of a product each value of the first parameter with one of the second, in turn; the rest is slow."""
    return [
        pytest.param(name, other, marks=() if at == n % len(others) else pytest.mark.slow)
        for n, name in enumerate(names)
        for at, other in enumerate(others)
    ]


def covering(cases: Sequence[Case]) -> list[int]:
    """Positions of few cases among which each value of each parameter is: again and again the one that
    shows most values that no earlier one has shown."""
    missing = {value for case in cases for value in case.values.items()}
    kept: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda n: (len(missing & cases[n].values.items()), -n))
        missing -= cases[best].values.items()
        kept.append(best)
    return sorted(kept) or [0]

"""Change streams, two ways, as a model: every order of the steps of writers, maintenance and crashes.

    python docs/design/changes_model.py                                 # both ways, every scene, seconds
    python docs/design/changes_model.py compare --without validation    # a shortest way to the violation

One key is enough: no rule connects two. A record is (order, is it a delete); a scene is a few batches, each
a writer's, some the same record again. Every writer may die after each of its steps, and a new process
takes its batch up again. Maintenance folds at any time.

`compare`: a writer reads the row of the key and what is remembered of deletes, remembers its own delete,
then commits, if what it read is still so. `marker`: a commit adds the row and an entry (order, arrival)
that hides every row of the key below it, whenever that came; nothing is read.

Promise of both: when all batches are in, the table shows the record of the greatest rank, or no row where
that is a delete; never two rows of the key. Ranks: order, a delete above a row, then the later arrival.

What each rule is for shows when it is left out (`--without`):

    compare validation   the commit requires that what was read is still so
            memory       a delete is remembered
            first        it is remembered before the commit that applies it, not after
    marker  kept         folding keeps the entries for late records
            arrival      of equal orders the later arrival hides the earlier
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

Record = tuple[int, bool]  # order, is it a delete
RULES = {"compare": ("validation", "memory", "first"), "marker": ("kept", "arrival")}

# Two batches side by side and a third; equal orders; the same record twice; late ones of every kind.
RECORDS: tuple[Record, ...] = ((1, False), (2, True), (2, False), (3, False))
SCENES = tuple(itertools.combinations_with_replacement(RECORDS, 3))
FOLDS = 2
DEATHS = 1


@dataclass(frozen=True)
class Writer:
    """`step` of its protocol, and what it has read (`compare`)."""

    record: Record
    step: str = "read"
    seen: tuple[object, ...] = ()


@dataclass(frozen=True)
class World:
    """`rows`: (record, arrival). `entries`: what hides, as (record, arrival). `memory`: of deletes."""

    writers: tuple[Writer, ...]
    rows: frozenset[tuple[Record, int]] = frozenset()
    entries: frozenset[tuple[Record, int]] = frozenset()
    memory: frozenset[Record] = frozenset()
    arrivals: int = 0
    folds: int = FOLDS
    deaths: int = DEATHS

    def with_writer(self, n: int, writer: Writer, **changes: object) -> World:
        writers = (*self.writers[:n], writer, *self.writers[n + 1 :])
        return replace(self, writers=writers, **changes)  # type: ignore[arg-type]


Step = tuple[str, World]


# -- comparing while writing ----------------------------------------------------------------------


def compare(world: World, n: int, without: frozenset[str]) -> Iterator[Step]:
    writer = world.writers[n]
    record = writer.record
    is_delete = record[1]
    match writer.step:
        case "read":
            seen = (world.rows, world.memory)
            first = is_delete and "memory" not in without and "first" not in without
            yield (
                f"{n} reads",
                world.with_writer(n, Writer(record, "remember" if first else "commit", seen)),
            )
        case "remember":
            yield (
                f"{n} remembers",
                world.with_writer(
                    n, replace(writer, step="commit"), memory=world.memory | {record}
                ),
            )
        case "commit":
            rows, memory = writer.seen
            # The memory is compared by the commits that are in the table: its own entry is no change.
            others = world.memory - {record}
            is_same = world.rows == rows and others == memory - {record}  # type: ignore[operator]
            if not is_same and "validation" not in without:
                yield f"{n} has to read again", world.with_writer(n, Writer(record))
                return
            known = {each for each, _ in rows} | memory  # type: ignore[attr-defined,operator]
            is_late = any(each > record for each in known)
            after = "remember late" if is_delete and "first" in without else "done"
            if is_late:
                yield f"{n} is late", world.with_writer(n, Writer(record, after))
                return
            kept = world.rows - rows  # type: ignore[operator]
            new = frozenset() if is_delete else frozenset({(record, world.arrivals)})
            yield (
                f"{n} commits",
                world.with_writer(
                    n, Writer(record, after), rows=kept | new, arrivals=world.arrivals + 1
                ),
            )
        case "remember late":
            yield (
                f"{n} remembers",
                world.with_writer(n, replace(writer, step="done"), memory=world.memory | {record}),
            )


# -- an ordered key marker ------------------------------------------------------------------------


def marker(world: World, n: int, without: frozenset[str]) -> Iterator[Step]:
    writer = world.writers[n]
    if writer.step != "done":
        at = world.arrivals
        row = frozenset() if writer.record[1] else frozenset({(writer.record, at)})
        yield (
            f"{n} commits",
            world.with_writer(
                n,
                Writer(writer.record, "done"),
                rows=world.rows | row,
                entries=world.entries | {(writer.record, at)},
                arrivals=at + 1,
            ),
        )


def shown(world: World, without: frozenset[str]) -> frozenset[tuple[Record, int]]:
    def hides(entry: tuple[Record, int], row: tuple[Record, int]) -> bool:
        return entry > row if "arrival" not in without else entry[0] > row[0]

    return frozenset(r for r in world.rows if not any(hides(e, r) for e in world.entries))


# -- what both have -------------------------------------------------------------------------------

WAYS = {"compare": compare, "marker": marker}


def steps(way: str, world: World, without: frozenset[str]) -> Iterator[Step]:
    for n, writer in enumerate(world.writers):
        yield from WAYS[way](world, n, without)
        # Also after its commit, of which its successor does not learn where there is no request id.
        if world.deaths and writer.step != "read":
            again = world.with_writer(n, Writer(writer.record), deaths=world.deaths - 1)
            yield f"{n} dies", again
    if way == "marker" and world.folds:
        entries = world.entries if "kept" not in without else frozenset()
        folded = replace(world, rows=shown(world, without), entries=entries, folds=world.folds - 1)
        yield "fold", folded


def wrong(way: str, world: World, without: frozenset[str]) -> str:
    """What the promise does not allow, at any moment; "" where it holds."""
    found = shown(world, without) if way == "marker" else world.rows
    if len(found) > 1:
        return f"{len(found)} rows of one key"
    if any(writer.step != "done" for writer in world.writers):
        return ""
    newest = max(writer.record for writer in world.writers)
    right = set() if newest[1] else {newest}
    is_right = {record for record, _ in found} == right
    return "" if is_right else f"shows {sorted(found)}, and the newest is {newest}"


def check(
    way: str, scene: Sequence[Record], without: frozenset[str] = frozenset()
) -> tuple[int, list[str]]:
    """How many states there are, and a shortest way to one that is wrong."""
    first = World(tuple(map(Writer, scene)))
    came: dict[World, tuple[World | None, str]] = {first: (None, "")}
    waiting = [first]
    for world in waiting:
        what = wrong(way, world, without)
        if what:
            path = [what]
            at: World | None = world
            while at is not None:
                at, said = came[at]
                path.append(said)
            return len(came), path[::-1][1:]
        for said, after in steps(way, world, without):
            if after not in came:
                came[after] = (world, said)
                waiting.append(after)
    return len(came), []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", nargs="?", choices=sorted(WAYS))
    parser.add_argument("--without", default="")
    asked = parser.parse_args()
    without = frozenset(filter(None, [asked.without]))
    for way in [asked.way] if asked.way else sorted(WAYS):
        total = 0
        for scene in SCENES:
            states, path = check(way, scene, without)
            total += states
            if path:
                print(way, scene, *path, sep="\n  ")
                return
        print(f"{way}: {total:,} states of {len(SCENES)} scenes, each as promised")


if __name__ == "__main__":
    main()

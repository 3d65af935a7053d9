"""Writes Delta tables with deltalake, in a separate environment: run as a program.

`write_by_deltalake.py FOLDER SEED…`: a random history for each seed. Prints, as JSON lines, where each
table is and the steps.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

DAY = date(2024, 1, 1)
KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "a": pa.int32(),
    "i": pa.int16(),
    "y": pa.int8(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "w": pa.timestamp("us"),
    "n": pa.decimal128(9, 2),
    "f": pa.float32(),
    "e": pa.float64(),
    "b": pa.bool_(),
    "k": pa.binary(),
    "z": pa.struct([("x", pa.int32()), ("y", pa.string())]),
    "l": pa.list_(pa.int32()),
    "m": pa.map_(pa.string(), pa.int64()),
}


class History:
    """One table and what may happen to it; the same seed makes the same history."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = str(root / f"t{seed}")
        self.next_id = 0
        self.names = ["id", *self.random.sample([n for n in KINDS if n != "id"], 9)]
        self.log: list[str] = []
        self.partition_by: list[str] | None = None
        if seed % 4 == 3:
            self.partition_by = self.random.choice(
                [["s"], ["d"], ["a", "s"], ["t"], ["b"], ["i", "w"]]
            )
            self.names = list(dict.fromkeys([*self.names, *self.partition_by]))
        write_deltalake(
            self.root,
            self.rows(30),
            partition_by=self.partition_by,
            configuration={"delta.checkpointInterval": "5"},
        )

    def value(self, kind: pa.DataType) -> Any:
        pick = self.random
        if pick.random() < 0.1:
            return None
        if pa.types.is_struct(kind):
            return {f.name: self.value(f.type) for f in kind}
        if pa.types.is_list(kind):
            return [pick.randint(0, 9) for _ in range(pick.randint(0, 3))]
        if pa.types.is_map(kind):
            return [(k, pick.randint(0, 9)) for k in pick.sample("abc", pick.randint(0, 2))]
        if pa.types.is_boolean(kind):
            return pick.random() < 0.5
        if pa.types.is_integer(kind):
            return pick.randint(-3, 3)
        if pa.types.is_floating(kind):
            return pick.choice([0.5, 1e9, float("nan")])
        if pa.types.is_decimal(kind):
            return Decimal(pick.randint(-999, 999)).scaleb(-2)
        if pa.types.is_date(kind):
            return DAY + timedelta(days=pick.randint(-40, 40))
        if pa.types.is_timestamp(kind):
            found = datetime(2024, 1, 1) + timedelta(microseconds=pick.randint(-(10**12), 10**12))
            return found if kind.tz is None else found.replace(tzinfo=UTC)
        if pa.types.is_binary(kind):
            return pick.randbytes(2)
        return pick.choice(["", "ab", "abc", "é", "zz"])

    def rows(self, count: int) -> pa.Table:
        first, self.next_id = self.next_id, self.next_id + count
        made = {
            name: pa.array(
                range(first, first + count)
                if name == "id"
                else [self.value(KINDS[name]) for _ in range(count)],
                KINDS[name],
            )
            for name in self.names
        }
        return pa.table(made)

    def step(self) -> None:
        steps = [self.append, self.append, self.delete, self.update, self.merge, self.add]
        steps += [self.compact, self.overwrite, self.replace]
        todo = self.random.choice(steps)
        self.log.append(todo.__name__)
        try:
            todo()
        except Exception as error:  # what deltalake refuses is not a step
            self.log[-1] += f" ({type(error).__name__}: {str(error)[:80]})"

    def condition(self) -> str:
        low = self.random.randint(0, max(1, self.next_id))
        return self.random.choice([f"id >= {low} AND id < {low + 20}", f"id = {low}", "id % 7 = 0"])

    def append(self) -> None:
        write_deltalake(self.root, self.rows(25), mode="append", schema_mode="merge")

    def delete(self) -> None:
        DeltaTable(self.root).delete(self.condition())

    def update(self) -> None:
        DeltaTable(self.root).update({"id": "id + 1000"}, predicate=self.condition())

    def merge(self) -> None:
        self.next_id = max(0, self.next_id - 10)
        (
            DeltaTable(self.root)
            .merge(self.rows(20), "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def add(self) -> None:
        self.names.append(self.random.choice([n for n in KINDS if n not in self.names]))
        self.append()

    def compact(self) -> None:
        DeltaTable(self.root).optimize.compact()

    def overwrite(self) -> None:
        write_deltalake(self.root, self.rows(40), mode="overwrite", schema_mode="merge")

    def replace(self) -> None:
        self.names = ["id", *self.random.sample([n for n in KINDS if n != "id"], 5)]
        self.names = list(dict.fromkeys([*self.names, *(self.partition_by or ())]))
        write_deltalake(self.root, self.rows(40), mode="overwrite", schema_mode="overwrite")


def main() -> None:
    for seed in map(int, sys.argv[2:]):
        history = History(Path(sys.argv[1]), seed)
        for _ in range(8):
            history.step()
        print(json.dumps({"root": history.root, "log": history.log}))


if __name__ == "__main__":
    main()

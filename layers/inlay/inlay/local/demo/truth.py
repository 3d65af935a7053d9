"""The truth: DuckDB on the source files, with the same deletes applied there.

Nothing of Inlay has a part in it but the SQL text of the conditions, which is DuckDB's too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from inlay.local.demo.figures import SQL, Figures


class Truth:
    """What the table must hold."""

    def __init__(self, like: Path) -> None:
        import duckdb

        self._db: Any = duckdb.connect()
        self._db.execute(f"CREATE TABLE truth AS SELECT * FROM read_parquet({_text(like)}) LIMIT 0")

    def add(self, files: Iterable[Path]) -> None:
        for file in files:
            self._db.execute(f"INSERT INTO truth SELECT * FROM read_parquet({_text(file)})")

    def delete(self, where: str) -> None:
        self._db.execute(f"DELETE FROM truth WHERE {where}")

    def figures(self) -> Figures:
        (row,) = self._rows(f"SELECT {SQL} FROM truth")
        return Figures.of(row)

    def count(self, where: str) -> int:
        ((count,),) = self._rows(f"SELECT count(*) FROM truth WHERE {where}")
        return int(count)

    def orders(self, share: float, *, limit: int = 1) -> Sequence[int]:
        """Order keys that are there: from `share` of the way through them, every 37th, at most
        `limit`."""
        found = self._rows("SELECT DISTINCT l_orderkey FROM truth ORDER BY 1")
        first = int(len(found) * share)
        return [key for (key,) in found[first::37][:limit]]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._db.execute(sql).fetchall()
        return found


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"

"""Figures: what two readers must agree on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

# The columns figures are made of, and how, in SQL that DuckDB and Spark share. The last adds up which
# rows they are, so that one row in the place of another is noticed (an order has at most 7 lines).
COLUMNS = ("l_orderkey", "l_linenumber", "l_quantity", "l_extendedprice")
EXPRESSIONS = (
    "count(*)",
    "sum(l_quantity)",
    "sum(l_extendedprice)",
    "cast(sum(l_orderkey * 8 + l_linenumber) as decimal(38, 0))",
)
SQL = ", ".join(EXPRESSIONS)


@dataclass(frozen=True, slots=True)
class Figures:
    rows: int
    quantity: Decimal
    price: Decimal
    keys: int

    @staticmethod
    def of(row: Any) -> Figures:
        """From one row of `EXPRESSIONS`; sums of nothing are NULL."""
        rows, quantity, price, keys = row
        return Figures(int(rows), Decimal(quantity or 0), Decimal(price or 0), int(keys or 0))

    def differences(self, other: Figures) -> list[str]:
        """What differs, as text: mine and the other's."""
        return [
            f"{f.name} {getattr(self, f.name):,} instead of {getattr(other, f.name):,}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(other, f.name)
        ]

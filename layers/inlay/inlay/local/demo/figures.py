"""Figures: what two readers must agree on, and what a step cost.

The cost is what the embedded server was asked for while the step ran, by its access log: counted outside
the program, as S3 would bill it. Another S3 server keeps no log for us.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from inlay import Usage
from inlay.local.s3server import AwsProcess

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


class Meter:
    """`mark()`, then `since_mark()`: what a function of the name asked for (`only`), or all but it (`but`).
    The demo's own uploads into the landing zone do not count."""

    def __init__(self, aws: AwsProcess | None) -> None:
        self._aws = aws
        self._mark = 0

    def mark(self) -> None:
        if self._aws is not None:
            self._mark = max(
                (r.number for r in self._aws.requests(after=self._mark)), default=self._mark
            )

    def since_mark(self, *, only: str = "", but: str = "") -> Usage | None:
        if self._aws is None:
            return None
        requests = [
            request
            for request in self._aws.requests(after=self._mark)
            if request.service == "s3"
            and (request.app == only if only else not but or request.app != but)
            and not (request.method == "PUT" and request.key.startswith("ingest/"))
        ]
        return Usage(
            Counter(request.operation for request in requests),
            sum(request.bytes_in for request in requests),
            sum(request.bytes_out for request in requests),
        )

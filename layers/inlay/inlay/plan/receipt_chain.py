"""The chain of a table's receipts: each has a number and the digest of the one before it.

Promise: of a table with a chain, no receipt can be changed, left out, added or moved to another date
without contradicting the pass that made it, and no pass without contradicting the next. The last link is in
the table's pointer, and moves in the commit that closes the erasures: so there is one chain, whatever runs
side by side. A signature on a pass (`ops.erase.signing`) holds all receipts up to its own against everybody
who does not have the key.

::

    receipt 1 <- receipt 2 <- receipt 3       by `previous`, the SHA-256 of a receipt's bytes
        \\          |              |
      statement of pass A     statement of pass B      one root over the digests of a pass; the pass before
                        \\________/      |
                                   property `erasure.chain`

Pure values. A statement is canonical JSON: members in order of their names, no white space, ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from inlay.errors import CorruptTable
from inlay.format.properties import RECEIPT_CHAIN
from inlay.format.shape import COUNT, TIME, fits
from inlay.record import Record

STATEMENT_TYPE = "application/vnd.inlay.erasure-pass+json"

_DIGEST = r"[0-9a-f]{64}"
_PROPERTY = re.compile(rf"([1-9][0-9]{{0,17}}):({_DIGEST}):({_DIGEST}):(.+)")
_STATEMENT = {
    "ended_us": TIME,
    "first": range(1, COUNT.stop),
    "previous_pass": ({"list": str, "sha256": str}, None),
    "previous_receipt": (str, None),
    "receipts": COUNT,
    "root": str,
    "table": str,
    "version": COUNT,
}


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


class Chain(Record):
    """The end of the chain: how many receipts there are, the digest of the last one, and the pass that made
    it, as the key of its list and the digest of its statement."""

    count: int = 0
    receipt: str | None = None
    made_by: str | None = None
    statement: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Chain:
        """Raises `CorruptTable` where somebody changed the property."""
        text = properties.get(RECEIPT_CHAIN)
        if text is None:
            return cls()
        known = _PROPERTY.fullmatch(text)
        if known is None:
            raise CorruptTable(
                f"the property {RECEIPT_CHAIN} was changed by hand: it names no end of a chain",
                next_step="Its last value is in an older version of the pointer; no receipt can be "
                "held to the chain without it",
            )
        count, receipt, statement, made_by = known.groups()
        return cls(int(count), receipt, made_by, statement)

    @property
    def as_property(self) -> str:
        return f"{self.count}:{self.receipt}:{self.statement}:{self.made_by}"

    @property
    def next_link(self) -> dict[str, Any]:
        """The members of the next receipt that put it into the chain."""
        return {"number": self.count + 1, "previous": self.receipt}

    def with_receipt(self, data: bytes) -> Chain:
        return Chain(self.count + 1, digest_of(data), self.made_by, self.statement)


def root_of(digests: Sequence[str]) -> str:
    """One digest over those of all receipts of a pass, in order: of any number, KMS signs it in one
    request."""
    return digest_of("\n".join(digests).encode("ascii"))


def statement_of(
    table: str, before: Chain, receipts: Sequence[bytes], *, version: int, ended_us: int
) -> bytes:
    """What a pass says of the receipts that it made, in order; it is what is signed. The receipts name the
    lists that they refer to by digest."""
    body = {
        "ended_us": ended_us,
        "first": before.count + 1,
        "previous_pass": None
        if before.made_by is None
        else {"list": before.made_by, "sha256": before.statement},
        "previous_receipt": before.receipt,
        "receipts": len(receipts),
        "root": root_of([digest_of(data) for data in receipts]),
        "table": table,
        "version": version,
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")


class Pass(Record):
    """A pass as it is read back: the key of its list, its statement, the digests of its receipts, in order,
    and the envelope with the signature of the statement, if it was signed."""

    key: str
    statement: bytes
    said: Mapping[str, Any]
    receipts: tuple[str, ...]
    envelope: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        key: str,
        statement: str,
        receipts: Sequence[str],
        envelope: Mapping[str, Any] | None,
    ) -> Pass:
        """Raises `CorruptTable` where the statement is none, or the receipts are no digests."""
        try:
            body = json.loads(statement)
        except (ValueError, RecursionError):
            body = None
        digests = all(re.fullmatch(_DIGEST, digest) for digest in receipts)
        if not (fits(body, _STATEMENT) and statement.isascii() and digests):
            raise CorruptTable(f"{key} has no statement that a pass of erasures makes", key=key)
        return cls(key, statement.encode("ascii"), body, tuple(receipts), envelope)

    @property
    def numbers(self) -> range:
        first: int = self.said["first"]
        return range(first, first + len(self.receipts))


def against_chain(
    chain: Chain, passes: Sequence[Pass], table: str, receipts: Collection[str]
) -> tuple[list[str], dict[int, Pass], list[int]]:
    """(problems, the pass of each number, the numbers whose receipts are missing) of a chain. `passes` are
    those read, following the chain from its end back, the last one first; `there` are the digests of the
    receipts in the bucket, each under its own name.
    """
    problems: list[str] = []
    by_number: dict[int, Pass] = {}
    missing: list[int] = []
    expected = chain
    for pass_ in passes:
        body = pass_.said
        if digest_of(pass_.statement) != expected.statement:
            problems.append(f"{pass_.key} does not have the statement that the chain goes on with")
        if body["table"] != table:
            problems.append(f"{pass_.key} is of another table")
        if body["root"] != root_of(pass_.receipts) or body["receipts"] != len(pass_.receipts):
            problems.append(f"{pass_.key} has other receipts than its statement")
        last = pass_.receipts[-1] if pass_.receipts else None
        if pass_.numbers.stop - 1 != expected.count or last != expected.receipt:
            problems.append(
                f"{pass_.key} does not end with the receipt that the chain goes on with"
            )
        for number, digest in zip(pass_.numbers, pass_.receipts, strict=True):
            by_number[number] = pass_
            if digest not in receipts:
                missing.append(number)
        before = body["previous_pass"] or {"list": None, "sha256": None}
        expected = Chain(
            pass_.numbers.start - 1, body["previous_receipt"], before["list"], before["sha256"]
        )
    if expected.count:
        problems.append(f"the first {expected.count} receipts have no pass")
    return problems, by_number, sorted(missing)

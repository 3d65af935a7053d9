"""One exception tree, grouped by who has to act.

Promise: every failure that leaves the library is an `InlayError` of one of four kinds, names its subject
(table, key, version) and ends with the next step. Functions map the *kind*, never the class, to retry or
dead letter, so a new error needs no new handler.

========== ============================================================= ==========================
kind       who acts                                                      a queue consumer
========== ============================================================= ==========================
``RETRY``  nobody: the same call may succeed later                       leaves the message, retried
``REBASE`` the caller: read again, decide again                          leaves the message, retried
``INPUT``  whoever sent the input                                        dead letter at once
``PAGE``   an operator: store, metadata, clocks or permissions are wrong dead letter at once
========== ============================================================= ==========================
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

# The key of a data file that this library wrote or copied (`format.keys.data_key`).
_OWN_DATA = re.compile(r"data/\d{4}/\d\d/\d\d/\d\d/[0-9a-f-]+\.parquet")


class ErrorKind(Enum):
    """Who can act on an error."""

    RETRY = "retry"
    REBASE = "rebase"
    INPUT = "input"
    PAGE = "page"

    @property
    def is_retried(self) -> bool:
        """Whether the same call may succeed later: a queue delivers its message again."""
        match self:
            case ErrorKind.RETRY | ErrorKind.REBASE:
                return True
            case ErrorKind.INPUT | ErrorKind.PAGE:
                return False


class InlayError(Exception):
    """Base of everything Inlay raises on purpose.

    `message` states what is wrong, `next_step` what to do now. Everything else is optional context and
    goes into the text and, as fields, into structured logs. None of it is ever a row's value.
    """

    kind: ErrorKind = ErrorKind.PAGE
    default_next_step: str = ""

    def __init__(
        self,
        message: str,
        *,
        next_step: str = "",
        table: str | None = None,
        key: str | None = None,
        version: int | None = None,
    ) -> None:
        self.message = message
        self.next_step = next_step or self.default_next_step
        self.table = table
        self.key = key
        self.version = version
        super().__init__(message)

    def __str__(self) -> str:
        about = [
            f"{name}={value}"
            for name, value in self._subject().items()
            if str(value) not in self.message
        ]
        text = self.message + (f" [{', '.join(about)}]" if about else "")
        return f"{text}. {self.next_step}" if self.next_step else text

    def about(self, *, table: str | None = None, key: str | None = None) -> InlayError:
        """This error with context that only the caller had; context already set stays."""
        self.table = self.table or table
        self.key = self.key or key
        return self

    def fields(self) -> dict[str, str | int]:
        """For a structured log line: names to plain values, no row values."""
        fields: dict[str, str | int] = {
            "error": type(self).__name__,
            "kind": self.kind.value,
            "message": self.message,
        }
        if self.next_step:
            fields["next_step"] = self.next_step
        return fields | self._subject()

    def _subject(self) -> dict[str, str | int]:
        named = {"table": self.table, "key": self.key, "version": self.version}
        return {name: value for name, value in named.items() if value is not None}


def a_type(value: object) -> str:
    """
    >>> a_type(1), a_type("x")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


# -- the four kinds -------------------------------------------------------------------------------


class RetryError(InlayError):
    kind = ErrorKind.RETRY


class RebaseError(InlayError):
    kind = ErrorKind.REBASE


class InputError(InlayError):
    kind = ErrorKind.INPUT


class PageError(InlayError):
    kind = ErrorKind.PAGE


# -- retry ----------------------------------------------------------------------------------------


class StoreUnavailable(RetryError):
    """The store did not answer, or answered 5xx/429. For a write the outcome is unknown."""

    default_next_step = "Try again; if it persists, check the store's health"


class NewerMessage(RetryError):
    """A queue's message is of a later version of this library, which is being deployed, or was rolled
    back."""

    default_next_step = "It is delivered again, to the newer function once that is deployed"


class CommitContention(RetryError):
    """Other writers won the pointer swap more often than the retry budget allows."""

    default_next_step = "Try again with the same request id, or batch writes into fewer commits"


class OutcomeUnknown(RetryError):
    """A commit may have landed; neither outcome can be proven any more."""

    default_next_step = (
        "Repeat only with the same request id: the ledger then shows whether it landed"
    )


class StaleUpload(RetryError):
    """Objects of this write were uploaded before the table's GC boundary; GC may delete them."""

    default_next_step = "Run the whole operation again; nothing of this attempt was committed"


class SnapshotGone(RetryError):
    """An object that a snapshot refers to no longer exists: usually the snapshot expired and its objects
    were collected while it was being read."""

    default_next_step = (
        "Refresh the table and try again; if the newest version needs the object too, it was deleted "
        "by something else: `inlay verify` lists everything that is missing"
    )


# -- rebase ---------------------------------------------------------------------------------------


class ConcurrentChange(RebaseError):
    """What this write read has changed since; repeating it without looking would be wrong."""

    default_next_step = "Refresh the table, check what changed, and run the operation again"


class SourceChanged(RebaseError):
    """An object is not the one that was planned for (other ETag or version)."""

    default_next_step = "Plan again on the current object"


# -- input ----------------------------------------------------------------------------------------


class InvalidRequest(InputError):
    """A message or call is malformed. `s3_code` is what S3 calls it, where it is about an S3 request."""

    s3_code: str = ""


class InvalidPredicate(InputError):
    """A WHERE text does not parse or does not fit the schema.

    `text` and `position` (0-based offset) let a terminal mark the place. `is_plain`: the message is about
    its size alone, so that logs and dead letters may have it.
    """

    def __init__(
        self,
        message: str,
        *,
        is_plain: bool = False,
        text: str = "",
        position: int | None = None,
        next_step: str = "",
        table: str | None = None,
    ) -> None:
        self.is_plain = is_plain
        self.text = text
        self.position = position
        super().__init__(message, next_step=next_step, table=table)

    def __str__(self) -> str:
        head = super().__str__()
        if self.position is None or not self.text:
            return head
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        # A one-megabyte request must not become a one-megabyte error.
        column = self.position - line_start
        start = max(0, column - 60)
        return f"{head}\n  {line[start : start + 120]}\n  {' ' * (column - start)}^"


class SchemaMismatch(InputError):
    """Data does not fit the table's schema."""

    default_next_step = "Cast the data to the table's schema, or evolve the schema first"


class UnsupportedType(InputError):
    """A type that the format, or the engine at hand, cannot hold."""


class UnreadableFile(InputError):
    """An object is not Parquet, is cut short, or contradicts itself.

    Of a file in a table no sending anew helps: the next step names the command that takes it out.
    """

    default_next_step = (
        "Replace the object with a valid Parquet file and send it again. One that a table has adopted is "
        "taken out of it by `inlay delete TABLE --where TRUE --file KEY`"
    )

    def __init__(self, message: str, *, next_step: str = "", **about: Any) -> None:
        super().__init__(message, next_step=next_step, **about)
        self._advise()

    def about(self, *, table: str | None = None, key: str | None = None) -> InlayError:
        super().about(table=table, key=key)
        self._advise()
        return self

    def _advise(self) -> None:
        if self.next_step == self.default_next_step and _OWN_DATA.fullmatch(self.key or ""):
            self.next_step = (
                f"`inlay delete TABLE --where TRUE --file {self.key}` takes the file and its rows out of "
                'the table. Scans and change feeds leave it out with on_damaged="skip" (--on-damaged skip)'
            )


class UnsupportedFile(InputError):
    """Valid, but not supported: encrypted, signed, too large a footer."""


class UntrueStatistics(UnsupportedFile):
    """The statistics in `files`, which another writer left, leave out rows that they have. `ref` is the
    branch that the files are of."""

    files: tuple[str, ...] = ()
    ref: str | None = None


class NeedsMemory(UnsupportedFile):
    """A row group takes more memory than this process may hold."""


class UnsupportedTable(InputError):
    """A table of another format has something that cannot be taken over exactly."""

    default_next_step = (
        "Nothing was changed. Change what is named in the source table, or copy its rows"
    )


class NotAllowed(InputError):
    """The caller is not allowed to request this."""

    default_next_step = (
        "Send erasures to the deployment's erase queue, which its EraserPolicy grants"
    )


class NotGranted(InputError):
    """A file that a table adopted in place may not be read: by the deployment, or as its store answers."""

    default_next_step = (
        "Add the location to the deployment's AdoptFrom parameter, or compact the table with credentials "
        "that may read it (pipelines.compact), which moves the rows into files of the table"
    )


class TableNotFound(InputError):
    default_next_step = "Check the name, or create the table first"


class TableExists(InputError):
    default_next_step = "Open it instead, or choose another location"


class VersionNotFound(InputError):
    """A version never existed or has been expired."""

    default_next_step = "List the versions that can be read with `inlay history`"


class RefNotFound(InputError):
    """No tag or branch has this name."""

    default_next_step = "List them with `inlay refs`"


class RefExists(InputError):
    """A tag or branch with this name exists already."""

    default_next_step = "Choose another name, or drop the existing one with `inlay drop-ref`"


class RefHeld(InputError):
    """A legal hold protects this tag."""

    default_next_step = "Lift the hold first: `inlay tag TABLE NAME --release`"


class MergeConflict(InputError):
    """A branch and main have changed the same file in ways that cannot be combined."""


class Unpublishable(InputError):
    """The table cannot be shown exactly to other engines. The last publication stays in place."""

    default_next_step = "Change what is named, then publish again; readers see the last publication"


class ForeignCommit(Unpublishable):
    """Another engine or catalog has committed to a published table, with metadata of its own beside it."""

    default_next_step = (
        "Nothing was overwritten or deleted. `inlay publish --take-over` makes it a commit of the table; "
        "deleting the file gives it up; then repeat this"
    )


class TableHandedOver(InputError):
    """Another catalog has the table: nothing here changes it."""

    default_next_step = (
        "Write by that catalog, or take the table back: `inlay hand-over --take-back`"
    )


class ObjectGone(InputError):
    """An object that a request names no longer exists."""

    default_next_step = "Send the object again if it is still needed"


class RequestReused(InputError):
    """A request id was used before with another body."""

    default_next_step = "Use a new request id for a new request"


class RequestTooOld(InputError):
    """Older than the ledger's horizon: it is no longer known whether it was applied."""

    default_next_step = "Check whether it was applied; if not, send it again as a new request"


# -- page -----------------------------------------------------------------------------------------


class CorruptTable(PageError):
    """Metadata is cut short, edited by hand or contradicts itself."""

    default_next_step = (
        "Stop writing to this table and run `inlay verify`: it says what `inlay repair` mends"
    )


class NewerFormat(PageError):
    """Written by a later version of the format than this library reads."""

    default_next_step = "Upgrade inlay before touching this table"


class KeyTaken(PageError):
    """A write-once object exists already, with other bytes."""

    default_next_step = "Inspect the object named: something else has written it"


class TableReplaced(PageError):
    """The pointer now belongs to another table, or is gone."""

    default_next_step = "Open the table again and check who replaced it"


class ForeignArchives(TableReplaced):
    """Archives beside the pointer belong to another history: the pointer was put back to an older version,
    or a table that was here before left its archives."""

    default_next_step = (
        "Nothing was overwritten. Stop the writers, and run `inlay repair` to see what it would do"
    )


class ClocksDisagree(PageError):
    """The store's `Date` and LastModified differ by more than deletion can tolerate."""

    default_next_step = (
        "Nothing was deleted. Correct the store's clocks, or set a larger clock margin if they are known "
        "to differ by less than that"
    )


class UnsupportedStore(PageError):
    """The store does not do what the format requires of one."""

    default_next_step = (
        "Nothing was changed. Run the suite of stores against it first (docs/STORES.md)"
    )


class AccessDenied(PageError):
    default_next_step = "Check the credentials and the policies of bucket and key"

"""Observability of the functions: structured logs, metrics, traces.

Promise: every line has the request id and, where known, the table, version and commit; metrics are per
function and, if the deployment asks for it, per table; zeros are not emitted; no line, metric or trace
contains a row's value or a word of a predicate. The function's own verb is Powertools' service name
(`template.yaml`).

CloudWatch bills each metric and set of dimensions by the month: nine metrics of a thousand tables cost more
than the tables do (docs/COST.md), so per-table metrics are optional, and only names of existing tables are
used.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from inlay.errors import InlayError, InvalidRequest, TableNotFound
from inlay.functions import settings
from inlay.functions.validation import without_values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from inlay import CollectResult, Usage, WriteResult
    from inlay.engine import Snapshot

logger = Logger()
Handler = Callable[[Any, Any], Any]

_DAY_US = 86_400 * 1_000_000
# An erasure may wait for thousands of files: the first few are logged.
_MAX_WARNINGS = 10
_BYTES = ("BytesUp", "BytesDown", "CompactionBacklogBytes")


class ReportedFailure(Exception):
    """A failure whose reason was logged already, and whose text Lambda may print."""


class InternalFailure(ReportedFailure):
    """An internal error, by the name of its type only; the log has its place."""


def observed(handler: Handler) -> Handler:
    """A Lambda handler with the request's id in its logs. Its trace is Lambda's own (`Tracing: Active`):
    X-Ray's SDK would add a client on each cold start, some 0.3 s, without adding information.

    Lambda prints what a handler raises, and another library's message may quote a row: of such an error
    only the type is passed on."""

    def guarded(event: Any, context: Any) -> Any:
        try:
            return handler(event, context)
        except (ReportedFailure, BatchProcessingError):
            raise
        except InlayError as error:
            raise without_values(error) from None
        except Exception as error:
            report_failure(error, fate="retry", message_id=context.aws_request_id)
            raise InternalFailure(type(error).__name__) from None

    logged: Handler = logger.inject_lambda_context(guarded, log_event=False, clear_state=True)
    return logged


def function_name() -> str:
    """`ingest`, `delete` …"""
    return os.environ.get("POWERTOOLS_SERVICE_NAME", "inlay")


def report_write(table: str, write: WriteResult) -> None:
    """Logs and counts what one write did."""
    noted: dict[str, Any] = {"note": write.note} if write.note else {}
    logger.info(
        write.operation,
        table=table,
        committed=write.committed,
        version=write.version,
        commit_id=write.commit_id,
        added_rows=write.added_rows,
        deleted_rows=write.deleted_rows,
        added_files=write.added_files,
        removed_files=write.removed_files,
        duplicates=write.duplicates,
        attempts=write.attempts,
        requests=write.requests,
        bytes_up=write.bytes_up,
        bytes_down=write.bytes_down,
        **noted,
    )
    count(
        table,
        {
            "Commits": int(write.committed),
            "Rows": write.added_rows,
            "DeletedRows": write.deleted_rows or 0,
            "Duplicates": write.duplicates,
            "Requests": write.requests,
            "BytesUp": write.bytes_up,
            "BytesDown": write.bytes_down,
        },
    )


def report_work(
    table: str, operation: str, result: DataclassInstance, usage: Usage | None
) -> Mapping[str, Any]:
    """Logs and counts what maintenance did; returns the same, for the function's answer. Lists and tables
    in `result` are reported by length only."""
    report = {
        field.name: _short(getattr(result, field.name)) for field in dataclasses.fields(result)
    }
    if usage is not None:
        report |= {
            "requests": usage.total,
            "bytes_up": usage.bytes_up,
            "bytes_down": usage.bytes_down,
        }
        count(
            table,
            {
                "Commits": int(report.get("commits") or 0),
                "Requests": usage.total,
                "BytesUp": usage.bytes_up,
                "BytesDown": usage.bytes_down,
            },
        )
    logger.info(operation, extra={"table": table, **report})
    return report


def _short(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, str | int | float):
        return value
    return len(value) if isinstance(value, Sized) else type(value).__name__


def report_erasures(
    table: str, snapshot: Snapshot, collected: CollectResult, *, now_us: int
) -> None:
    """Logs and counts the erasures that are still open: the age of the oldest, how many wait for each kind
    of thing, and a warning for what will not resolve with time alone. Erasures are named by the version
    that opened them, because an id is the sender's."""
    waiting = collected.waiting
    opened = {erasure.id: erasure for erasure in snapshot.erasures}
    still = [opened[name] for name in {name for name, _ in waiting} if name in opened]
    if not still:
        return
    by_kind = Counter(what for _, what in {(name, wait.what) for name, wait in waiting})
    oldest_days = (now_us - min(erasure.opened_us for erasure in still)) / _DAY_US
    count(
        table,
        {
            "OldestErasureDays": oldest_days,
            **{f"ErasuresWaitingFor{what.capitalize()}": n for what, n in by_kind.items()},
        },
    )
    stuck = [(opened[name], wait) for name, wait in waiting if wait.what != "time"]
    for erasure, wait in stuck[:_MAX_WARNINGS]:
        logger.warning(
            "an erasure waits",
            table=table,
            opened_version=erasure.opened_version,
            open_days=round((now_us - erasure.opened_us) / _DAY_US, 2),
            what=wait.what,
            name_of_it=wait.name,
            reason=wait.reason,
            of=len(stuck),
        )


def report_superseded(table: str, key: str) -> None:
    """Logs and counts a content that was overwritten before it was ingested, in a bucket without versions:
    it can no longer be ingested."""
    logger.warning(
        "Superseded",
        table=table,
        key=key,
        next_step="Enable versioning of the bucket, or give each file a unique name",
    )
    count(table, {"Superseded": 1})


def report_taken_back(table: str, key: str) -> None:
    """Logs and counts an object that its owner deleted before its event was handled."""
    logger.info("TakenBack", table=table, key=key)
    count(table, {"TakenBack": 1})


def report_refused(table: str, key: str, records: int, listed: str) -> None:
    """Logs and counts the records of a text that were left out, and says where they are listed."""
    logger.warning("RecordsRefused", table=table, key=key, records=records, listed=listed)
    count(table, {"RecordsRefused": records})


def report_failures(failures: Iterable[tuple[str, InlayError]]) -> None:
    """Logs and counts the files, by key, that maintenance could not read; the others were done."""
    for key, error in failures:
        report_failure(error, fate="left as it is", message_id=key)


def report_failure(error: Exception, *, fate: str, message_id: str) -> None:
    """Logs why a message was not processed, and counts it."""
    if isinstance(error, InlayError):
        said = {"fate": fate, "message_id": message_id, **_about(without_values(error))}
        logger.warning("not done", extra=said)
        # Errors name a table by its URI. For these two it is unknown whether the table exists.
        unknown = isinstance(error, InvalidRequest | TableNotFound) or error.table is None
        table = None if unknown else str(error.table).rpartition("/")[2]
        count(table, {f"Failed{error.kind.value.capitalize()}": 1})
    else:
        # An internal error: its text may quote anything, so only its type and place are logged.
        logger.error(
            "not done", fate=fate, message_id=message_id, error=type(error).__name__, at=_at(error)
        )
        count(None, {"FailedUnexpectedly": 1})


def count(table: str | None, values: Mapping[str, float]) -> None:
    """Emits metrics of the function in CloudWatch's embedded format, and of the table as well if the
    deployment asks for that. Zeros are not emitted."""
    report = {name: value for name, value in values.items() if value}
    by_table = [table] if table is not None and settings.table_metrics() else []
    for dimension in [None, *by_table] if report else ():
        metrics = EphemeralMetrics()
        if dimension is not None:
            metrics.add_dimension("table", dimension)
        for name, value in report.items():
            unit = MetricUnit.Bytes if name in _BYTES else MetricUnit.Count
            metrics.add_metric(name=name, unit=unit, value=value)
        metrics.flush_metrics()


def _about(error: InlayError) -> dict[str, str | int]:
    fields = error.fields()
    # `message` is the log line's own field.
    return {("reason" if name == "message" else name): value for name, value in fields.items()}


def _at(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"

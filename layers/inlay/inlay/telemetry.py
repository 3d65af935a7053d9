"""Spans and counters of the library for OpenTelemetry, on request.

    import inlay.telemetry
    inlay.telemetry.instrument()

Promise: each call of an operation is a span `inlay.<operation>`, ended when its rows have been read where
it reads; every request to a store counts where it is sent, whoever sends it. Names and units are in
`docs/SERVICE.md`. No span or attribute has a row's value, a condition or an error's text. Needs the package
`opentelemetry-api`, and does nothing until the application has set up its SDK. Without `instrument()`
nothing of this is loaded: the operations know nothing of it, they are wrapped as instrumentations do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from inlay.errors import InlayError, RebaseError
from inlay.ops.read.scan import Scan
from inlay.storage.wrapped import Meter
from inlay.table import Table
from inlay.table.maintain import Maintain
from inlay.table.refs import Refs

_TABLE = (
    *("append", "ingest", "delete", "update", "upsert", "overwrite", "apply_changes"),
    *("alter", "set_partitioning", "set_properties", "publish", "count", "refresh"),
    *("copy_to", "clone_to"),
)
_MAINTAIN = (
    *("compact", "rewrite", "settle", "delete_row_groups", "expire", "collect_garbage"),
    *("verify", "repair", "hand_over", "take_back", "waive", "withdraw"),
)
_REFS = ("tag", "branch", "drop", "set_hold", "fast_forward", "merge", "restore")

_wrapped: list[tuple[type, str, Any]] = []


def instrument() -> None:
    """Begin: a second call changes nothing."""
    if _wrapped:
        return
    tracer, meter = trace.get_tracer("inlay"), metrics.get_meter("inlay")
    for owner, names in ((Table, _TABLE), (Maintain, _MAINTAIN), (Refs, _REFS)):
        for name in names:
            _wrap(owner, name, _Operation(name, tracer, meter).around)
    _wrap(Scan, "_batches", _Operation("scan", tracer, meter).around_stream)
    requests = meter.create_counter("inlay.requests", "{request}", "Requests to stores")
    sent = meter.create_counter("inlay.bytes.sent", "By", "Bodies of requests to stores")
    received = meter.create_counter("inlay.bytes.received", "By", "Bodies of stores' answers")

    def counting_sent(count: Callable[..., None]) -> Callable[..., None]:
        def counted(self: Meter, verb: str, bytes_up: int = 0) -> None:
            requests.add(1, {"inlay.verb": verb})
            if bytes_up:
                sent.add(bytes_up)
            count(self, verb, bytes_up)

        return counted

    def counting_received(count: Callable[..., None]) -> Callable[..., None]:
        def counted(self: Meter, bytes_down: int) -> None:
            received.add(bytes_down)
            count(self, bytes_down)

        return counted

    _wrap(Meter, "sent", counting_sent)
    _wrap(Meter, "received", counting_received)


def uninstrument() -> None:
    """End: the operations are as they were."""
    while _wrapped:
        owner, name, original = _wrapped.pop()
        setattr(owner, name, original)


def _wrap(owner: type, name: str, around: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _wrapped.append((owner, name, original))
    setattr(owner, name, wraps(original)(around(original)))


class _Operation:
    """One operation's span and what is counted of its calls."""

    def __init__(self, name: str, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self._name, self._tracer = name, tracer
        self._retries = meter.create_counter(
            "inlay.retries", "{try}", "Tries of commits that another writer came before"
        )
        self._conflicts = meter.create_counter(
            "inlay.conflicts", "{call}", "Calls refused because of what others had committed"
        )
        self._erasures = meter.create_gauge(
            "inlay.erasures.open", "{erasure}", "Erasures of a table without a receipt so far"
        )

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(owner: Any, *given: Any, **options: Any) -> Any:
            table: Table = owner if isinstance(owner, Table) else owner._table
            with self._tracer.start_as_current_span(
                f"inlay.{self._name}",
                kind=SpanKind.CLIENT,
                attributes={"inlay.table": table.uri},
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    result = method(owner, *given, **options)
                except Exception as error:
                    self._failed(span, error)
                    raise
                self._ended(span, table, result)
                return result

        return call

    def around_stream(self, batches: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def stream(scan: Scan) -> Iterator[Any]:
            # Not the current span: what the reader does between two batches is none of it.
            span = self._tracer.start_span(
                f"inlay.{self._name}",
                kind=SpanKind.CLIENT,
                attributes={"inlay.table": scan._ctx.uri},
            )
            rows = 0
            try:
                for batch in batches(scan):
                    rows += batch.num_rows
                    yield batch
            except Exception as error:
                self._failed(span, error)
                raise
            finally:
                span.set_attribute("inlay.rows.read", rows)
                span.end()

        return stream

    def _ended(self, span: Span, table: Table, result: Any) -> None:
        span.set_attribute("inlay.version", table.version)
        write = getattr(result, "write", result)
        for attribute, fact in (
            ("inlay.committed", "committed"),
            ("inlay.attempts", "attempts"),
            ("inlay.rows.added", "added_rows"),
            ("inlay.rows.deleted", "deleted_rows"),
        ):
            value = getattr(write, fact, None)
            if isinstance(value, int):
                span.set_attribute(attribute, value)
        tried_again = getattr(write, "attempts", 1) - 1
        if tried_again > 0:
            self._retries.add(tried_again, {"inlay.operation": self._name})
        open_erasures = sum(erasure.predicate is not None for erasure in table.snapshot.erasures)
        self._erasures.set(open_erasures, {"inlay.table": table.uri})

    def _failed(self, span: Span, error: Exception) -> None:
        """By its type alone: another library's text may quote a row."""
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.set_attribute("error.type", type(error).__name__)
        if isinstance(error, InlayError):
            span.set_attribute("inlay.error.kind", error.kind.value)
        if isinstance(error, RebaseError):
            self._conflicts.add(1, {"inlay.operation": self._name})

"""Shared by the jobs: a session, progress on the console, errors with their next step.

Promise: under `spark-submit` a job uses the given session; run as a module it starts one on this machine.
Results are printed as one JSON object on stdout (with `--metrics` one that CloudWatch turns into metrics),
everything else goes to stderr. The exit code is 0 when the job is done, 1 when it failed, 2 when units of
it failed and the others are committed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from inlay.errors import InlayError

# One line at most this often: the log of an hour's job must stay readable.
PROGRESS_SECONDS = 1.0

# Results that are not plain counts, with their CloudWatch units.
UNITS = {
    "seconds": "Seconds",
    "bytes": "Bytes",
    "input_bytes": "Bytes",
    "read_bytes": "Bytes",
    "written_bytes": "Bytes",
    "version": "None",
}

Job = Callable[[Any, argparse.Namespace], Any]


def parser(doc: str | None, *, table: bool = True) -> argparse.ArgumentParser:
    """The arguments of every job. The first line of the job's docstring begins `--help`, the others end it.
    Without `table` the job itself defines what it works on."""
    promise, _, details = (doc or "").partition("\n")
    found = argparse.ArgumentParser(
        description=promise,
        epilog=details.strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if table:
        found.add_argument("--table", required=True, help="the table's URI: s3://… or file:///…")
    found.add_argument("--dry-run", action="store_true", help="report what would be done, and stop")
    found.add_argument(
        "--metrics",
        metavar="NAMESPACE",
        help="print the result so that CloudWatch Logs makes metrics of its numbers (EMF)",
    )
    found.add_argument("--master", help="Spark master when not under spark-submit (local[*])")
    return found


def source_arguments(asking: argparse.ArgumentParser) -> None:
    """The arguments of a job that loads data."""
    asking.add_argument("--source", required=True, help="what Spark is to read: a path or prefix")
    asking.add_argument("--format", default="parquet", help="its Spark format")
    asking.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of that format",
    )
    asking.add_argument("--select", help="columns or expressions to load, Spark SQL (all)")
    asking.add_argument("--where", help="rows to load, Spark SQL (all)")


def rows_of(spark: Any, asked: argparse.Namespace, files: Sequence[str] = ()) -> Any:
    """The data that `source_arguments` describe, as a DataFrame; only the given files of it, if any."""
    options = dict(option.partition("=")[::2] for option in asked.option)
    frame = spark.read.format(asked.format).options(**options).load(list(files) or asked.source)
    if asked.where:
        frame = frame.where(asked.where)
    return _selected(spark, frame, asked.select) if asked.select else frame


def _selected(spark: Any, frame: Any, select: str) -> Any:
    """The list between SELECT and FROM, parsed by Spark: functions and texts contain commas, too."""
    view = f"inlay_source_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        return spark.sql(f"SELECT {select} FROM {view}")
    finally:
        spark.catalog.dropTempView(view)


def names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def run(job: Job, asked: argparse.Namespace) -> int:
    """Runs a job and returns its exit code."""
    was_there = _is_there()
    spark = _session(asked)
    started = time.monotonic()
    try:
        outcome = job(spark, asked)
    except InlayError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        if not was_there:  # a notebook's session is the notebook's
            spark.stop()
    report = plain(outcome)
    report["seconds"] = round(time.monotonic() - started, 1)
    if asked.metrics:
        report |= emf(
            asked.metrics, {"job": Path(inspect.getfile(job)).stem, "table": asked.table}, report
        )
    print(json.dumps(report))
    return 2 if report.get("failures") else 0


def emf(
    namespace: str, dimensions: Mapping[str, str | None], report: Mapping[str, Any]
) -> dict[str, Any]:
    """What makes a line of JSON one in CloudWatch's embedded metric format: each number is a metric."""
    known = {name: value for name, value in dimensions.items() if value is not None}
    numbers = [
        n for n, v in report.items() if isinstance(v, int | float) and not isinstance(v, bool)
    ]
    metrics = [{"Name": name, "Unit": UNITS.get(name, "Count")} for name in numbers]
    described = {"Namespace": namespace, "Dimensions": [list(known)], "Metrics": metrics}
    return {
        **known,
        "_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [described]},
    }


def progress(of: str = "units") -> Callable[[str, int, int | None], None]:
    """Reports the progress of long work on stderr."""
    last = 0.0

    def show(what: str, done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or done == total:
            last = now
            print(f"{what}  {done:,} of {total or 0:,} {of}", file=sys.stderr, flush=True)

    return show


def _is_there() -> bool:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _session(asked: argparse.Namespace) -> Any:
    from inlay.spark import session

    print("starting Spark", file=sys.stderr, flush=True)
    return session(master=asked.master)


def plain(outcome: Any) -> dict[str, Any]:
    """The printable form of a result: its counts, and what failed."""
    found = asdict(outcome) if is_dataclass(outcome) else dict(outcome)
    found.pop("choices", None)  # one for each file
    failures: Sequence[Any] = found.pop("failures", ())
    if failures:
        found["failures"] = [{**f, "error": str(f["error"])} for f in failures]
    return found

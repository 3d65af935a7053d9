"""Load data into a branch, compact it there, and publish it to main in one step.

    python -m pipelines.publish --table s3://bucket/tables/events --source s3://bucket/dump/2026-01-31/ \\
        --branch nightly --check "amount < 0 OR id IS NULL"

Readers of main see nothing of the load until all of it is there, checked (--check) and compacted. A run
that was killed is run again with the same arguments: nothing is loaded or published twice. A load is
identified by the files of its source, with their sizes and times (or by --request-id), so the next night
may use the same branch and path again. If main changed meanwhile the branch is merged, else main takes the
branch's content.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from typing import Any

import inlay
from inlay.engine import PartedWrite, Request
from inlay.errors import InvalidRequest
from inlay.spark import append, count
from inlay.spark.connect import at_ref, load_writable
from inlay.spark.maintenance import compact
from inlay.spark.writer import append_request
from pipelines.job import parser, plain, progress, rows_of, run, source_arguments


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    source_arguments(asking)
    asking.add_argument("--branch", required=True, help="where the load is until it is published")
    asking.add_argument(
        "--check",
        metavar="SQL",
        help='publish only if no loaded row is like this, such as "amount < 0 OR id IS NULL"',
    )
    asking.add_argument(
        "--request-id",
        help="identifies the load; needed for a source without files, such as a database",
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    frame = rows_of(spark, asked)
    if asked.dry_run:
        return {"dry_run": True, "schema": frame.schema.simpleString(), "branch": asked.branch}
    table = inlay.open(asked.table)
    load = _identity(spark, frame, asked)
    published = f"publish {load} of {asked.branch}"
    branch = _branch(table, asked.branch)
    if _is_done(asked.table, Request.of(published, body=f"merge {asked.branch}")):
        if branch is not None and not branch["written"]:
            table.refs.drop(asked.branch)  # a run was killed when all but this was done
        return {"published": False, "already": True, "rows": table.refresh().count()}
    if branch is None:
        table.refs.branch(asked.branch)
        branch = _branch(table.refresh(), asked.branch)
    assert branch is not None
    loading = f"load {load} into {asked.branch} of {branch['base']}"
    if branch["written"] and not _is_done(asked.table, append_request(loading)):
        raise InvalidRequest(
            f"the branch {asked.branch!r} holds something else that is not published",
            next_step=f"Finish that load, or drop it: inlay drop-ref {asked.table} {asked.branch}",
        )
    append(frame, asked.table, ref=asked.branch, request_id=loading)
    _check(spark, asked, branch["base"])
    packed = compact(spark, at_ref(asked.table, asked.branch), progress=progress())
    done = table.refresh().refs.merge(asked.branch, request_id=published)
    table.refresh().refs.drop(asked.branch)
    return {
        "published": True,
        "version": done.version,
        "rows": inlay.open(asked.table).count(),
        "compacted": plain(packed),
    }


def _branch(table: inlay.Table, name: str) -> dict[str, Any] | None:
    return next((ref for ref in table.inspect.refs().to_pylist() if ref["name"] == name), None)


def _is_done(uri: str, request: Request) -> bool:
    """Whether the table has applied this request."""
    ctx, loaded = load_writable(uri)
    write = PartedWrite(table=loaded.without_entries(), request=request)
    return write.applied(ctx, loaded)[1] is not None


def _identity(spark: Any, frame: Any, asked: argparse.Namespace) -> str:
    """What identifies this load: its arguments, and its files."""
    if asked.request_id:
        return str(asked.request_id)
    digest = hashlib.sha256()
    for part in (asked.source, asked.format, *sorted(asked.option), asked.select, asked.where):
        digest.update(f"{part}\0".encode())
    files = sorted(set(frame.inputFiles()))
    if files:
        listed = spark.read.format("binaryFile").load(files)
        for row in listed.select("path", "length", "modificationTime").orderBy("path").collect():
            digest.update(f"{tuple(row)}\0".encode())
    return digest.hexdigest()[:32]


def _check(spark: Any, asked: argparse.Namespace, base: int) -> None:
    if not asked.check:
        return
    bad = count(spark, asked.table, ref=asked.branch, where=asked.check, since=base)
    if bad:
        raise InvalidRequest(
            f"{bad} loaded rows are {asked.check}",
            next_step=f"Correct them on the branch {asked.branch!r}, or drop it: "
            f"inlay drop-ref {asked.table} {asked.branch}",
        )


if __name__ == "__main__":
    sys.exit(main())

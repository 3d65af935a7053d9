"""Take-over: what another engine has committed to a published table by its path becomes a commit.

Promise: the newest metadata file after what is published (`ops.metadata.publication`) is compared with it,
and what it changed is committed as if the catalog had been asked, once: all of it or nothing. Appends go on
whatever the table is by now; what else was committed by path holds for the published version only. Then the
engine's metadata files are removed, and the table is published. Killed anywhere, a second call ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from inlay.errors import ConcurrentChange, ForeignCommit, InvalidRequest
from inlay.format import keys
from inlay.iceberg.commit import CommitRequest, of_the_request
from inlay.iceberg.metadata import MAIN
from inlay.ops.catalog.commit import (
    committed,
    is_append_alone,
    name_of,
    planned,
    published_now,
    refuse_open_erasure,
)
from inlay.ops.commit.driver import Conflicted, already_applied
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_pointer
from inlay.ops.metadata.publication import foreign_metadata, load_hint
from inlay.ops.publish.publish import PublishResult, publish
from inlay.record import replace


def take_over(ctx: Context) -> PublishResult:
    """Raises `ConcurrentChange` where the table has moved on and the engine did more than append,
    `ForeignCommit` for metadata that cannot be read, `InvalidRequest` for what the catalog would refuse."""
    ctx = replace(ctx, branch=None)
    loaded = load_pointer(ctx)
    ctx = replace(ctx, table_id=loaded.snapshot.table_id)
    published = published_now(ctx)
    if published is None:
        raise InvalidRequest(
            "the table is not published", next_step="Without take_over, publish it", table=ctx.uri
        )
    theirs = _theirs(ctx, published.version)
    if theirs:
        request = of_the_request(partial(_request, published.metadata, theirs[max(theirs)]))
        named = name_of(request)
        loaded, before = already_applied(ctx, loaded, named)
        if before is None:
            refuse_open_erasure(loaded)
            change = planned(ctx, loaded, published.metadata, request)
            moved_on = loaded.snapshot.version != published.version
            if change is not None and moved_on and not is_append_alone(change):
                raise ConcurrentChange(
                    "the table has changed since the version that the other engine committed to",
                    next_step="Do the work again through `inlay serve --write`, and delete "
                    f"{keys.published_metadata_key(max(theirs))}, which gives the other commit up",
                    table=ctx.uri,
                )
            if change is not None:
                outcome = committed(ctx, replace(change, request=named), loaded)
                if isinstance(outcome, Conflicted):
                    raise ConcurrentChange(outcome.conflict.reason, table=ctx.uri)
                loaded = outcome.loaded
        _remove(ctx, theirs)
    return publish(ctx, base=loaded)


def _theirs(ctx: Context, published: int) -> Mapping[int, Mapping[str, Any]]:
    """The metadata that another engine wrote, by number: from the one after what is published on, and what
    the hint names."""
    metadata_of: dict[int, Mapping[str, Any]] = {}
    number = published + 1
    while (metadata := foreign_metadata(ctx, number)) is not None:
        metadata_of[number] = metadata
        number += 1
    hint = load_hint(ctx).version
    if hint is not None and hint > published and hint not in metadata_of:
        metadata = foreign_metadata(ctx, hint)
        if metadata is not None:
            metadata_of[hint] = metadata
    return metadata_of


def _remove(ctx: Context, theirs: Mapping[int, object]) -> None:
    """The hint first: readers by path then see what is published."""
    names = [keys.VERSION_HINT] if load_hint(ctx).version in theirs else []
    names += [keys.published_metadata_key(number) for number in sorted(theirs, reverse=True)]
    for name in names:
        for failure in ctx.store.delete([ctx.key(name)]):
            raise ForeignCommit(
                f"its rows are in the table, and {name} cannot be removed: {failure.reason}",
                next_step="Take it over as someone who may delete objects",
                table=ctx.uri,
                key=failure.key,
            )


def _request(before: Mapping[str, Any], after: Mapping[str, Any]) -> CommitRequest:
    """The commit that makes `after` of `before`, as an engine would have asked the catalog for it.
    Snapshots that are gone were expired by the engine: that ends nothing here."""
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": after["table-uuid"]},
        {"action": "set-location", "location": after["location"]},
    ]
    if after["format-version"] != before["format-version"]:
        version = after["format-version"]
        updates.append({"action": "upgrade-format-version", "format-version": version})
    for listed, key, current, one in (
        ("schemas", "schema-id", "current-schema-id", "schema"),
        ("partition-specs", "spec-id", "default-spec-id", "spec"),
        ("sort-orders", "order-id", "default-sort-order-id", "sort-order"),
    ):
        if after[current] != before[current]:
            [chosen] = (item for item in after[listed] if item[key] == after[current])
            setting = "set-current-schema" if one == "schema" else f"set-default-{one}"
            updates.append({"action": f"add-{one}", one: chosen})
            updates.append({"action": setting, f"{one}-id": -1})
    updates += _of_properties(before["properties"], after["properties"])
    known = {snapshot["snapshot-id"] for snapshot in before["snapshots"]}
    updates += (
        {"action": "add-snapshot", "snapshot": snapshot}
        for snapshot in after["snapshots"]
        if snapshot["snapshot-id"] not in known
    )
    refs = after.get("refs") or {MAIN: {"snapshot-id": after["current-snapshot-id"]}}
    for name, ref in refs.items():
        if ref.get("snapshot-id") != before["refs"].get(name, {}).get("snapshot-id"):
            updates.append(
                {"type": "branch", **ref, "action": "set-snapshot-ref", "ref-name": name}
            )
    return CommitRequest((), tuple(updates))


def _of_properties(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Sequence[dict[str, object]]:
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    gone = [name for name in before if name not in after]
    updates: list[dict[str, object]] = []
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    if gone:
        updates.append({"action": "remove-properties", "removals": gone})
    return updates

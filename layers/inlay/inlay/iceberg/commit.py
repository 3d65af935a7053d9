"""What an Iceberg client asks of a catalog that takes commits: requirements, updates, new tables.

Promise: `unmet` says which requirement of a request does not hold of a table's metadata, and
`apply_updates` returns the metadata that the updates make of it, as Iceberg's REST specification defines
them (`rest-catalog-open-api.yaml`, "TableRequirement", "TableUpdate"). Nothing is guessed: a requirement or
an update that is not known, or that asks for what Inlay does not keep, is refused by name
(`InvalidRequest`). Pure: requests are JSON that anybody may have sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from math import isfinite
from typing import Any, TypeVar

from inlay.errors import InlayError, InvalidRequest
from inlay.iceberg.metadata import MAIN
from inlay.record import Record

# Iceberg's writers send some kilobytes; schemas of thousands of columns some megabytes.
MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_UPDATES = 10_000
# Clients send a UUID; it is kept with the commit.
MAX_KEY_CHARACTERS = 255
# Levels of a schema; those of a table of Inlay are fewer.
_MAX_DEPTH = 64
T = TypeVar("T")
Json = Mapping[str, Any]


class CommitRequest(Record):
    """One POST. `idempotency_key` names it where the client repeats it."""

    requirements: tuple[Json, ...]
    updates: tuple[Json, ...]
    idempotency_key: str | None = None

    @property
    def creates(self) -> bool:
        return any(r.get("type") == "assert-create" for r in self.requirements)

    @property
    def head(self) -> tuple[str, int] | None:
        """The branch that this request sets to a snapshot that it brings, and that snapshot's id. Raises
        `InvalidRequest` where it brings one for several, or for none: a snapshot is not kept for later."""
        brought = {_snapshot(u)["snapshot-id"] for u in self.updates if _is(u, "add-snapshot")}
        refs: dict[str, Json] = {}
        for update in self.updates:
            if _is(update, "set-snapshot-ref"):
                refs[str(update["ref-name"])] = update
            elif _is(update, "remove-snapshot-ref"):
                refs.pop(str(update["ref-name"]), None)
        new = {n: u["snapshot-id"] for n, u in refs.items() if u["snapshot-id"] in brought}
        if not brought:
            return None
        if len(new) != 1 or any(refs[n].get("type", "branch") != "branch" for n in new):
            raise InvalidRequest(
                f"a commit brings snapshots for one branch, and this one has them for {len(new)} refs",
                next_step="Commit to one branch at a time; snapshots are not staged (write.wap)",
            )
        return next(iter(new.items()))

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that a branch is set to by this request, of those that it brings."""
        head = self.head
        return None if head is None else head[1]


def read_request(body: bytes) -> Any:
    """The JSON of a request. Raises `InvalidRequest`."""
    if len(body) > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"the request has {len(body)} bytes, more than {MAX_REQUEST_BYTES}")
    try:
        request = json.loads(body, parse_float=_finite, parse_constant=_finite)
        if b"\\ud" in body.lower():  # half a pair of surrogates is no character
            json.dumps(request, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise InvalidRequest("the request is not JSON, or has half a character in it") from None
    return request


def _finite(text: str) -> float:
    """A number of JSON, which has no others: 1e999 would be infinite here, and no id, size or text."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is no number of JSON")
    return number


def commit_request(request: Any, idempotency_key: str | None = None) -> CommitRequest:
    """Raises `InvalidRequest` for anything but lists of objects."""

    def listed(name: str) -> tuple[Json, ...]:
        values = request.get(name, []) if isinstance(request, Mapping) else None
        if not isinstance(values, list) or not all(isinstance(v, Mapping) for v in values):
            raise InvalidRequest(f"a commit has a list of {name}")
        if len(values) > MAX_UPDATES:
            raise InvalidRequest(f"a commit has at most {MAX_UPDATES} {name}")
        return tuple(values)

    made = CommitRequest(listed("requirements"), listed("updates"), idempotency_key)
    of_the_request(lambda: made.snapshot_id)
    return made


def checked_key(idempotency_key: str | None) -> str | None:
    """The `Idempotency-Key` of a request, if it has one. Raises `InvalidRequest`."""
    if idempotency_key is not None and not 0 < len(idempotency_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequest(f"an Idempotency-Key has 1 to {MAX_KEY_CHARACTERS} characters")
    return idempotency_key


# -- requirements ---------------------------------------------------------------------------------


def unmet(
    requirements: Sequence[Json], metadata: Json | None, *, moved: Collection[str] = ()
) -> str:
    """The first requirement that does not hold, in words; empty if all do. `metadata` None: there is no
    table. `moved`: branches that may have another snapshot than the request says. Raises
    `InvalidRequest`."""
    for requirement in requirements:
        reason = of_the_request(partial(_unmet, requirement, metadata, moved=moved))
        if reason:
            return reason
    return ""


def _unmet(requirement: Json, metadata: Json | None, *, moved: Collection[str]) -> str:
    kind = requirement.get("type")
    if kind == "assert-create":
        return "" if metadata is None else "the table exists already"
    if metadata is None:
        return "the table does not exist"
    if kind == "assert-ref-snapshot-id":
        name, required = str(requirement["ref"]), requirement.get("snapshot-id")
        # A branch that is to be made is not one that others have made meanwhile.
        if name in moved and (required is not None or name == MAIN):
            return ""
        has = metadata["refs"].get(name, {}).get("snapshot-id")
        return "" if has == required else f"{name} has snapshot {has}, not {required}"
    of = _OF_METADATA.get(str(kind))
    if of is None:
        raise InvalidRequest(f"unknown requirement {str(kind)[:80]!r}")
    name, field = of
    has, required = metadata[field], requirement[name]
    return "" if has == required else f"{field} is {has}, not {required}"


# The requirements that compare one field of the metadata, by name: what they hold, and the field.
_OF_METADATA = {
    "assert-table-uuid": ("uuid", "table-uuid"),
    "assert-last-assigned-field-id": ("last-assigned-field-id", "last-column-id"),
    "assert-current-schema-id": ("current-schema-id", "current-schema-id"),
    "assert-last-assigned-partition-id": ("last-assigned-partition-id", "last-partition-id"),
    "assert-default-spec-id": ("default-spec-id", "default-spec-id"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default-sort-order-id"),
}


# -- updates --------------------------------------------------------------------------------------


def apply_updates(metadata: Json, updates: Sequence[Json]) -> dict[str, Any]:
    """The metadata after the updates, in their order. Raises `InvalidRequest`."""
    changed = json.loads(json.dumps(metadata))
    last: dict[str, int] = {}
    for update in updates:
        of_the_request(partial(_apply, changed, update, last))
    return dict(changed)


def _apply(changed: dict[str, Any], update: Json, last: dict[str, int]) -> None:
    match update.get("action"):
        case "assign-uuid":
            if changed.get("table-uuid") not in (None, update["uuid"]):
                raise InvalidRequest("the id of a table does not change")
            changed["table-uuid"] = str(update["uuid"])
        case "upgrade-format-version":
            version = update["format-version"]
            if type(version) is not int or version < changed["format-version"]:
                raise InvalidRequest(f"a table does not go back to format version {version}")
            changed["format-version"] = version
        case "set-location":
            if str(update["location"]).rstrip("/") != changed["location"]:
                raise InvalidRequest(
                    "a table stays where it is",
                    next_step="`inlay copy` makes one elsewhere",
                )
        case "add-schema":
            schema = dict(update["schema"])
            last["schema"] = _added(changed["schemas"], schema, "schema-id", ("fields", _KEY))
            highest = max(_ids_of(schema), default=0)
            changed["last-column-id"] = max(changed["last-column-id"], highest)
        case "set-current-schema":
            schemas = changed["schemas"]
            changed["current-schema-id"] = _chosen(update["schema-id"], "schema", schemas, last)
        case "add-spec":
            spec = _numbered(dict(update["spec"]), changed)
            last["spec"] = _added(changed["partition-specs"], spec, "spec-id", ("fields",))
        case "set-default-spec":
            specs = changed["partition-specs"]
            changed["default-spec-id"] = _chosen(update["spec-id"], "spec", specs, last)
        case "add-sort-order":
            order = dict(update["sort-order"])
            last["order"] = _added(changed["sort-orders"], order, "order-id", ("fields",))
        case "set-default-sort-order":
            listed, chosen = changed["sort-orders"], update["sort-order-id"]
            changed["default-sort-order-id"] = _chosen(chosen, "order", listed, last)
        case "set-properties":
            given = update["updates" if "updates" in update else "updated"]
            changed["properties"] |= {str(k): str(v) for k, v in given.items()}
        case "remove-properties":
            for name in update["removals" if "removals" in update else "removed"]:
                changed["properties"].pop(name, None)
        case "add-snapshot":
            snapshot = dict(_snapshot(update))
            if any(s["snapshot-id"] == snapshot["snapshot-id"] for s in changed["snapshots"]):
                raise InvalidRequest(f"snapshot {snapshot['snapshot-id']} exists already")
            changed["snapshots"].append(snapshot)
        case "set-snapshot-ref":
            _set_ref(changed, update)
        case "remove-snapshot-ref":
            changed["refs"].pop(name := str(update["ref-name"]), None)
            if name == MAIN:
                changed["current-snapshot-id"] = None
        case "set-statistics" | "remove-statistics" | "set-partition-statistics":
            pass  # of the source's planner: what is published has none
        case "remove-partition-statistics":
            pass
        case "remove-snapshots":
            _remove_snapshots(changed, update["snapshot-ids"])
        case other:
            raise InvalidRequest(f"unknown update {str(other)[:80]!r}")


_KEY = "identifier-field-ids"


def _set_ref(changed: dict[str, Any], update: Json) -> None:
    name, snapshot_id = str(update["ref-name"]), update["snapshot-id"]
    kind = update.get("type") or "branch"
    there = changed["refs"].get(name, {"type": kind})
    if kind not in ("branch", "tag") or there["type"] != kind or (name == MAIN and kind == "tag"):
        raise InvalidRequest(f"{name[:80]!r} is no {str(kind)[:20]}")
    limits = [limit for limit in _LIMITS if update.get(limit) is not None]
    if limits and name != MAIN:
        raise InvalidRequest(
            f"{limits[0]} of {name[:80]!r}: a tag or branch is kept until it is dropped",
            next_step="Make it without, and drop it when it is no longer needed",
        )
    if all(s["snapshot-id"] != snapshot_id for s in changed["snapshots"]):
        raise InvalidRequest(f"there is no snapshot {snapshot_id}")
    changed["refs"][name] = {"snapshot-id": snapshot_id, "type": kind}
    if name == MAIN:
        changed["current-snapshot-id"] = snapshot_id


_LIMITS = ("max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep")


def _remove_snapshots(changed: dict[str, Any], ids: Sequence[int]) -> None:
    for name, ref in changed["refs"].items():
        if ref["snapshot-id"] in ids:
            raise InvalidRequest(
                f"snapshot {ref['snapshot-id']} is that of {name[:80]!r}",
                next_step="Drop the tag or branch first, or leave the snapshot",
            )
    changed["snapshots"] = [s for s in changed["snapshots"] if s["snapshot-id"] not in ids]


def _added(listed: list[Any], new: dict[str, Any], name: str, same: tuple[str, ...]) -> int:
    """The id of `new` in the list, to which it is added unless one like it is there."""

    def content(item: Json) -> list[Any]:
        return [item.get(field) or [] for field in same]

    for item in listed:
        if content(item) == content(new):
            return int(item[name])
    taken = {int(item[name]) for item in listed}
    given = new.get(name)
    if type(given) is not int or given < 0 or given in taken:
        given = max(taken, default=-1) + 1
    listed.append({**new, name: given})
    return given


def _chosen(given: Any, what: str, listed: Sequence[Json], last: Mapping[str, int]) -> int:
    """The id of a schema, spec or order of those `listed`; -1 is what this request added last."""
    if type(given) is not int or (given == -1 and what not in last):
        raise InvalidRequest("-1 names what a request has added, and this one has added nothing")
    chosen = last[what] if given == -1 else given
    if all(item[f"{what}-id"] != chosen for item in listed):
        raise InvalidRequest(f"there is no {what} {given}")
    return chosen


def _numbered(spec: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """A spec whose fields have ids; those without get new ones, as in metadata of other specs."""
    known = {
        (f["source-id"], f["transform"]): f["field-id"]
        for spec_before in metadata["partition-specs"]
        for f in spec_before["fields"]
    }
    fields = []
    for field in spec.get("fields") or ():
        number = field.get("field-id") or known.get((field.get("source-id"), field["transform"]))
        number = _id(number or max(metadata["last-partition-id"], 999) + 1)
        metadata["last-partition-id"] = max(metadata["last-partition-id"], number)
        fields.append({**field, "field-id": number})
    return {**spec, "fields": fields}


def _snapshot(update: Json) -> Json:
    snapshot = update["snapshot"]
    if type(snapshot["snapshot-id"]) is not int or not 0 < snapshot["snapshot-id"] < 2**63:
        raise InvalidRequest("a snapshot has an id of 63 bits")
    if not isinstance(snapshot.get("manifest-list"), str):
        raise InvalidRequest("a snapshot has a manifest list")
    if type(snapshot.get("parent-snapshot-id")) not in (int, type(None)):
        raise InvalidRequest("the parent of a snapshot is an id of one, or there is none")
    return dict(snapshot)


def _is(update: Json, action: str) -> bool:
    return update.get("action") == action


def of_the_request(read: Callable[[], T]) -> T:
    """What `read` returns of a request; any shape that it stumbles on is refused. For pure functions of
    what a request says, alone."""
    try:
        return read()
    except InlayError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            f"the request is not of the specification: {type(error).__name__} {str(error)[:80]}"
        ) from None


# -- new tables -----------------------------------------------------------------------------------


def empty_metadata(location: str, *, format_version: int = 2) -> dict[str, Any]:
    """A table before its first update."""
    return {
        "format-version": format_version,
        "location": location.rstrip("/"),
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": -1,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "properties": {},
        "current-snapshot-id": None,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "refs": {},
        "statistics": [],
    }


def created_metadata(request: Any, location: str, uuid: str) -> dict[str, Any]:
    """The metadata of a table that a client asks to create: columns are numbered from 1, whatever the
    request calls them. Raises `InvalidRequest`."""

    def build() -> dict[str, Any]:
        schema, ids = _renumbered(request["schema"])
        properties = {str(k): str(v) for k, v in (request.get("properties") or {}).items()}
        updates: list[Json] = [
            {"action": "assign-uuid", "uuid": uuid},
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "set-properties", "updates": properties},
        ]
        for name, field in (("spec", "partition-spec"), ("sort-order", "write-order")):
            given = request.get(field)
            if given and given.get("fields"):
                named = [{**f, "source-id": ids[f["source-id"]]} for f in given["fields"]]
                which = "spec-id" if name == "spec" else "sort-order-id"
                updates.append({"action": f"add-{name}", name: {"fields": named}})
                updates.append({"action": f"set-default-{name}", which: -1})
        version = properties.get("format-version", "2")
        if version not in ("2", "3"):
            raise InvalidRequest(f"format version {version[:10]!r} is not 2 or 3")
        return apply_updates(empty_metadata(location, format_version=int(version)), updates)

    return of_the_request(build)


def _renumbered(schema: Json) -> tuple[dict[str, Any], dict[int, int]]:
    """The schema with ids from 1, in the order in which Iceberg gives them: the fields of a struct, then
    those within each. And the new id of each old one."""
    ids: dict[int, int] = {}
    numbers = count(1)

    def number(old: int) -> int:
        if old in ids:
            raise InvalidRequest(f"field id {old} is used twice")
        ids[old] = next(numbers)
        return ids[old]

    def kind_of(kind: Any, depth: int) -> Any:
        if not isinstance(kind, Mapping):
            return kind
        if depth > _MAX_DEPTH:
            raise InvalidRequest(f"the schema has more than {_MAX_DEPTH} levels")
        made = dict(kind)
        parts = [p for p in ("element", "key", "value") if f"{p}-id" in kind]
        if kind["type"] == "struct":
            fields = [{**f, "id": number(f["id"])} for f in kind["fields"]]
            made["fields"] = [{**f, "type": kind_of(f["type"], depth + 1)} for f in fields]
        for part in parts:
            made[f"{part}-id"] = number(kind[f"{part}-id"])
        for part in parts:
            made[part] = kind_of(kind[part], depth + 1)
        return made

    made = kind_of({**schema, "type": "struct"}, 0)
    if schema.get(_KEY):
        made[_KEY] = [ids[i] for i in schema[_KEY]]
    return {**made, "schema-id": 0}, ids


def _ids_of(kind: Any, depth: int = 0) -> Iterator[int]:
    """Every field id of a schema."""
    if not isinstance(kind, Mapping) or depth > _MAX_DEPTH:
        return
    for field in kind.get("fields") or ():
        yield _id(field["id"])
        yield from _ids_of(field["type"], depth + 1)
    for part in ("element", "key", "value"):
        if f"{part}-id" in kind:
            yield _id(kind[f"{part}-id"])
            yield from _ids_of(kind[part], depth + 1)


def _id(given: Any) -> int:
    """Raises `ValueError` for what equals an id, or reads like one, and is none."""
    if type(given) is not int:
        raise ValueError(f"{given!r} is no id")
    return given

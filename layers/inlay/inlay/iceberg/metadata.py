"""Table metadata: the JSON object at the root of a published table, and the pointer to it.

Promise: `table_metadata` is Iceberg's table metadata (specification, "Table Metadata"), of version 2 or 3;
sequence numbers are Inlay's versions, and so are snapshot ids, except those that an engine gave to its own
commits. The published pointer is the answer of a REST
catalog to `loadTable`, so that a file server can be a catalog; what Inlay itself needs to know of the
publication is in the metadata's properties.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from inlay.errors import CorruptTable
from inlay.format.snapshot import Note, RefKind, Snapshot, note_of
from inlay.iceberg.manifest import Manifest
from inlay.iceberg.schema import Specs
from inlay.record import Record, field

# Snapshots a published table offers for time travel: each adds some 300 bytes to every publication.
MAX_SNAPSHOTS = 8
MAIN = "main"
# Property of published metadata whose current snapshot has an id that an engine gave it: a commit by path
# upon it carries the property on, but its snapshot has another id.
ENGINES_ID = "inlay.snapshot-id"
# Property of published metadata whose version no hint names: "no".
VERSION_HINT = "inlay.version-hint"
# In the note of a version that an engine committed: its id of the snapshot. Ids are 63 bits.
_NOTED = "iceberg.snapshot-id"
# And the ids of snapshots that engines are not to see any more.
_REMOVED = "iceberg.removed-snapshots"
_MAX_ID = 2**63 - 1
# In the summary of every snapshot: the bytes of its files.
_SIZE = "total-files-size"
# In the summary of a branch's own snapshot: the branch, and the id of the object with its content.
_BRANCH, HEAD = "inlay.branch", "inlay.head"


def engines_note(snapshot_id: int | None, removed: Iterable[int] = ()) -> Note | None:
    """The note of a version that an engine commits as its snapshot `snapshot_id`, if it brings one."""
    note = {} if snapshot_id is None else {_NOTED: str(snapshot_id)}
    gone = ",".join(map(str, sorted(removed)))
    note |= {_REMOVED: gone} if gone else {}
    return Note(None, note, is_sought=True) if note else None


def engines_id(snapshot: Snapshot, branch: str | None = None) -> int | None:
    """The id that an engine gave to this version, of main or a branch; None for any other version."""
    text = note_of(snapshot).metadata.get(_NOTED, "")
    return _id_of(text) if snapshot.commit.branch == branch else None


def removed_ids(snapshot: Snapshot) -> frozenset[int]:
    """The published snapshots that an engine removed by this version."""
    listed = map(_id_of, note_of(snapshot).metadata.get(_REMOVED, "").split(","))
    return frozenset(uri for uri in listed if uri is not None)


def id_of_a_head(head: str) -> int:
    """What the snapshot of a branch is called where no engine gave it a name."""
    return int.from_bytes(blake2b(head.encode(), digest_size=8).digest()) % _MAX_ID + 1


def _id_of(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_ID))
    return int(text) if is_number and 0 < int(text) <= _MAX_ID else None


class Published(Record, kw_only=True):
    """A published snapshot: Inlay's `version`, its manifest list, its totals. `id` is the version, or what
    the engine that committed it calls it; `parent` is such an id."""

    version: int
    id: int
    time_us: int
    manifest_list: str
    schema_id: int
    parent: int | None = None
    first_row_id: int | None = None
    added_rows: int = 0
    summary: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str | None:
        """Of a branch's own snapshot: the object with its content."""
        return self.summary.get(HEAD)

    @property
    def branch(self) -> str | None:
        return self.summary.get(_BRANCH)

    def to_json(self, format_version: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "snapshot-id": self.id,
            "sequence-number": self.version,
            "timestamp-ms": self.time_us // 1000,
            "manifest-list": self.manifest_list,
            "schema-id": self.schema_id,
            "summary": dict(self.summary),
        }
        if self.parent is not None:
            body["parent-snapshot-id"] = self.parent
        if format_version >= 3:
            body |= {"first-row-id": self.first_row_id or 0, "added-rows": self.added_rows}
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Published:
        return Published(
            version=body["sequence-number"],
            id=body["snapshot-id"],
            time_us=body["timestamp-ms"] * 1000,
            manifest_list=body["manifest-list"],
            schema_id=body["schema-id"],
            parent=body.get("parent-snapshot-id"),
            first_row_id=body.get("first-row-id"),
            added_rows=body.get("added-rows", 0),
            summary=body.get("summary", {}),
        )


class Publication(Record, kw_only=True):
    """The content of the published pointer. `commit` is the id of the commit that made the version: a table
    that was put back has another one. Empty: published before ids were noted."""

    version: int
    commit: str
    table_id: str
    format_version: int
    root: str
    location: str  # of the metadata file
    current_id: int
    snapshots: tuple[Published, ...]  # of main
    schemas: tuple[Mapping[str, Any], ...]
    next_row_id: int
    fingerprint: str
    types: str  # of the columns that had other ones; files were checked against them
    specs: tuple[Mapping[str, Any], ...] = ()
    leaves_of_a_group: int | None = None
    branches: tuple[Published, ...] = ()  # of branches with a content of their own
    has_hint: bool = True  # for engines that open the table's folder

    @property
    def current(self) -> Published:
        return next(s for s in (*self.snapshots, *self.branches) if s.id == self.current_id)


class PublishedRef(Record):
    kind: RefKind
    id: int  # of a published snapshot


def summary_of_a_branch(name: str, head: str) -> dict[str, str]:
    return {_BRANCH: name, HEAD: head}


def totals(manifests: Iterable[Manifest], size: int | None) -> dict[str, str]:
    """What the summary of a snapshot says of all that it has, which Iceberg Java's `register_table` and its
    estimates read. `size` are the bytes of its files; None: they are not known."""
    files, rows = [0, 0], [0, 0]
    for manifest in manifests:
        files[manifest.content] += manifest.added + manifest.existing
        rows[manifest.content] += manifest.added_rows + manifest.existing_rows
    counts = {
        "total-data-files": files[0],
        "total-records": rows[0],
        "total-delete-files": files[1],
        "total-position-deletes": rows[1],
        "total-equality-deletes": 0,
    }
    known = counts if size is None else {**counts, _SIZE: size}
    return {name: str(count) for name, count in known.items()}


def size_of(published: Published) -> int | None:
    """The bytes that the summary of a snapshot says its files have."""
    text = published.summary.get(_SIZE, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def table_metadata(
    *,
    table_id: str,
    root: str,
    format_version: int,
    snapshots: Sequence[Published],
    schemas: Sequence[Mapping[str, Any]],
    schema_id: int,
    last_field_id: int,
    specs: Specs,
    older_specs: Sequence[Mapping[str, Any]],
    spec_id: int,
    refs: Mapping[str, PublishedRef],
    branches: Sequence[Published],
    next_row_id: int,
    properties: Mapping[str, str],
) -> dict[str, Any]:
    """`snapshots` of main oldest first, the last is current; `branches` are the snapshots of branches with
    a content of their own; `older_specs` may be those of manifests of older snapshots."""
    current = snapshots[-1]
    body: dict[str, Any] = {
        "format-version": format_version,
        "table-uuid": table_id,
        "location": root,
        "last-sequence-number": current.version,
        "last-updated-ms": max(s.time_us // 1000 for s in (*snapshots, *branches)),
        "last-column-id": last_field_id,
        "schemas": list(schemas),
        "current-schema-id": schema_id,
        "partition-specs": [*(s.to_json() for s in specs.by_id.values()), *older_specs],
        "default-spec-id": spec_id if spec_id in specs.by_id else 0,
        "last-partition-id": max(
            [specs.last_partition_id, *(f["field-id"] for s in older_specs for f in s["fields"])]
        ),
        "properties": _with_id(properties, current),
        "current-snapshot-id": current.id,
        "snapshots": [s.to_json(format_version) for s in (*snapshots, *branches)],
        "snapshot-log": [
            {"snapshot-id": s.id, "timestamp-ms": s.time_us // 1000} for s in snapshots
        ],
        "metadata-log": [],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "refs": {
            MAIN: {"snapshot-id": current.id, "type": "branch"},
            **{
                name: {"snapshot-id": ref.id, "type": ref.kind}
                for name, ref in refs.items()
                if name != MAIN
            },
        },
        "statistics": [],
    }
    if format_version >= 3:
        body["next-row-id"] = next_row_id
    return body


def _with_id(properties: Mapping[str, str], current: Published) -> dict[str, str]:
    """`properties`, with the id that an engine gave to the current snapshot."""
    own = {ENGINES_ID: str(current.id)} if current.id != current.version else {}
    return {**properties, **own}


def is_publication(metadata: Any, version: int) -> bool:
    """Whether `metadata`, of a table under the name of `version`, was published by Inlay. What another
    engine commits upon a publication has its properties, too, but a snapshot or a log of its own."""
    match metadata:
        case {
            "current-snapshot-id": current,
            "last-sequence-number": sequence,
            "metadata-log": [],
            "properties": {"inlay.fingerprint": _, **others},
        }:
            named = (str(version), others.get(ENGINES_ID))
            return bool(sequence == version and str(current) in named)
        case _:  # whatever JSON says
            return False


def encode_pointer(metadata: Mapping[str, Any], location: str) -> bytes:
    """The published pointer: the answer to `loadTable`."""
    body = {"metadata-location": location, "metadata": metadata, "config": {}}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def decode_pointer(data: bytes) -> Publication:
    """Raises `CorruptTable` for anything that a publication of Inlay did not write."""
    try:
        answer = json.loads(data)
        metadata = answer["metadata"]
        properties = metadata["properties"]
        snapshots = tuple(Published.from_json(s) for s in metadata["snapshots"])
        publication = Publication(
            version=int(metadata["last-sequence-number"]),
            commit=properties.get("inlay.commit", ""),
            table_id=metadata["table-uuid"],
            format_version=int(metadata["format-version"]),
            root=metadata["location"],
            location=answer["metadata-location"],
            current_id=int(metadata["current-snapshot-id"]),
            snapshots=tuple(s for s in snapshots if s.head is None),
            schemas=tuple(metadata["schemas"]),
            next_row_id=int(metadata.get("next-row-id", 0)),
            fingerprint=properties["inlay.fingerprint"],
            types=properties.get("inlay.types", ""),
            specs=tuple(metadata["partition-specs"]),
            # 0 or none: a publisher that did not choose.
            leaves_of_a_group=max(int(properties.get("inlay.leaves-of-a-group") or 0), 0) or None,
            branches=tuple(s for s in snapshots if s.head is not None),
            has_hint=properties.get(VERSION_HINT) != "no",
        )
        if publication.current.version != publication.version:
            raise ValueError("its newest snapshot is not the current one")
        return publication
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise CorruptTable(
            f"the published pointer cannot be read: {type(error).__name__} {str(error)[:80]}",
            next_step="`inlay publish --rebuild` publishes the table from scratch",
        ) from None

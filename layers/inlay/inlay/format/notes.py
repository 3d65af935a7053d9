"""Notes: what the author of a commit says of it, a message and metadata, kept in the version that it made.

Promise: a note is part of its version: it is committed by the same swap or not at all, is read with the
version for nothing, and ends when the version expires. It is a property of the snapshot (docs/FORMAT.md,
section 5) that names its version, so a library that knows of no notes and carries it on says nothing wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inlay.errors import InvalidRequest, a_type
from inlay.format.properties import COMMIT_NOTE
from inlay.format.snapshot import Snapshot

# Of a note as JSON, in UTF-8. It is written twice, with the pointer and in its archive.
MAX_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class Note:
    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


def make_note(message: object = None, metadata: object = None) -> Note | None:
    """A note of what a caller gives; None where that is nothing. Values are kept as text. Raises
    `InvalidRequest`."""
    if message is not None and not isinstance(message, str):
        raise InvalidRequest(f"a message is text, not {a_type(message)}")
    note = Note(message or None, _texts(metadata))
    if note == Note():
        return None
    try:
        size = len(_encoded(note, 0).encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidRequest("a message cannot contain an unpaired surrogate") from None
    if size > MAX_BYTES:
        raise InvalidRequest(
            f"message and metadata of a commit take {size} bytes, more than {MAX_BYTES}",
            next_step="Store the text elsewhere, and its location here",
        )
    return note


def _texts(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidRequest(
            f"metadata cannot be {a_type(metadata)}",
            next_step='Give names and texts: {"job": "17"}',
        )
    for name, value in metadata.items():
        if not isinstance(name, str) or not name or not isinstance(value, str | int | float):
            raise InvalidRequest(
                f"metadata {str(name)[:50]!r} is not a name with a text",
                next_step='Give names and texts: {"job": "17"}',
            )
    return {name: str(value) for name, value in metadata.items()}


def _encoded(note: Note, version: int) -> str:
    found: dict[str, Any] = {"version": version}
    if note.message is not None:
        found["message"] = note.message
    if note.metadata:
        found["metadata"] = dict(note.metadata)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def with_note(properties: Mapping[str, str], note: Note | None, version: int) -> Mapping[str, str]:
    """The properties of `version` with this note, and with none of an earlier version."""
    if note is not None:
        return {**properties, COMMIT_NOTE: _encoded(note, version)}
    if COMMIT_NOTE not in properties:
        return properties
    return {name: value for name, value in properties.items() if name != COMMIT_NOTE}


def note_of(snapshot: Snapshot) -> Note:
    """What the author of this very version said; an empty note for nothing, or for what cannot be read."""
    try:
        found = json.loads(snapshot.properties.get(COMMIT_NOTE) or "{}")
        if found.get("version") != snapshot.version:
            return Note()
        message, metadata = found.get("message"), found.get("metadata", {})
        texts = {str(name): str(value) for name, value in metadata.items()}
    except (ValueError, AttributeError, RecursionError):
        return Note()
    return Note(message if isinstance(message, str) else None, texts)

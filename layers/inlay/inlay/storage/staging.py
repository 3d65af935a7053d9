"""The folder in which a directory store collects the parts of an unfinished upload.

Promise: an upload exists as a whole or not at all, by its manifest; a part is replaced in one step. What a
crash leaves behind is hidden from listings of objects but listed among the uploads, so that garbage
collection finds it and no row survives there unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

from inlay.storage import files, rules
from inlay.storage.base import Part
from inlay.storage.tree import HIDDEN

TEMPORARY: Final = f"{HIDDEN}tmp-"
UPLOAD: Final = f"{HIDDEN}upload-"
_MANIFEST: Final = "upload.json"
_PART: Final = "part-"
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")


def temporary_name() -> str:
    return f"{TEMPORARY}{uuid.uuid4().hex}"


def is_upload_id(text: str) -> bool:
    """An id becomes part of a path: only generated ids may pass."""
    return _UPLOAD_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an upload was started with; `name` is the object's name in its folder."""

    name: str
    started_us: int
    metadata: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Staging:
    """The folder of one upload, open."""

    folder: int

    def manifest(self) -> Manifest | None:
        """None before the upload is whole and once it was completed or aborted."""
        try:
            with files.open_file(_MANIFEST, self.folder) as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        return Manifest(found["name"], found["started_us"], found["metadata"], found["headers"])

    def end(self) -> None:
        files.remove(_MANIFEST, self.folder)

    def stage(self, number: int, write: Callable[[BinaryIO], object]) -> Part:
        temporary = temporary_name()
        with files.create(temporary, self.folder) as file:
            write(file)
            file.flush()
            etag = files.etag(os.fstat(file.fileno()))
        os.rename(temporary, _part_name(number), src_dir_fd=self.folder, dst_dir_fd=self.folder)
        return Part(number, etag)

    def parts(self) -> dict[int, rules.StagedPart]:
        found = {}
        for name in os.listdir(self.folder):  # noqa: PTH208 - by descriptor
            facts = files.facts(self.folder, name) if name.startswith(_PART) else None
            if facts is not None:
                number = int(name.removeprefix(_PART))
                found[number] = rules.StagedPart(files.etag(facts), facts.st_size)
        return found

    def open_part(self, number: int) -> BinaryIO:
        return files.open_file(_part_name(number), self.folder)


def start(folder: int, manifest: Manifest) -> str:
    """Make an upload's folder inside `folder`; returns the upload's id."""
    upload_id = uuid.uuid4().hex
    name = f"{UPLOAD}{upload_id}"
    os.mkdir(name, dir_fd=folder)
    content = {
        "name": manifest.name,
        "started_us": manifest.started_us,
        "metadata": dict(manifest.metadata),
        "headers": dict(manifest.headers),
    }
    # Renamed into place: nobody may read half a manifest.
    files.write_json(f"{name}/{TEMPORARY}", content, folder)
    os.rename(f"{name}/{TEMPORARY}", f"{name}/{_MANIFEST}", src_dir_fd=folder, dst_dir_fd=folder)
    return upload_id


@contextlib.contextmanager
def opened(path: str) -> Iterator[Staging | None]:
    """The upload's folder at `path`; None when it is not there."""
    try:
        folder = files.open_folder(path)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield Staging(folder)
    finally:
        os.close(folder)


def _part_name(number: int) -> str:
    return f"{_PART}{number:05d}"

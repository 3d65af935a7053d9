"""Keys as paths below a root, and folders walked in key order.

Promise: a key never names anything outside the root, and a walk gives keys in the order of their
UTF-8 bytes, which is not the order of directories: "a.b" comes before "a/b", because "." sorts
before "/". (Sorting `str` by code point is sorting its UTF-8 bytes.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inlay.errors import InvalidRequest
from inlay.storage import files, rules

# Names that begin so are the store's own: never listed, refused as keys.
HIDDEN: Final = ".inlay-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. `key` ends in a slash if it is a folder itself."""

    key: str
    found: os.DirEntry[str]

    @property
    def is_folder(self) -> bool:
        return self.key.endswith("/")


@dataclass(frozen=True, slots=True)
class Tree:
    """The folder `root`, a path ending in a slash."""

    root: str

    def split(self, key: str) -> tuple[str, str]:
        """(the folder's path with its slash, the name). Refuses a key that cannot be a file."""
        rules.check_key(key)
        _check_segments(key, key.split("/"))
        parent, slash, name = key.rpartition("/")
        return f"{self.root}{parent}{slash}", name

    def walk(self, prefix: str, *, start_after: str | None = None) -> Iterator[Entry]:
        """Files whose key starts with `prefix`, in key order, after `start_after`."""
        open_folders = [iter(self.entries(prefix))]
        while open_folders:  # ends: a file system is finite and links are not followed
            for entry in open_folders[-1]:
                key = entry.key
                if not entry.is_folder:
                    if start_after is None or key > start_after:
                        yield entry
                    continue
                wholly_before = (
                    start_after is not None
                    and key < start_after
                    and not start_after.startswith(key)
                )
                if not wholly_before:
                    open_folders.append(iter(self.entries(key)))
                    break
            else:
                open_folders.pop()

    def folders(self, prefix: str) -> Iterator[str]:
        """The keys ("" or with a slash) of all folders that can hold a key of `prefix`."""
        yield _folder_of(prefix)
        waiting = [prefix]
        while waiting:  # ends: see walk
            for entry in self.entries(waiting.pop()):
                if entry.is_folder:
                    yield entry.key
                    waiting.append(entry.key)

    def entries(self, prefix: str) -> list[Entry]:
        """Files and folders one level down whose key starts with `prefix`, in key order.

        A link to a file is that file; a link to a folder is left out, because it may be a cycle.
        """
        folder_key = _folder_of(prefix)
        found = []
        for each in self.scan(folder_key):
            key = folder_key + each.name
            if each.name.startswith(HIDDEN) or not key.startswith(prefix) or not _is_text(key):
                continue
            if each.is_dir(follow_symlinks=False):
                found.append(Entry(f"{key}/", each))
            elif each.is_file():
                found.append(Entry(key, each))
        found.sort(key=lambda entry: entry.key)
        return found

    def scan(self, folder_key: str) -> list[os.DirEntry[str]]:
        """Everything in a folder, hidden names too, unsorted; nothing if there is no folder."""
        with files.typed(folder_key):
            try:
                with os.scandir(self.root + folder_key) as found:
                    return [*found]
            except (FileNotFoundError, NotADirectoryError):
                return []


def _folder_of(prefix: str) -> str:
    folder, slash, _ = prefix.rpartition("/")
    if slash:
        _check_segments(prefix, folder.split("/"))
    return folder + slash


def _check_segments(key: str, segments: Sequence[str]) -> None:
    """Refuses keys that a path would resolve to another place."""
    if any(part in ("", ".", "..") or part.startswith(HIDDEN) for part in segments) or "\0" in key:
        raise InvalidRequest(
            f"key {key[:200]!r} cannot be a file",
            next_step=f'Use keys without empty, "." and ".." segments or names in {HIDDEN}*',
        )


def _is_text(name: str) -> bool:
    """False for a name whose bytes are not UTF-8: no key can express it."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True

"""The file system under a directory store: files, keys as paths, unfinished uploads.

Files are created hidden, locked, copied, identified. Promise: an ETag changes with the bytes, a lock is
never left behind, and an error of the operating system becomes an error of the library.

The ETag is inode, modification time and size. The store sets the time itself (`directory.py`), so it is
finer than the kernel's tick of some 4 ms, within which a reused inode could give two contents one ETag. A
file edited in place by others gets the kernel's time: such an edit is detected unless size and tick are the
same, the limit that make and git have too. A content hash would detect it, at the price of reading every
file to list it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO, Final

from inlay.errors import AccessDenied, InlayError, InvalidRequest, StoreUnavailable
from inlay.record import Record
from inlay.storage import rules
from inlay.storage.base import ByteRange, Part

# How long a writer waits for a folder's lock. It is held for a few system calls; a process that holds it
# longer is stopped, not slow.
LOCK_PATIENCE_SECONDS: Final = 60.0
_FIRST_WAIT_SECONDS: Final = 0.0002
_LONGEST_WAIT_SECONDS: Final = 0.01
# copy_file_range is asked for this much at a time, plain reading for less: it holds it in memory.
_COPY_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 1024 * 1024


def etag(facts: os.stat_result) -> str:
    return f"{facts.st_ino:x}-{facts.st_mtime_ns:x}-{facts.st_size:x}"


def open_folder(path: str) -> int:
    """A descriptor, to be closed by the caller."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def facts(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def create(name: str, folder: int) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb")


def open_file(name: str, folder: int) -> BinaryIO:
    return os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), "rb")


def remove(name: str, folder: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def write_json(name: str, value: Mapping[str, Any], folder: int) -> None:
    with create(name, folder) as file:
        file.write(json.dumps(value).encode())


def copy_bytes(source: BinaryIO, target: BinaryIO, byte_range: ByteRange) -> None:
    """Append a range of `source` to `target`, inside the kernel (and by reference where the file
    system can) if possible. Not a hard link: a user may edit the source in place."""
    target.flush()
    offset, end = byte_range.start, byte_range.end
    if hasattr(os, "copy_file_range"):
        # EXDEV, EINVAL, ENOSYS, EOPNOTSUPP: not between these two files; go on by reading.
        with contextlib.suppress(OSError):
            while offset < end:
                length = min(end - offset, _COPY_BYTES)
                copied = os.copy_file_range(
                    source.fileno(), target.fileno(), length, offset_src=offset
                )
                if copied == 0:
                    break
                offset += copied
            target.seek(0, os.SEEK_END)
    source.seek(offset)
    while offset < end:
        block = source.read(min(end - offset, _BLOCK_BYTES))
        if not block:
            return
        target.write(block)
        offset += len(block)


@contextlib.contextmanager
def locked(folder: int, key: str) -> Iterator[None]:
    """Hold the folder against every other writer, threads of this process included: each opens the
    folder for itself, and flock belongs to the open folder."""
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    wait = _FIRST_WAIT_SECONDS
    while True:  # ends: taken, or out of patience
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    "the folder's lock is held by a stopped process", key=key
                ) from None
            time.sleep(random.uniform(wait / 2, wait))
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


@contextlib.contextmanager
def typed(key: str) -> Iterator[None]:
    """Operating system errors as errors of the library."""
    try:
        yield
    except InlayError:
        raise
    except (NotADirectoryError, FileExistsError, IsADirectoryError) as error:
        raise InvalidRequest(
            "a file is where a folder must be", key=key, next_step="Choose another key"
        ) from error
    except PermissionError as error:
        raise AccessDenied(
            f"the file system refuses access to /{key}", next_step="Check owner and mode"
        ) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise AccessDenied(
                f"the file system of /{key} is read-only",
                next_step="Mount it for writing, or write elsewhere; reading works",
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidRequest(
                "a name in the key is too long for the file system",
                key=key,
                next_step="Use shorter names",
            ) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreUnavailable(
                "the file system has no space left", key=key, next_step="Free space, then try again"
            ) from error
        raise StoreUnavailable(f"the file system failed: {error}", key=key) from error


# Names that begin so are the store's own: never listed, refused as keys.
HIDDEN: Final = ".inlay-"


class Entry(Record):
    """One name in a folder. `key` ends in a slash if it is a folder itself."""

    key: str
    child: os.DirEntry[str]

    @property
    def is_folder(self) -> bool:
        return self.key.endswith("/")


class Tree(Record):
    """The folder `root`, a path ending in a slash.

    Keys are paths below it, and it is walked in their order. A key never names anything outside the root,
    and a walk gives keys in the order of their UTF-8 bytes, which is not the order of directories: "a.b"
    comes before "a/b", because "." sorts before "/". (Sorting `str` by code point is sorting its UTF-8
    bytes.)
    """

    root: str

    def split(self, key: str) -> tuple[str, str]:
        """(the folder's path with its slash, the name). Refuses a key that cannot be a file."""
        rules.check_key(key)
        _check_segments(key, key.split("/"))
        _check_encoding(f"{self.root}{key}")
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
        entries = []
        for child in self.scan(folder_key):
            key = folder_key + child.name
            if child.name.startswith(HIDDEN) or not key.startswith(prefix) or not _is_text(key):
                continue
            if child.is_dir(follow_symlinks=False):
                entries.append(Entry(f"{key}/", child))
                continue
            with typed(key):  # a link may lead to where nobody may look
                if child.is_file():
                    entries.append(Entry(key, child))
        entries.sort(key=lambda entry: entry.key)
        return entries

    def scan(self, folder_key: str) -> list[os.DirEntry[str]]:
        """Everything in a folder, hidden names too, unsorted; nothing if there is no folder."""
        with typed(folder_key):
            try:
                with os.scandir(self.root + folder_key) as entries:
                    return [*entries]
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


# How this process names files. In another encoding a name has other bytes than the key, or none.
_ENCODING: Final = sys.getfilesystemencoding()


def _check_encoding(name: str) -> None:
    if _ENCODING != "utf-8" and not name.isascii():
        raise InvalidRequest(
            f"this process names files in {_ENCODING}, and {name[:200]!a} is in UTF-8",
            next_step="Set PYTHONUTF8=1, or LC_ALL=C.UTF-8, before it starts",
        )


def _is_text(name: str) -> bool:
    """False for a name whose bytes are not UTF-8: no key can express it."""
    _check_encoding(name)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


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


class Manifest(Record):
    """What an upload was started with; `name` is the object's name in its folder."""

    name: str
    started_us: int
    metadata: Mapping[str, str]
    headers: Mapping[str, str]


class Staging(Record):
    """The folder of one upload, open.

    It collects the parts of an unfinished upload, which exists as a whole or not at all, by its manifest; a
    part is replaced in one step. What a crash leaves behind is hidden from listings of objects but listed
    among the uploads, so that garbage collection finds it and no row survives there unnoticed.
    """

    folder: int

    def manifest(self) -> Manifest | None:
        """None before the upload is whole and once it was completed or aborted."""
        try:
            with open_file(_MANIFEST, self.folder) as file:
                body = json.load(file)
        except FileNotFoundError:
            return None
        # By name: another version of the library may write more.
        return Manifest(*(body[name] for name in Manifest.__struct_fields__))

    def end(self) -> None:
        remove(_MANIFEST, self.folder)

    def stage(self, number: int, write: Callable[[BinaryIO], object]) -> Part:
        temporary = temporary_name()
        with create(temporary, self.folder) as file:
            write(file)
            file.flush()
            written = etag(os.fstat(file.fileno()))
        os.rename(temporary, _part_name(number), src_dir_fd=self.folder, dst_dir_fd=self.folder)
        return Part(number, written)

    def parts(self) -> dict[int, rules.StagedPart]:
        parts_by_number = {}
        for name in os.listdir(self.folder):  # noqa: PTH208 - by descriptor
            info = facts(self.folder, name) if name.startswith(_PART) else None
            if info is not None:
                number = int(name.removeprefix(_PART))
                parts_by_number[number] = rules.StagedPart(etag(info), info.st_size)
        return parts_by_number

    def join(self, parts: Sequence[Part], target: BinaryIO) -> None:
        for part in parts:
            with open_file(_part_name(part.number), self.folder) as content:
                size = os.fstat(content.fileno()).st_size
                copy_bytes(content, target, ByteRange(0, size or 1))


def start(folder: int, manifest: Manifest) -> str:
    """Make an upload's folder inside `folder`; returns the upload's id."""
    upload_id = uuid.uuid4().hex
    name = f"{UPLOAD}{upload_id}"
    os.mkdir(name, dir_fd=folder)
    # Renamed into place: nobody may read half a manifest.
    write_json(f"{name}/{TEMPORARY}", asdict(manifest), folder)
    os.rename(f"{name}/{TEMPORARY}", f"{name}/{_MANIFEST}", src_dir_fd=folder, dst_dir_fd=folder)
    return upload_id


@contextlib.contextmanager
def opened(path: str) -> Iterator[Staging | None]:
    """The upload's folder at `path`; None when it is not there."""
    try:
        folder = open_folder(path)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield Staging(folder)
    finally:
        os.close(folder)


def _part_name(number: int) -> str:
    return f"{_PART}{number:05d}"

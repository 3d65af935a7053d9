"""Files for a directory store: created hidden, locked, copied, identified.

Promise: an ETag changes with the bytes, a lock is never left behind, and an error of the operating system
becomes an error of the library.

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
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from inlay.errors import AccessDenied, InlayError, InvalidRequest, StoreUnavailable
from inlay.storage.base import ByteRange

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

"""What scans remember between processes, as files of a local folder.

Promise: `INLAY_CACHE_DIR` names the folder; without it nothing is kept. What is kept is the ends of the
table's own data files (footer and page index; a file of up to 64 KiB whole) and marker objects, as the
bytes they are in the store. A file of the cache that is not what was written (cut short, changed, of
another object) is not used, and a folder that cannot be read or written costs requests, never an answer.
(Where something else has overwritten the object itself, one scan raises `SourceChanged`: rows were begun by
what is kept.) Only the table's own objects, which never change under their name: never adopted files. Only
scans: commits, erasures and verification see what the store has.

The folder holds at most `INLAY_CACHE_BYTES` (1 GiB if not set), the least recently read going first; each
of several processes may be above that by a sixteenth until it looks again. Nothing is used, or stays beyond
the next look, seven days after it was written: footers and page indexes hold values of rows, and that is
what an erasure's receipt says of them. Tables with `erasure.promised` are never kept (`Scan`).

A file is the BLAKE2b digest of the rest, a line of JSON (whose it is), the bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import threading
import time
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from inlay.errors import InvalidRequest
from inlay.ops.cache import FOLDER_VARIABLE
from inlay.parquet.read.ranges import Kept
from inlay.storage.wrapped import current_process

BYTES_VARIABLE = "INLAY_CACHE_BYTES"
DEFAULT_BYTES = 1024**3
MAX_AGE_DAYS = 7
_DIGEST_BYTES = 32
_ENDING = ".kept"
# A look at the whole folder comes after a process has added this part of the bound, and frees as much.
_PART = 16


class DiskCache:
    """One for each process and folder. Safe from several threads, and beside other processes."""

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_BYTES) -> None:
        """Raises `InvalidRequest` where others could put files into the folder."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        # None: the folder has not been looked at.
        self._room_left: int | None = None
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)

    def get(self, name: str) -> Kept | None:
        """What is kept of the object, or of the range, of that name."""
        path = self._path(name)
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                written = status.st_mtime
                is_fresh = abs(time.time() - written) <= MAX_AGE_DAYS * 86_400
                # What is larger than the whole folder may be was not written by `put`.
                is_kept = is_fresh and status.st_size <= self.limit_bytes
                kept = _decode(name, file.read()) if is_kept else None
            if kept is None:
                path.unlink(missing_ok=True)
                return None
            os.utime(path, (time.time(), written))  # read now, written then
        except OSError:
            return None
        return kept

    def drop(self, name: str) -> None:
        """Forget it: the store has another content."""
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def put(self, name: str, kept: Kept) -> None:
        """Keep it, if there is room for it and the folder can be written."""
        rest = json.dumps({"name": name, "etag": kept.etag}).encode() + b"\n" + kept.body
        content = blake2b(rest, digest_size=_DIGEST_BYTES).digest() + rest
        if len(content) > self.limit_bytes // _PART:
            return
        path = self._path(name)
        with contextlib.suppress(OSError), self._lock:
            if self._room_left is None or self._room_left < len(content):
                self._room_left = self._make_room(len(content))
            self._room_left -= len(content)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            # Other readers see all of it or nothing.
            handle, at = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            temporary = Path(at)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        hashed = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        return self.folder / hashed[:2] / (hashed[2:] + _ENDING)

    def _make_room(self, needed: int) -> int:
        """Removes what is too old, and the least recently read above the bound; how many bytes may come
        before it is due again."""
        now, held, kept = time.time(), 0, []
        for path in self.folder.glob("??/*"):
            try:
                status = path.lstat()
            except OSError:
                continue  # another process has removed it
            # What is no file of the cache is one that another process writes, or died writing.
            lives = MAX_AGE_DAYS * 86_400 if path.suffix == _ENDING else 3_600
            if abs(now - status.st_mtime) > lives:
                path.unlink(missing_ok=True)
                continue
            held += status.st_size
            kept.append((status.st_atime, path, status.st_size))
        share = self.limit_bytes // _PART
        for _, removed, size in sorted(kept):
            if held + max(needed, share) <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):
                removed.unlink()
            held -= size
        return max(needed, share)


def disk_cache() -> DiskCache | None:
    """The cache that the environment asks for. Raises `InvalidRequest` for settings that cannot be."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    return _cache_of(
        folder, os.environ.get(BYTES_VARIABLE) or str(DEFAULT_BYTES), current_process()
    )


@lru_cache(maxsize=8)
def _cache_of(folder: str, limit: str, of_process: object) -> DiskCache:
    if not limit.isascii() or not limit.isdigit():
        raise InvalidRequest(
            f"{BYTES_VARIABLE} is {limit!r}, not a number of bytes",
            next_step=f"Set it to digits only, or unset it: then it is {DEFAULT_BYTES}",
        )
    return DiskCache(Path(folder).expanduser().absolute(), int(limit))


def _check_private(folder: Path) -> None:
    """What is read from the folder is believed, so only its owner may write there."""
    try:
        status = folder.stat()
    except OSError as error:
        raise InvalidRequest(
            f"the folder of {FOLDER_VARIABLE} cannot be made: {error.strerror}: {folder}",
            next_step="Name a folder that this user may write to, or unset the variable",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidRequest(
            f"{FOLDER_VARIABLE} is not a folder: {folder}", next_step="Name a folder, or unset it"
        )
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise InvalidRequest(
            f"others than this user may write to the folder of {FOLDER_VARIABLE}: {folder}",
            next_step="What is in it is believed. Name a folder of your own, with `chmod 700`",
        )


def _decode(name: str, content: bytes) -> Kept | None:
    """None if it is not whole, of another name, or in another form: of another version of the library, or
    of something else that writes such files."""
    digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if blake2b(rest, digest_size=_DIGEST_BYTES).digest() != digest:
        return None
    line, _, body = rest.partition(b"\n")
    try:
        says = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match says:
        case {"name": str(of), "etag": str(etag)} if of == name and _is_header(etag):
            return Kept(etag, body)
        case _:  # of another form
            return None


def _is_header(etag: str) -> bool:
    """Whether it can be sent as a condition of a request."""
    return etag != "" and etag.isascii() and etag.isprintable()

"""Caches of data from immutable objects, footers and marker objects: in memory and, if asked, on disk.

Promise of `Cache`: it holds at most `limit_bytes` (by the given sizes); the least recently used entries are
evicted first; a value larger than the limit is not kept. Entries never go stale, because objects never
change under their name. Of threads that ask for the same value at once, one loads it (`once`), and no lock
is held meanwhile. Thread-safe; a forked process starts with an empty cache, in which nothing is being
loaded.

The cache on disk is what scans remember between processes, as files of a local folder. Promise:
`INLAY_CACHE_DIR` names the folder; without it nothing is kept. What is kept is the ends of the table's own
data files (footer and page index; a file of up to 64 KiB whole) and marker objects, as the bytes they are
in the store. A file of the cache that is not what was written (cut short, changed, of another object) is
not used, and a folder that cannot be read or written costs requests, never an answer. (Where something else
has overwritten the object itself, one scan raises `SourceChanged`: rows were begun by what is kept.) Only
the table's own objects, which never change under their name: never adopted files. Only scans: commits,
erasures and verification see what the store has.

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
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

from inlay.errors import InvalidRequest
from inlay.parquet.read.ranges import Kept
from inlay.storage.wrapped import PerProcess, current_process

# Footers take some KB, deletion vectors some MB: this holds those of a table of thousands of files.
CACHE_BYTES = 64 * 1024 * 1024
# Names the folder of the disk cache.
FOLDER_VARIABLE = "INLAY_CACHE_DIR"

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Loading:
    """A value that one thread loads and others wait for. `value` has one item once it is there; without
    one the load has failed."""

    done: Event = field(default_factory=Event)
    value: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    lock: Lock = field(default_factory=Lock)
    entries: OrderedDict[str, tuple[Any, int]] = field(default_factory=OrderedDict)
    bytes: int = 0
    loading: dict[str, _Loading] = field(default_factory=dict)


class ObjectCache:
    """One for each open table: names are relative to its root."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._held = PerProcess(_Held)

    @property
    def held_bytes(self) -> int:
        return self._held.get().bytes

    def get(self, key: str) -> Any | None:
        held = self._held.get()
        with held.lock:
            entry = held.entries.get(key)
            if entry is None:
                return None
            held.entries.move_to_end(key)
            return entry[0]

    def put(self, key: str, value: Any, size_bytes: int) -> None:
        held = self._held.get()
        with held.lock:
            if key in held.entries:
                held.bytes -= held.entries.pop(key)[1]
            if size_bytes > self.limit_bytes:
                return
            held.entries[key] = (value, size_bytes)
            held.bytes += size_bytes
            while held.bytes > self.limit_bytes:
                _, (_, freed) = held.entries.popitem(last=False)
                held.bytes -= freed

    def once(self, key: str, load: Callable[[], tuple[T, int]]) -> T:
        """The value under `key`, or what `load` returns: a value and its size. Threads that ask while one
        loads wait for its value, too large to be kept or not. When its load fails it raises there alone,
        and one of those that wait loads for itself."""
        held = self._held.get()
        while True:  # ends: a thread returns, raises, or waits for one that does
            known: T | None = self.get(key)
            if known is not None:
                return known
            mine = _Loading()
            with held.lock:
                loading = held.loading.setdefault(key, mine)
            if loading is mine:
                break
            loading.done.wait()
            if loading.value:
                shared: T = loading.value[0]
                return shared
        try:
            known = self.get(key)  # it may have come between the look and the entry
            if known is None:
                known, size = load()
                self.put(key, known, size)
            mine.value.append(known)
            return known
        finally:
            with held.lock:
                del held.loading[key]
            mine.done.set()


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

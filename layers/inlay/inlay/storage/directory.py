"""A directory as a store: `file:///…`, for trying, for one machine, for benchmarks.

Promise: the protocol's rules hold between the processes of one machine. An object is a regular file and its
key the path below the root. A write goes to a hidden temporary file beside its target and is renamed over
it: readers see the old bytes or the new, never a mixture, and an open file stays unchanged. Condition and
rename are done under a lock on the *folder* (flock on the folder itself: nothing to clean up, nothing to
list, released by the kernel when its holder dies).

Nothing is synced to disk: a process may crash at any point, but a power failure may lose the last writes.
It needs a local POSIX file system; over NFS the lock may not reach other machines.

A folder named by a value (`column=value`, as engines name those of partitions) goes with its last object:
where a value was erased, its name would stay. Other folders stay: engines expect them to be there.

What a file cannot hold (user metadata, headers) is in a hidden file named by the object's ETag and written
before the rename, so an object and its sidecar change in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from inlay.errors import AccessDenied, InvalidRequest, StoreUnavailable
from inlay.storage import files, rules
from inlay.storage.base import (
    NULL_VERSION,
    ByteRange,
    Condition,
    DeleteFailure,
    Got,
    Head,
    Location,
    Missing,
    ObjectInfo,
    ObjectVersion,
    Part,
    Refused,
    Upload,
    Written,
)
from inlay.storage.files import HIDDEN, Tree

T = TypeVar("T")

_SIDECAR: Final = f"{HIDDEN}meta-"
# How a listing of uploads names a write that was cut off and left bytes behind.
_INTERRUPTED: Final = "interrupted write"
# A folder may be removed by others between creating it and beginning a file: each time one of them ended a
# delete, and on a busy machine four of them came in between ten times in a row.
_FOLDER_ATTEMPTS: Final = 1_000


def system_now_us() -> int:
    return time.time_ns() // 1_000


class DirectoryStore:
    """Objects below `root`; with the default root a key is an absolute path without its slash."""

    scheme = "file"
    copies_ranges = True
    bucket = ""

    def __init__(
        self, root: str | Path = "/", *, now_us: Callable[[], int] = system_now_us
    ) -> None:
        self._tree = Tree(str(Path(root).absolute()).rstrip("/") + "/")
        self._now_us = now_us

    def at(self, bucket: str) -> DirectoryStore:
        if bucket:
            raise InvalidRequest(
                f"a directory store has no bucket {bucket!r}", next_step="Write file:///path"
            )
        return self

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        with self._reading(key, version_id) as file:
            if file is None:
                return Missing(self._now_us())
            facts = os.fstat(file.fileno())
            if if_match is not None and files.etag(facts) != if_match:
                return Refused("exists", self._now_us())
            start, end = rules.resolve_range(key, byte_range, facts.st_size)
            return self._got(key, file, facts, start, end)

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        rules.check_suffix_length(length)
        with self._reading(key, version_id) as file:
            if file is None:
                return Missing(self._now_us())
            facts = os.fstat(file.fileno())
            size = facts.st_size
            return self._got(key, file, facts, max(0, size - length), size)

    def _got(self, key: str, file: BinaryIO, facts: os.stat_result, start: int, end: int) -> Got:
        date_us = self._now_us()
        file.seek(start)
        body = file.read(end - start)
        if len(body) != end - start:
            raise StoreUnavailable("the file was truncated while it was read", key=key)
        return Got(body, facts.st_size, files.etag(facts), facts.st_mtime_ns // 1_000, date_us)

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        with self._reading(key, version_id) as file:
            date_us = self._now_us()
            if file is None:
                return Missing(date_us)
            facts = os.fstat(file.fileno())
            metadata, headers = self._sidecar(key, facts)
            info = ObjectInfo(
                key,
                facts.st_size,
                files.etag(facts),
                facts.st_mtime_ns // 1_000,
                metadata=metadata,
                headers=headers,
            )
            return Head(info, date_us)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for entry in self._tree.walk(prefix, start_after=start_after):
            try:
                facts = entry.child.stat()
            except FileNotFoundError:
                continue  # deleted while we were listing
            yield ObjectInfo(
                entry.key, facts.st_size, files.etag(facts), facts.st_mtime_ns // 1_000
            )

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        for entry in self._tree.entries(prefix):
            # An empty folder is not a prefix: S3 knows objects only.
            if entry.is_folder and next(self._tree.walk(entry.key), None) is not None:
                yield entry.key

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        rules.check_put_size(key, len(body))
        kept = rules.check_headers(key, metadata, headers)
        with self._temporary(key) as (folder, name, temporary, file):
            with file:
                file.write(body)
            with files.locked(folder, key):
                return self._land(key, folder, temporary, name, condition, *kept)

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        rules.check_scheme(source, self.scheme, "a directory store")
        if source.key == key:
            raise rules.copied_onto_itself(key)
        with self._reading(source.key, source.version_id) as file:
            if file is None:
                return Missing(self._now_us())
            before = os.fstat(file.fileno())
            if if_source_match is not None and files.etag(before) != if_source_match:
                return Refused("exists", self._now_us())
            rules.check_copy_size(source.key, before.st_size)
            kept = ({}, {}) if bare else self._sidecar(source.key, before)
            with self._temporary(key) as (folder, name, temporary, target):
                with target:
                    files.copy_bytes(file, target, ByteRange(0, before.st_size or 1))
                # Inlay never edits in place, but a user may: the copy must be of one state.
                if files.etag(os.fstat(file.fileno())) != files.etag(before):
                    return Refused("exists", self._now_us())
                with files.locked(folder, key):
                    return self._land(key, folder, temporary, name, condition, *kept)

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        failures = []
        for key in keys:
            try:
                self._delete(key)
            except AccessDenied as error:
                failures.append(DeleteFailure(key, None, str(error)))
        return failures

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        """A file system does not compare and delete in one step: this looks right before."""

        def same(key: str, etag: str) -> bool:
            head = self.head(key)
            return isinstance(head, Head) and head.info.etag == etag

        return self.delete(key for key, etag in objects if same(key, etag))

    def _delete(self, key: str) -> None:
        parent, name = self._tree.split(key)
        with files.typed(key):
            try:
                folder = files.open_folder(parent)
            except (FileNotFoundError, NotADirectoryError):
                return
            try:
                with files.locked(folder, key):
                    held = files.facts(folder, name)
                    if held is not None and not stat.S_ISDIR(held.st_mode):
                        os.unlink(name, dir_fd=folder)
                        files.remove(f"{_SIDECAR}{files.etag(held)}", folder)
            finally:
                os.close(folder)
            self._remove_if_empty(key.rpartition("/")[0])

    def _land(
        self,
        key: str,
        folder: int,
        temporary: str,
        name: str,
        condition: Condition,
        metadata: Mapping[str, str],
        headers: Mapping[str, str],
        modified_us: int | None = None,
    ) -> Written | Refused:
        """Rename `temporary` to `name` if the condition holds. Needs the folder's lock."""
        held = files.facts(folder, name)
        if held is not None and stat.S_ISDIR(held.st_mode):
            raise InvalidRequest(
                "there is a folder of this name", key=key, next_step="Choose another key"
            )
        date_us = self._now_us()
        refused = rules.refusal(condition, None if held is None else files.etag(held), date_us)
        if refused is not None:
            return refused

        modified_ns = 1_000 * (date_us if modified_us is None else modified_us)
        if held is not None:
            modified_ns = max(modified_ns, held.st_mtime_ns + 1)
        os.utime(temporary, ns=(modified_ns, modified_ns), dir_fd=folder)
        etag = files.etag(os.stat(temporary, dir_fd=folder))
        # The sidecar first: the object must never be seen without its metadata.
        if metadata or headers:
            sidecar = {"metadata": dict(metadata), "headers": dict(headers)}
            files.write_json(f"{_SIDECAR}{etag}", sidecar, folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        if held is not None:
            files.remove(f"{_SIDECAR}{files.etag(held)}", folder)
        return Written(etag, date_us)

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        kept = rules.check_headers(key, metadata, headers)

        def start(folder: int, name: str) -> str:
            return files.start(folder, files.Manifest(name, self._now_us(), *kept))

        with self._folder(key, start) as (_, _, upload_id):
            return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        rules.check_part(key, number, len(body))
        with self._staging(key, upload_id) as upload:
            if upload is None:
                raise rules.upload_gone(key, upload_id)
            return upload.stage(number, lambda file: file.write(body))

    def upload_part_copy(
        self,
        key: str,
        upload_id: str,
        number: int,
        *,
        source: Location,
        byte_range: ByteRange,
        if_source_match: str,
    ) -> Part | Refused | Missing:
        rules.check_part(key, number, byte_range.length)
        rules.check_scheme(source, self.scheme, "a directory store")
        with self._staging(key, upload_id) as upload, self._reading(source.key) as content:
            if upload is None:
                raise rules.upload_gone(key, upload_id)
            if content is None:
                return Missing(self._now_us())
            facts = os.fstat(content.fileno())
            if files.etag(facts) != if_source_match:
                return Refused("exists", self._now_us())
            rules.check_copy_range(source.key, byte_range, facts.st_size)
            part = upload.stage(number, lambda out: files.copy_bytes(content, out, byte_range))
            if files.etag(os.fstat(content.fileno())) != if_source_match:
                return Refused("exists", self._now_us())
            return part

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        with self._staging(key, upload_id) as upload:
            manifest = upload.manifest() if upload is not None else None
            if upload is None or manifest is None:
                return Missing(self._now_us())
            rules.check_completion(key, parts, upload.parts())
            with self._temporary(key) as (folder, name, temporary, target):
                with target:
                    upload.join(parts, target)
                with files.locked(folder, key):
                    # Landed first, ended second, both under the lock: of two completions one
                    # lands, and a crash between leaves an upload that can be completed again.
                    if upload.manifest() is None:
                        return Missing(self._now_us())
                    kept = manifest.metadata, manifest.headers, manifest.started_us
                    written = self._land(key, folder, temporary, name, condition, *kept)
                    if isinstance(written, Refused):
                        return written
                    upload.end()
        self._remove_upload(key, upload_id)
        return written

    def abort_multipart(self, key: str, upload_id: str) -> None:
        with self._staging(key, upload_id) as upload:
            if upload is not None:
                upload.end()
        self._remove_upload(key, upload_id)

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        uploads: Sequence[Upload] = [
            upload
            for folder_key in self._tree.folders(prefix)
            for entry in self._tree.scan(folder_key)
            if entry.name.startswith((files.UPLOAD, files.TEMPORARY))
            and (upload := _upload(folder_key, entry)) is not None
            and upload.key.startswith(prefix)
        ]
        yield from sorted(
            uploads, key=lambda upload: (upload.key, upload.started_us, upload.upload_id)
        )

    def _remove_upload(self, key: str, upload_id: str) -> None:
        if not files.is_upload_id(upload_id):
            return
        parent, _ = self._tree.split(key)
        with files.typed(key):
            shutil.rmtree(f"{parent}{files.UPLOAD}{upload_id}", ignore_errors=True)
            Path(f"{parent}{files.TEMPORARY}{upload_id}").unlink(missing_ok=True)
            self._remove_if_empty(key.rpartition("/")[0])

    @contextlib.contextmanager
    def _staging(self, key: str, upload_id: str) -> Iterator[files.Staging | None]:
        """The unfinished upload of `key`, None when there is none."""
        parent, name = self._tree.split(key)
        if not files.is_upload_id(upload_id):
            yield None
            return
        with files.typed(key), files.opened(f"{parent}{files.UPLOAD}{upload_id}") as upload:
            manifest = upload.manifest() if upload is not None else None
            yield upload if manifest is not None and manifest.name == name else None

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        for info in self.list(prefix):
            yield ObjectVersion(
                info.key,
                NULL_VERSION,
                info.size,
                info.modified_us,
                is_latest=True,
                marker=False,
                etag=info.etag,
            )

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        return self.delete(key for key, version_id in versions if version_id == NULL_VERSION)

    @contextlib.contextmanager
    def _reading(self, key: str, version_id: str | None = None) -> Iterator[BinaryIO | None]:
        """The object's file, open; None when there is no such object, or no such version of it."""
        parent, name = self._tree.split(key)
        if version_id not in (None, NULL_VERSION):
            yield None
            return
        with files.typed(key):
            try:
                # Not blocking: a named pipe would wait for its writer.
                descriptor = os.open(parent + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except (FileNotFoundError, NotADirectoryError):
                yield None
                return
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                yield None
                return
            with os.fdopen(descriptor, "rb") as file:
                yield file

    @contextlib.contextmanager
    def _folder(self, key: str, begin: Callable[[int, str], T]) -> Iterator[tuple[int, str, T]]:
        """The folder of `key`, made if need be and open, the key's name in it, and what `begin` has put
        there: from then on nobody removes it.

        All work in it uses the descriptor: if the folder is removed and created again meanwhile, the rename
        fails instead of landing outside the lock.
        """
        parent, name = self._tree.split(key)
        with files.typed(key), contextlib.ExitStack() as opened:
            for attempt in range(_FOLDER_ATTEMPTS):
                try:
                    Path(parent).mkdir(parents=True, exist_ok=True)
                    folder = files.open_folder(parent)
                    opened.callback(os.close, folder)
                    begun = begin(folder, name)
                    break
                except (
                    FileNotFoundError,
                    FileExistsError,
                ):  # the latter by `mkdir`, of what went meanwhile
                    if attempt == _FOLDER_ATTEMPTS - 1:
                        raise
                    opened.close()
            yield folder, name, begun

    def _remove_if_empty(self, folder: str) -> None:
        """`folder`, a key without its slash, and those above it, as far as they are named by values."""
        while "=" in folder.rpartition("/")[2]:
            try:
                Path(self._tree.root + folder).rmdir()
            except OSError:  # not empty, or gone
                return
            folder = folder.rpartition("/")[0]

    @contextlib.contextmanager
    def _temporary(self, key: str) -> Iterator[tuple[int, str, str, BinaryIO]]:
        """(folder, name, a fresh hidden name in it, its file); what is left under that name is removed."""
        temporary = files.temporary_name()
        with self._folder(key, lambda folder, _: files.create(temporary, folder)) as begun:
            folder, name, file = begun
            try:
                yield folder, name, temporary, file
            finally:
                file.close()
                files.remove(temporary, folder)

    def _sidecar(
        self, key: str, facts: os.stat_result
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        parent, _ = self._tree.split(key)
        try:
            text = Path(f"{parent}{_SIDECAR}{files.etag(facts)}").read_text("utf-8")
        except FileNotFoundError:
            return {}, {}
        sidecar = json.loads(text)
        return sidecar["metadata"], sidecar["headers"]


def _upload(folder_key: str, entry: os.DirEntry[str]) -> Upload | None:
    """The upload, or the remains of a crashed write, behind a hidden name in a folder."""
    try:
        started_us = entry.stat(follow_symlinks=False).st_mtime_ns // 1_000
        with files.opened(entry.path) as upload:
            manifest = upload.manifest() if upload is not None else None
    except FileNotFoundError:
        return None  # ended while we were listing
    upload_id = entry.name.removeprefix(files.UPLOAD).removeprefix(files.TEMPORARY)
    if manifest is None:
        return Upload(folder_key + _INTERRUPTED, upload_id, started_us)
    return Upload(folder_key + manifest.name, upload_id, manifest.started_us)

"""What the embedded S3 holds, kept in a directory.

Promise: after a stop, however it came, a server that starts on the same directory holds every object
version, bucket and setting whose request was answered. Unfinished multipart uploads are gone, and so are
messages in queues. Each version is one file, written whole under another name first: a line of JSON, then
the bytes. One server at a time uses the directory.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from inlay.errors import InvalidRequest
from inlay.record import replace
from inlay.storage.embedded_s3.events import Rule, Settings
from inlay.storage.memory import Version

if TYPE_CHECKING:
    from inlay.storage.embedded_s3.rest import EmbeddedS3

_BUCKETS: Final = "buckets.json"
_PARTIAL: Final = ".partial"


class DataDir:
    """Keeps what `s3` holds under `path`. Made before the server answers its first request."""

    def __init__(self, path: Path, s3: EmbeddedS3) -> None:
        self._objects: Final = path / "objects"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._path: Final = path
        self._lock: Final = _locked(path)
        self._s3: Final = s3
        self._serials = itertools.count(1)
        self._load()
        s3.region.keeper = self
        s3.changed = self._save_buckets

    def close(self) -> None:
        """Let another server have the directory."""
        self._lock.close()

    # -- what the region calls, under its lock ------------------------------------------------

    def added(self, bucket: str, key: str, version: Version) -> Version:
        kept = replace(version, serial=next(self._serials))
        about = {
            "bucket": bucket,
            "key": key,
            "etag": kept.etag,
            "modified_us": kept.modified_us,
            "id": kept.id,
            "metadata": dict(kept.metadata),
            "headers": dict(kept.headers),
            "marker": kept.marker,
        }
        head = json.dumps(about).encode() + b"\n"
        _write(self._file(kept), head, kept.body)
        return kept

    def dropped(self, version: Version) -> None:
        self._file(version).unlink(missing_ok=True)

    def _file(self, version: Version) -> Path:
        return self._objects / f"{version.serial:016d}"

    # -- buckets and their settings -----------------------------------------------------------

    def _save_buckets(self) -> None:
        saved = {
            name: {
                "created_us": bucket.created_us,
                "region": bucket.region,
                "versioning": self._s3.region.bucket(name).versioning,
                "notifications": [asdict(rule) for rule in bucket.notifications],
                "notifications_as_set": base64.b64encode(bucket.notifications_as_set).decode(),
            }
            for name, bucket in self._s3.buckets.items()
        }
        _write(self._path / _BUCKETS, json.dumps(saved, indent=1).encode())

    def _load(self) -> None:
        region = self._s3.region
        known = self._path / _BUCKETS
        settings: Mapping[str, Any] = json.loads(known.read_bytes()) if known.exists() else {}
        for name, setting in settings.items():
            region.bucket(name).versioning = setting["versioning"]
            self._s3.buckets[name] = Settings(
                setting["created_us"],
                setting["region"],
                [
                    Rule(**{**rule, "events": tuple(rule["events"])})
                    for rule in setting["notifications"]
                ],
                base64.b64decode(setting["notifications_as_set"]),
            )
        serial = 0
        unnumbered: dict[tuple[str, str], Path] = {}
        for path in sorted(self._objects.iterdir()):
            if path.name.endswith(_PARTIAL):  # of a server that was killed
                path.unlink()
                continue
            with path.open("rb") as file:
                about = json.loads(file.readline())
                bucket, key = about.pop("bucket"), about.pop("key")
                serial = int(path.name)
                version = Version(body=file.read(), serial=serial, **about)
            if version.id is None:
                # A key has one version without an id. A kill between the two leaves the one it replaced.
                if (older := unnumbered.pop((bucket, key), None)) is not None:
                    older.unlink()
                unnumbered[bucket, key] = path
            region.bucket(bucket).add(key, version)
        self._serials = itertools.count(serial + 1)
        region.number_from(serial + 1)


def _write(path: Path, *pieces: bytes) -> None:
    partial = path.with_name(path.name + _PARTIAL)
    with partial.open("wb") as file:
        for piece in pieces:
            file.write(piece)
    partial.replace(path)


def _locked(path: Path) -> BinaryIO:
    lock = (path / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InvalidRequest(
            f"another local S3 has its data in {os.fspath(path)}",
            next_step="Stop it, or name another directory",
        ) from None
    return lock

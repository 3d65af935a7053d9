"""One new object, sent in parts: the only writer of multipart uploads.

Promise: after `finish` the object is whole at its key, which was never written before; after `abort`
nothing of it is visible, and no part arrives any more. The upload begins with its first part. `executor`
sends the parts, so this is not for use inside one of its tasks: parts wait for free threads there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Final

from inlay.errors import InlayError, StoreUnavailable, UnsupportedFile
from inlay.storage.base import (
    MAX_PARTS,
    ByteRange,
    Location,
    ObjectStore,
    Part,
)
from inlay.storage.write_once import Stored, check_source, complete_once


def plain() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """An object without metadata and headers."""
    return {}, {}


class Multipart:
    """`describe` is called for metadata and headers when the upload begins. With `in_flight`, a part waits
    until fewer than that many are in flight. `before_retry` is called before each further try to complete
    it (`complete_once`)."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        executor: Executor,
        *,
        describe: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]] = plain,
        in_flight: int | None = None,
        limit: int = MAX_PARTS,
        before_retry: Callable[[int], None],
    ) -> None:
        self._store: Final = store
        self._key: Final = key
        self._executor: Final = executor
        self._describe: Final = describe
        self._in_flight: Final = in_flight
        self._limit: Final = limit
        self._before_retry: Final = before_retry
        self._upload_id: str | None = None
        self._parts: list[Part] = []
        self._flying: deque[Future[Part]] = deque()

    @property
    def begun(self) -> bool:
        return self._upload_id is not None

    @property
    def flying(self) -> int:
        """Parts that are in flight, with their bytes."""
        return len(self._flying)

    def send(self, body: Callable[[], bytes | memoryview]) -> None:
        """The next part; `body` is called where it is sent. All but the last have 5 MiB and more."""

        def send(upload_id: str, number: int) -> Part:
            return self._store.upload_part(self._key, upload_id, number, body())

        self._submit(send)

    def copy(self, source: Location, byte_range: ByteRange, etag: str) -> None:
        """The next part, copied by the store. `ObjectGone` or `SourceChanged` is raised by `settle` or
        `finish`, or by a later part."""

        def copy(upload_id: str, number: int) -> Part:
            answer = self._store.upload_part_copy(
                self._key,
                upload_id,
                number,
                source=source,
                byte_range=byte_range,
                if_source_match=etag,
            )
            if not isinstance(answer, Part):
                check_source(self._store, source, etag)
                raise StoreUnavailable(
                    f"a part of {source.uri} was not copied, although that is as it was",
                    key=source.key,
                )
            return answer

        self._submit(copy)

    def _submit(self, part: Callable[[str, int], Part]) -> None:
        if self._upload_id is None:
            metadata, headers = self._describe()
            self._upload_id = self._store.create_multipart(
                self._key, metadata=metadata, headers=headers
            )
        if self._in_flight is not None and len(self._flying) >= self._in_flight:
            self._parts.append(self._flying.popleft().result())
        number = len(self._parts) + len(self._flying) + 1
        if number > self._limit:
            raise UnsupportedFile(
                f"the object takes more than {self._limit} parts",
                key=self._key,
                next_step="Write several smaller files",
            )
        self._flying.append(self._executor.submit(part, self._upload_id, number))

    def settle(self) -> None:
        """Waits until all parts so far have arrived: their bytes are no longer held."""
        wait(self._flying)
        while self._flying:
            self._parts.append(self._flying.popleft().result())

    def finish(self, size: int) -> Stored:
        """Makes the object of `size` bytes appear. Raises as `complete_once`, and what a part raised."""
        self.settle()
        assert self._upload_id is not None, "an upload has at least one part"
        return complete_once(
            self._store,
            self._key,
            self._upload_id,
            self._parts,
            size=size,
            before_retry=self._before_retry,
        )

    def abort(self) -> None:
        """Drops what was sent. Raises no error of the store: garbage collection deletes what is left."""
        for future in self._flying:
            future.cancel()
        # A part that arrives after the abort would stay, invisible and billed.
        wait(self._flying)
        self._flying.clear()
        if self._upload_id is not None:
            try:
                self._store.abort_multipart(self._key, self._upload_id)
            except InlayError:
                return

"""Byte ranges of one object as a file, planned, fetched together and pinned.

Promise: all returned bytes come from the same content of the object. The first answer fixes its ETag, every
later request carries it as `If-Match`, and a different content raises `SourceChanged`. A read outside what
was fetched still works, with a GET of its own, and is counted in `RangeFile.unplanned`: a planned read has
none.

Relies on the store's ranged GETs. Holds exactly the bytes that were added; the planner of the ranges bounds
them.
"""

from __future__ import annotations

import io
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from inlay.errors import (
    AccessDenied,
    NotGranted,
    ObjectGone,
    SnapshotGone,
    SourceChanged,
    UnreadableFile,
)
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import ByteRange, Got, Location, Missing, ObjectStore, Refused
from inlay.storage.wrapped import check_same_process, current_process

if TYPE_CHECKING:
    import pyarrow as pa


# Reading metadata needs no pyarrow, and importing it takes longer than the request.

T = TypeVar("T")


class Network(Record):
    """What requests cost in time: a first byte comes after `latency_seconds`, `connections` are waited for
    side by side, one brings `stream_bytes_a_second` and all of them `bytes_a_second`. For each request a
    process computes `request_seconds`, one after the other: it signs, sends and parses in Python, on one
    core.

    The defaults are S3's from the same region. By its price fewer requests are better still: bytes are free
    there, and a GET costs as much as 24 ms of a function of 1 GB; elsewhere a GET is the price of 4 KB.
    """

    latency_seconds: float = 0.020
    bytes_a_second: float = 200e6
    stream_bytes_a_second: float = 90e6
    connections: int = 32
    request_seconds: float = 0.0003

    @property
    def near_bytes(self) -> int:
        """As many bytes of one connection take the time that a request computes: where a connection is free
        for each range, those are one request that are as near as that."""
        return round(self.request_seconds * self.stream_bytes_a_second)

    @property
    def gap_bytes(self) -> int:
        """As many bytes take the time of a request that waits for a connection: however few these are,
        for bandwidth and the processor are shared as they are."""
        waited = self.latency_seconds / self.connections + self.request_seconds
        return int(waited * self.bytes_a_second)


NETWORK = Network()
GAP_BYTES = NETWORK.near_bytes
# A longer range is fetched in several requests side by side: one S3 connection is slower than a NIC.
GET_BYTES = 16 * 1024 * 1024
# An object up to this size comes whole with its footer: one request instead of two or three.
SMALL_OBJECT_BYTES = 64 * 1024


class Remembered(Record):
    """The end of an object as it was read earlier, and how to forget it."""

    tail: bytes
    forget: Callable[[], None]


class Source(Record):
    """One object to read: `name` is its name in the table's metadata, `key` its key in the store.

    `size` and `etag` None mean unknown; known ones are checked against every answer. `version_id` None
    means the object's current version. `owned` False: it is outside the table, and no collection takes it.
    """

    store: ObjectStore
    key: str
    name: str
    size: int | None = None
    etag: str | None = None
    version_id: str | None = None
    owned: bool = True
    # Where the ETag was remembered: what was read then.
    remembered: Remembered | None = None

    @property
    def location(self) -> Location:
        return Location(self.store.scheme, self.store.bucket, self.key, self.version_id)

    def pinned(self, etag: str) -> Source:
        """This source, pinned to the content with that ETag."""
        if self.etag not in (None, etag):
            raise self.changed()
        return replace(self, etag=etag)

    def changed(self) -> SourceChanged:
        return SourceChanged(
            "an object differs from its entry in the table's metadata",
            key=self.name,
            next_step="It never changes under its name: something else has written or cut it. Put it back; "
            "if it is lost and a data file, `inlay delete TABLE --where TRUE --file KEY` and a compaction "
            'remove its entry, and scan(on_damaged="skip") leaves it out',
        )

    def gone(self) -> SnapshotGone | ObjectGone:
        if not self.owned:
            return ObjectGone(
                "a file that is not the table's own is gone",
                key=self.name,
                next_step="Whoever owns it deleted it. Put it back; if it is lost, "
                "`inlay delete --where TRUE --file` and a compaction remove its entry",
            )
        return SnapshotGone("an object that this version of the table needs is gone", key=self.name)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around requests for this object. What is denied of the table's own objects is denied of all; of
        another's object it is that object's failure. Whether it is missing or denied is unknown: without
        s3:ListBucket, which a deployment does not have on other buckets, S3 answers 403 for both."""
        try:
            yield
        except AccessDenied as error:
            if self.owned:
                raise
            raise NotGranted(
                f"a file that is not the table's own is gone, or may not be read: {error.message}",
                key=self.name,
                next_step="Look for the object. If it is lost, `inlay delete --where TRUE --file` and a "
                "compaction remove its entry; if it is there, AdoptFrom, AdoptKmsKeys and the policies of "
                "its bucket and key have to allow reading it",
            ) from error


class Cache(Protocol):
    """Keeps values of immutable objects, within a bound of its own. Safe from several threads."""

    def get(self, key: str) -> Any | None: ...

    def put(self, key: str, value: Any, size_bytes: int) -> None: ...

    def once(self, key: str, load: Callable[[], tuple[T, int]]) -> T:
        """The value under `key`, or what `load` returns with its size: loaded by one thread at a time."""
        ...


class NoCache:
    def get(self, key: str) -> Any | None:
        return None

    def put(self, key: str, value: Any, size_bytes: int) -> None:
        return None

    def once(self, key: str, load: Callable[[], tuple[T, int]]) -> T:
        return load()[0]


class Kept(Record):
    """Bytes of an immutable object, and the ETag of the object they are of."""

    etag: str
    body: bytes


class Disk(Protocol):
    """Keeps bytes of immutable objects beyond the process, by their full names. Never fails."""

    def get(self, name: str) -> Kept | None: ...

    def put(self, name: str, kept: Kept) -> None: ...

    def drop(self, name: str) -> None: ...


class Objects(Record):
    """The objects of one table, by the names in its entries. `cache` is for this table alone: its keys are
    the names in entries. `disk` is asked only by who reads rows to show them."""

    store: ObjectStore
    root: str
    cache: Cache = field(default_factory=NoCache)
    # Names of objects that are read at one version, even if overwritten, to that version.
    versions: Mapping[str, str] = field(default_factory=dict)
    # Patterns of `bucket/key` that adopted files may be read from; None means any location.
    adopt_from: tuple[str, ...] | None = None
    disk: Disk | None = None

    def source(self, name: str, size: int | None = None, etag: str | None = None) -> Source:
        """The object that an entry names: relative to the table root or, when it was adopted in place, by
        its full URI. Raises `NotGranted` for an adopted one outside `adopt_from`."""
        scheme, separator, rest = name.partition("://")
        if not separator:
            key = f"{self.root}/{name}" if self.root else name
            return Source(self.store, key, name, size, etag)
        bucket, _, key = rest.partition("/")
        if scheme != self.store.scheme:
            raise ObjectGone(
                f"the table is on {self.store.scheme}:// but one of its files on {scheme}://",
                key=name,
                next_step="Ingest the file by copy instead of adopting it in place",
            )
        granted = self.adopt_from is None or any(fnmatchcase(rest, p) for p in self.adopt_from)
        if not granted:
            raise NotGranted(
                "an adopted file is in a location this deployment may not read", key=name
            )
        store = self.store if bucket == self.store.bucket else self.store.at(bucket)
        return Source(store, key, name, size, etag, self.versions.get(name), owned=False)


def fetch(source: Source, byte_range: ByteRange) -> bytes:
    """One ranged GET, complete and pinned, or a typed error."""
    return fetch_pinned(source, byte_range)[0]


def fetch_pinned(source: Source, byte_range: ByteRange) -> tuple[bytes, Source]:
    """`fetch`, and the source pinned to what the bytes are of."""
    with source.asking():
        answer = source.store.get(
            source.key, byte_range=byte_range, if_match=source.etag, version_id=source.version_id
        )
    match answer:
        case Missing():
            raise source.gone()
        case Refused():
            return fetch_pinned(_looked_at_again(source), byte_range)
        case Got():
            pass
    if source.size not in (None, answer.size):
        raise source.changed()
    if len(answer.body) != byte_range.length:
        raise UnreadableFile(
            f"the object ends before byte {byte_range.end}, which its own footer names",
            key=source.name,
        )
    return answer.body, source.pinned(answer.etag)


def _looked_at_again(source: Source) -> Source:
    """For an object that has another ETag than the one that was remembered, as if it was copied back or
    replicated: where its end is the same, it is the same object. Raises `SourceChanged`."""
    known, size = source.remembered, source.size
    if known is None or size is None:
        raise source.changed()
    known.forget()
    tail, fresh = fetch_tail(replace(source, etag=None, remembered=None), len(known.tail), size)
    if not tail.endswith(known.tail):
        raise source.changed()
    return fresh


def fetch_tail(source: Source, length: int, size: int) -> tuple[bytes, Source]:
    """The last `length` bytes of an object of `size` in one GET (all of a small object), and the
    source pinned to what they are of."""
    suffix = size if size <= SMALL_OBJECT_BYTES else min(length, size)
    suffix = max(suffix, 1)  # whatever an entry says: no file is empty
    pin = {} if source.version_id is None else {"version_id": source.version_id}
    with source.asking():
        answer = source.store.get_suffix(source.key, suffix, **pin)
    if isinstance(answer, Missing):
        raise source.gone()
    if answer.size != size:
        raise source.changed()
    return answer.body, source.pinned(answer.etag)


def kept_tail(disk: Disk | None, source: Source, least: int) -> tuple[bytes, Source] | None:
    """At least the last `least` bytes of one of the table's own objects, as `fetch_tail` has once returned
    them; None if they are not on this disk."""
    kept = None if disk is None or not source.owned else disk.get(source.location.uri)
    if kept is None or len(kept.body) < least or source.etag not in (None, kept.etag):
        return None
    return kept.body, source.pinned(kept.etag)


def keep_tail(disk: Disk | None, source: Source, tail: bytes) -> None:
    """For the next process: the end of an object that `source` is pinned to."""
    if disk is not None and source.owned and source.etag is not None:
        disk.put(source.location.uri, Kept(source.etag, tail))


def fetch_marker(objects: Objects, source: Source, place: ByteRange) -> bytes:
    """Bytes of a marker object: one ranged GET, or the disk."""
    name = f"{source.location.uri}#{place.start}-{place.end}"
    kept = None if objects.disk is None else objects.disk.get(name)
    if kept is not None and len(kept.body) == place.length:
        return kept.body
    body, source = fetch_pinned(source, place)
    if objects.disk is not None and source.etag is not None:
        objects.disk.put(name, Kept(source.etag, body))
    return body


_IN_ORDER = attrgetter("start", "end")


def merge_ranges(
    ranges: Iterable[ByteRange],
    *,
    gap: int = GAP_BYTES,
    most: int | None = GET_BYTES,
    connections: int | None = None,
) -> tuple[ByteRange, ...]:
    """The fewest requests for `ranges`, ascending: near ones joined, and those above `most` (None: none)
    cut into even pieces. More than there are `connections` for are joined over the smallest of longer gaps,
    as long as that takes less time (`Network`).

    >>> merge_ranges([ByteRange(0, 10), ByteRange(12, 20), ByteRange(99, 100)], gap=2)
    (ByteRange(start=0, end=20), ByteRange(start=99, end=100))
    """
    joined = _joined(((place.start, place.end) for place in sorted(ranges, key=_IN_ORDER)), gap)
    if connections is not None and len(joined) > connections:
        gaps = sorted(right[0] - left[1] for left, right in pairwise(joined))
        longest = gaps[len(joined) - connections - 1]
        joined = _joined(joined, min(longest, NETWORK.gap_bytes))
    cut: list[ByteRange] = []
    for first, end in joined:
        length = end - first
        pieces = 1 if most is None else -(-length // most)
        bounds = [first + length * n // pieces for n in range(pieces + 1)]
        cut.extend(ByteRange(a, b) for a, b in pairwise(bounds))
    return tuple(cut)


def _joined(ascending: Iterable[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in ascending:
        if joined and start - joined[-1][1] <= gap:
            first, last = joined[-1]
            if end > last:
                joined[-1] = first, end
        else:
            joined.append((start, end))
    return joined


class RangeFile(io.RawIOBase):
    """A read-only file over the fetched ranges of one object, for Arrow.

    Not shared between threads as a file, for that has a position; `slice` and `content` may be called by
    several while nothing is added. Slices are copies of nothing: they are parts of the bytes that came
    from the store.
    """

    def __init__(self, source: Source, size: int, connections: int | None = None) -> None:
        """`connections`: those for what is planned of it; None: as many as it has ranges."""
        self.source = source
        self.size = size
        self._connections = connections
        self.unplanned = 0
        self._position = 0
        self._starts: list[int] = []  # ascending
        self._bodies: dict[int, pa.Buffer] = {}

    # -- what is fetched ----------------------------------------------------------------------

    def missing(self, ranges: Iterable[ByteRange]) -> tuple[ByteRange, ...]:
        """The requests that are still needed for `ranges`."""
        needed = (r for r in ranges if self._held(r.start, r.end) is None)
        return merge_ranges(needed, connections=self._connections)

    def jobs(self, ranges: Iterable[ByteRange]) -> list[Callable[[], tuple[int, bytes]]]:
        """One callable per request still needed; `add` takes what each returns."""
        return [partial(_fetch_at, self.source, r) for r in self.missing(ranges)]

    def prefetch(self, ranges: Iterable[ByteRange], executor: Executor) -> None:
        """Fetches what is still needed for `ranges`, in parallel, and waits for all of it."""
        futures = [executor.submit(job) for job in self.jobs(ranges)]
        self.add(future.result() for future in futures)

    def add(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Holds bytes of the object, each piece with its start. Adjacent pieces are joined: a column chunk
        may span the cut of a long range."""
        run: list[bytes] = []
        begin = end = -1
        for start, body in sorted(pieces, key=lambda piece: piece[0]):
            if start != end:
                self._hold(begin, run)
                run, begin = [], start
            run.append(body)
            end = start + len(body)
        self._hold(begin, run)

    def _hold(self, start: int, run: list[bytes]) -> None:
        import pyarrow as pa

        if not run:
            return
        body = pa.py_buffer(run[0] if len(run) == 1 else b"".join(run))
        # A shorter body that starts within this one would hide it: `_held` looks at one start only.
        for other in [s for s in self._starts if start <= s < start + body.size]:
            if other + self._bodies[other].size <= start + body.size:
                self._starts.remove(other)
                del self._bodies[other]
        insort(self._starts, start)
        self._bodies[start] = body

    def _held(self, start: int, end: int) -> pa.Buffer | None:
        at = bisect_right(self._starts, start)
        if at == 0:
            return None
        first = self._starts[at - 1]
        body = self._bodies[first]
        return body.slice(start - first, end - start) if end <= first + body.size else None

    def holds(self, place: ByteRange) -> bool:
        return self._held(place.start, place.end) is not None

    def slice(self, place: ByteRange) -> pa.Buffer:
        """The bytes of one range, by a GET of its own where they are not held; they are not kept."""
        held = self._held(place.start, place.end)
        if held is None:
            import pyarrow as pa

            self.unplanned += 1
            held = pa.py_buffer(fetch(self.source, place))
        return held

    def content(self, place: ByteRange) -> bytes:
        """The same as an object of Python's; copied only from what is held."""
        held = self._held(place.start, place.end)
        return fetch(self.source, place) if held is None else bytes(memoryview(held))

    def contents(self, places: Iterable[ByteRange]) -> Iterator[tuple[ByteRange, bytes]]:
        """Each place, ascending, with its bytes, near ones by one request; nothing of it is kept."""
        in_order = sorted(places, key=_IN_ORDER)
        at = 0
        for span in merge_ranges(in_order, most=None):
            body = self.content(span)
            while at < len(in_order) and in_order[at].end <= span.end:
                place = in_order[at]
                yield place, body[place.start - span.start : place.end - span.start]
                at += 1

    # -- the file that Arrow sees -------------------------------------------------------------

    def read_buffer(self, length: int = -1) -> pa.Buffer:
        end = self.size if length < 0 else min(self._position + length, self.size)
        if end <= self._position:
            import pyarrow as pa

            return pa.py_buffer(b"")
        held = self.slice(ByteRange(self._position, end))
        self._position = end
        return held

    def read(self, length: int = -1) -> bytes:
        return bytes(memoryview(self.read_buffer(length)))

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self.size)[whence]
        self._position = base + offset
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def as_arrow(self) -> Any:
        """This file for Arrow's own readers."""
        import pyarrow as pa

        return pa.PythonFile(self, mode="r")


def _fetch_at(source: Source, byte_range: ByteRange) -> tuple[int, bytes]:
    return byte_range.start, fetch(source, byte_range)


Job = Callable[[], Any]


class Grow(Record):
    """What a unit yields instead of jobs: it is resumed once there is room for `more_bytes`, which it holds
    from then on, with at most `to_come_bytes` besides later."""

    more_bytes: int
    to_come_bytes: int = 0


Steps = Generator[Sequence[Job] | Grow, Sequence[Any], T]


class Unit(Record, Generic[T]):
    """A piece of work and the bytes it will hold while it is in flight (estimates): from its beginning, and
    what it may come to hold besides, by `Grow`."""

    cost_bytes: int
    steps: Steps[T]
    growth_bytes: int = 0


class _Running(Mutable, Generic[T]):
    steps: Steps[T]
    held_bytes: int
    to_come_bytes: int
    futures: list[Future[Any]] = field(default_factory=list)
    started: bool = False
    asks: Grow | None = None
    done: bool = False
    value: T | None = None
    error: BaseException | None = None

    @property
    def waiting(self) -> list[Future[Any]]:
        return [f for f in self.futures if not f.done()]

    def end(self) -> None:
        self.done, self.to_come_bytes = True, 0


def run_ahead(
    units: Iterable[Unit[T]],
    executor: Executor,
    *,
    budget_bytes: int,
    parallel: int,
    first: int | None = None,
) -> Iterator[T]:
    """Results of `units` in order, with at most `parallel` units in flight.

    `first` starts with fewer in flight and doubles with each result: for a consumer that may stop early
    (LIMIT). An error is raised in place of the unit's result.

    Work in order, done early and in parallel. Results come in the order of their units, whatever finished
    first; held are at most `budget_bytes` of units that are started and not yet consumed (or one unit, if
    that alone is larger); and when it ends, in any way, no job it submitted is still running.

    A unit is a generator that yields batches of jobs and is resumed with their results. Only jobs go to the
    executor, and no job waits for another: so an executor of one thread, or one that runs everything in the
    caller's thread, gives the same results and can never deadlock.

    What is fetched is small beside what it is decoded to, fetching is what latency makes slow, and how much
    must be decoded is known only when a part is. So a unit says apart what it holds once it has begun
    (`cost_bytes`), what it may come to hold at most (`growth_bytes`), and by `Grow` what it does, when it
    does. Whoever begins or grows leaves room for each unit before it in line, as it will be when that is
    the first: so the first in line never waits.
    """
    began = current_process()
    flight = _Flight[T](budget_bytes, window=min(parallel, first or parallel))
    source, upcoming = iter(units), None
    try:
        while True:
            # A unit may cost requests to make (the file it is of is opened): none is made before there is
            # a place for it.
            while len(flight.running) < flight.window:
                upcoming = next(source, None) if upcoming is None else upcoming
                if upcoming is None or not flight.may_begin(upcoming):
                    break
                begun, upcoming = flight.begin(upcoming), None
                _advance(begun, executor)
            if not flight.running:
                return
            for running in flight.ready():
                _advance(running, executor)
            head = flight.running[0]
            if not head.done:
                flight.wait()
                continue
            if head.error is not None:
                raise head.error
            yield head.value  # type: ignore[misc]  # done without an error: it has one
            check_same_process(began, "this stream of rows")
            # Only now: until the consumer comes back, the result is still held.
            flight.running.popleft()
            flight.window = min(parallel, flight.window * 2)
    finally:
        # In a process forked meanwhile the jobs never end: their threads belong to the parent.
        if current_process() == began:
            _stop(flight.running)


class _Flight(Mutable, Generic[T]):
    """Units that were begun and not yet consumed, in order: at most `window`, within the budget."""

    budget_bytes: int
    window: int
    running: deque[_Running[T]] = field(default_factory=deque)

    def may_begin(self, unit: Unit[T]) -> bool:
        return self._has_room(len(self.running), unit.cost_bytes, unit.growth_bytes)

    def begin(self, unit: Unit[T]) -> _Running[T]:
        running = _Running(unit.steps, unit.cost_bytes, unit.growth_bytes)
        self.running.append(running)
        return running

    def ready(self) -> Iterator[_Running[T]]:
        """The units that can be resumed, each for as long as it can."""
        for place, running in enumerate(self.running):
            while not running.done and not running.waiting:
                if running.asks is not None:
                    more, to_come = running.asks.more_bytes, running.asks.to_come_bytes
                    if not self._has_room(place, more, to_come):
                        break
                    running.asks = None
                    running.held_bytes += more
                    running.to_come_bytes = to_come
                yield running

    def wait(self) -> None:
        waiting = [future for running in self.running for future in running.waiting]
        wait(waiting, return_when=FIRST_COMPLETED)

    def _has_room(self, place: int, more: int, to_come: int) -> bool:
        """Whether the unit at that place in line may hold `more` bytes now and `to_come` later: the first
        always. Each before it must be able to grow as far as it may once it is the first, when those
        before that are gone, and so must the unit itself."""
        held = more + sum(running.held_bytes for running in self.running)
        for running in islice(self.running, place):
            if held + running.to_come_bytes > self.budget_bytes:
                return False
            held -= running.held_bytes
        return place == 0 or held + to_come <= self.budget_bytes


def run(steps: Steps[T], executor: Executor) -> T:
    """One unit from beginning to end."""
    return next(run_ahead([Unit(0, steps)], executor, budget_bytes=0, parallel=1))


def _advance(running: _Running[T], executor: Executor) -> None:
    """Resume a unit with the results of its jobs; submit the next ones."""
    steps = running.steps
    try:
        error = next((e for f in running.futures if (e := f.exception())), None)
        if not running.started:
            running.started = True
            step = next(steps)
        elif error is not None:
            step = steps.throw(error)
        else:
            step = steps.send([f.result() for f in running.futures])
        if isinstance(step, Grow):
            running.asks, step = step, ()
        running.futures = [executor.submit(job) for job in step]
    except StopIteration as stop:
        running.end()
        running.value = stop.value
    except Exception as raised:
        # Raised in place of the result: what was requested before it is still valid.
        running.end()
        running.error = raised


def _stop(flight: Iterable[_Running[Any]]) -> None:
    for running in flight:
        for future in running.futures:
            future.cancel()
    for running in flight:
        for future in running.futures:
            if not future.cancelled():
                future.exception()
        running.steps.close()

"""Google Cloud Storage, by its JSON API.

Promise: as `base.py` says, with an object's *generation* as its ETag and version id: the store gives every
content a new one, and every condition is a condition on it (`ifGenerationMatch`; 0: nothing is there). A
swap is sent once; a create that is refused on a later attempt may have met its own first one, which
`write_once` finds out. A pickle holds bucket and endpoint: the process that unpickles it uses its own
credentials.

*Parts.* The service joins whole objects (`compose`), never ranges of them. The parts of an upload are
objects in the folder of their target whose names begin with `.upload~`: listings leave them out,
`complete_multipart` joins them under its condition and deletes them, and what a crash leaves is listed as
an unfinished upload. They are deleted by generation, so that a bucket with versions keeps none.

*Soft delete.* A bucket keeps what is deleted for a week unless its policy says otherwise, and nobody can
delete it sooner. `list_versions` lists it, under its target for a part, and `delete_versions` reports a
failure with the day of its end: an erasure stays open until then.
"""

from __future__ import annotations

import email.utils
import heapq
import itertools
import json
import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from inlay.errors import AccessDenied, InvalidRequest, StoreUnavailable
from inlay.record import Record
from inlay.storage import http_rules, rest, rules
from inlay.storage.base import (
    ByteRange,
    Condition,
    DeleteFailure,
    Got,
    Head,
    IfAbsent,
    IfMatch,
    Location,
    Missing,
    ObjectInfo,
    ObjectVersion,
    Part,
    Refused,
    Upload,
    Written,
)
from inlay.storage.rest import MAX_ATTEMPTS, Answer, Line, Request
from inlay.storage.wrapped import PerProcess

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

ENDPOINT: Final = "https://storage.googleapis.com"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
# Google: "Composite objects", at most 32 sources in one request.
_SOURCES: Final = 32
_PLAIN_TYPE: Final = "application/octet-stream"
_HIDDEN: Final = ".upload~"
_PART: Final = re.compile(r"\.upload~([0-9a-f]{32})~(\d{5})~(.+)", re.DOTALL)
# The first number of objects that join parts before the last join.
_JOINED: Final = 20_000
_SOFT: Final = "soft-deleted:"
_HEADERS: Final = {
    "CacheControl": "cacheControl",
    "ContentDisposition": "contentDisposition",
    "ContentEncoding": "contentEncoding",
    "ContentLanguage": "contentLanguage",
    "ContentType": "contentType",
    "StorageClass": "storageClass",
}
_GENERATION: Final = re.compile(r"[1-9][0-9]{0,18}")


class _Google:
    """The credentials of the environment, in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the file that the environment names.
        self._found: dict[str | None, Credentials] = {}

    def headers(self, url: str) -> Mapping[str, str]:
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError
            from google.auth.transport.urllib3 import Request as Transport
        except ImportError:
            raise InvalidRequest(
                "tables on Google Cloud Storage (gs://) need another package",
                next_step="pip install 'inlay-tables[gcs]'",
            ) from None
        headers: dict[str, str] = {}
        try:
            with self._lock:  # one refresh at a time
                named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
                if (credentials := self._found.get(named)) is None:
                    credentials, _ = google.auth.default(scopes=[_SCOPE])
                    self._found[named] = credentials
                credentials.before_request(Transport(rest.pool(url)), "GET", url, headers)
        except (GoogleAuthError, OSError) as error:
            # Nothing of the request was sent.
            if isinstance(error, OSError) or error.retryable:
                words = f"no token from Google: {type(error).__name__}"
                raise StoreUnavailable(words) from None
            raise AccessDenied(
                f"no Google credentials: {type(error).__name__}",
                next_step="Set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
                "login`, or give the machine a service account",
            ) from None
        return headers


_google = PerProcess(_Google)


def _sign(endpoint: str, request: Request) -> tuple[Mapping[str, str], Mapping[str, str]]:
    # A token is not sent over plain HTTP: that is an emulator's.
    if not endpoint.startswith("https://"):
        return request.query, request.headers
    return request.query, {**request.headers, **_google.get().headers(endpoint)}


def _explain(body: bytes, headers: Mapping[str, str]) -> tuple[str, str]:
    try:
        said = json.loads(body)["error"]
        reasons = said.get("errors") or [{}]
        return str(reasons[0].get("reason", "")), str(said.get("message", ""))
    except (ValueError, TypeError, LookupError, AttributeError):
        return "", body[:200].decode("utf-8", "replace")


class _Staged(Record):
    """An object of an unfinished upload."""

    upload_id: str
    number: int
    target: str
    resource: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.resource["name"])

    @property
    def generation(self) -> str:
        return str(self.resource["generation"])


class GcsStore:
    """One bucket. Thread-safe; a process forked from this one makes its own connections."""

    scheme = "gs"
    copies_ranges = False

    def __init__(self, bucket: str, *, endpoint_url: str | None = None) -> None:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        self._name = bucket
        self._endpoint = (endpoint_url or emulator or ENDPOINT).rstrip("/")
        sign = partial(_sign, self._endpoint)
        self._line = Line(f"gs://{bucket}", self._endpoint, sign, _explain)

    def __reduce__(self) -> tuple[object, ...]:
        http_rules.check_endpoint(self._endpoint)
        return partial(GcsStore, endpoint_url=self._endpoint), (self._name,)

    @property
    def bucket(self) -> str:
        return self._name

    def at(self, bucket: str) -> GcsStore:
        return GcsStore(bucket, endpoint_url=self._endpoint)

    # -- reads --------------------------------------------------------------------------------

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        asked = None if byte_range is None else f"bytes={byte_range.start}-{byte_range.end - 1}"
        if if_match is not None and _GENERATION.fullmatch(if_match) is None:
            head = self.head(key, version_id=version_id)
            return Refused("exists", head.date_us) if isinstance(head, Head) else head
        answer = self._read(key, asked, version_id, if_match)
        if answer is None or answer.status == 404:
            return Missing(self._now_us() if answer is None else answer.date_us)
        if answer.status == 412:
            return Refused("exists", answer.date_us)
        if answer.status == 416:
            if byte_range is None:
                raise self._line.unexpected(answer, key)
            raise rules.range_past_end(key, byte_range)
        return _got(answer, rest.in_range(answer, key, byte_range))

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        rules.check_suffix_length(length)
        answer = self._read(key, f"bytes=-{length}", version_id, None)
        if answer is None or answer.status == 404:
            return Missing(self._now_us() if answer is None else answer.date_us)
        if answer.done:
            return _got(answer, answer.body[-length:])
        # No byte satisfies a range of an empty object.
        head = self.head(key, version_id=version_id)
        if isinstance(head, Missing):
            return head
        if answer.status != 416 or head.info.size:
            raise self._line.unexpected(answer, key)
        return head.empty()

    def _read(
        self, key: str, asked: str | None, version_id: str | None, if_match: str | None
    ) -> Answer | None:
        """The answer to a GET; None for a version id that no object can have."""
        if version_id is not None and _GENERATION.fullmatch(version_id) is None:
            return None
        return self._ask(
            "GET",
            self._path(key),
            query={"alt": "media", "generation": version_id, "ifGenerationMatch": if_match},
            headers={} if asked is None else {"Range": asked},
            outcomes=(404, 412, 416),
            whole=lambda said: (
                said.headers["x-goog-generation"],
                said.headers["last-modified"],
                rest.size_of(said.headers),
            ),
            key=key,
        )

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        if version_id is not None and _GENERATION.fullmatch(version_id) is None:
            return Missing(self._now_us())
        answer = self._ask(
            "GET",
            self._path(key),
            query={"generation": version_id},
            outcomes=(404,),
            whole=_resource,
            key=key,
        )
        return (
            Head(_info(answer.json()), answer.date_us) if answer.done else Missing(answer.date_us)
        )

    def _now_us(self) -> int:
        """The store's clock, of the cheapest request there is."""
        answer = self._ask(
            "GET", f"/storage/v1/b/{quote(self._name, safe='')}/o", query={"maxResults": "1"}
        )
        return answer.date_us

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        listed = self._listed(prefix, startOffset=start_after)
        infos = (_info(o) for o in listed if o["name"] != start_after and _staged(o) is None)
        return http_rules.in_key_order(self._line.place, infos, after=start_after)

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        for page in self._pages(prefix, delimiter="/"):
            yield from page.get("prefixes", ())

    # -- writes -------------------------------------------------------------------------------

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        rules.check_key(key)
        rules.check_put_size(key, len(body))
        described = _described(key, metadata, headers)
        content = body if isinstance(body, bytes) else bytes(body)
        answer = self._insert(key, content, described, condition)
        if isinstance(answer, Refused):
            return answer
        if answer.done:
            return _written(answer)
        return self._refused(key, answer, condition)

    def _insert(
        self, key: str, content: bytes, described: Mapping[str, Any], condition: Condition
    ) -> Answer | Refused:
        generation = self._generation(key, condition)
        if isinstance(generation, Refused):
            return generation
        query = {"uploadType": "media", "name": key, "ifGenerationMatch": generation}
        kind = described.get("contentType", _PLAIN_TYPE)
        if set(described) - {"contentType"}:
            query = {"uploadType": "multipart", "ifGenerationMatch": generation}
            mark = uuid.uuid4().hex.encode()
            facts = json.dumps({"name": key, **described}).encode()
            content = b"\r\n".join(
                (
                    b"--" + mark,
                    b"Content-Type: application/json; charset=UTF-8\r\n",
                    facts,
                    b"--" + mark,
                    b"Content-Type: " + kind.encode() + b"\r\n",
                    content,
                    b"--" + mark + b"--\r\n",
                )
            )
            kind = f"multipart/related; boundary={mark.decode()}"
        return self._ask(
            "POST",
            f"/upload/storage/v1/b/{quote(self._name, safe='')}/o",
            query=query,
            headers={"Content-Type": kind},
            body=content,
            outcomes=() if condition is None else (409, 412),
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            whole=_resource,
            key=key,
        )

    def _generation(self, key: str, condition: Condition) -> str | Refused | None:
        """The generation that a write needs; `Refused` for an ETag that none has."""
        match condition:
            case None:
                return None
            case IfAbsent():
                return "0"
            case IfMatch(etag):
                # Any other is not asked of the store: a zero would mean that nothing is there.
                return etag if _GENERATION.fullmatch(etag) else self._unmatched(key)

    def _unmatched(self, key: str) -> Refused:
        head = self.head(key)
        return Refused("exists" if isinstance(head, Head) else "missing", head.date_us)

    def _refused(self, key: str, answer: Answer, condition: Condition) -> Refused:
        if answer.status == 409:
            return Refused("race", answer.date_us)
        # One answer for "another content" and "nothing".
        return (
            self._unmatched(key)
            if isinstance(condition, IfMatch)
            else Refused("exists", answer.date_us)
        )

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        rules.check_key(key)
        rules.check_scheme(source, self.scheme, "Google Cloud Storage")
        generation = self._generation(key, condition)
        if isinstance(generation, Refused):
            return generation
        for pinned in (if_source_match, source.version_id):
            if pinned is not None and _GENERATION.fullmatch(pinned) is None:
                there = self.at(source.bucket).head(source.key)
                return Refused("exists", there.date_us) if isinstance(there, Head) else there
        body = json.dumps({"contentType": _PLAIN_TYPE}).encode() if bare else b""
        token: str | None = None
        while True:  # ends with the copy: the service carries a large one out in several requests
            answer = self._ask(
                "POST",
                _path(source.bucket, source.key) + "/rewriteTo" + _path(self._name, key, ""),
                query={
                    "ifSourceGenerationMatch": if_source_match,
                    "sourceGeneration": source.version_id,
                    "ifGenerationMatch": generation,
                    "rewriteToken": token,
                },
                headers={"Content-Type": "application/json"},
                body=body,
                outcomes=(404, 409, 412),
                attempts=1 if condition is not None else MAX_ATTEMPTS,
                whole=lambda said: said.json()["done"],
                key=key,
            )
            if answer.status == 404:
                return Missing(answer.date_us)
            if not answer.done:
                return Refused("race" if answer.status == 409 else "exists", answer.date_us)
            said = answer.json()
            if said["done"]:
                made = str(said["resource"]["generation"])
                return Written(made, answer.date_us, made)
            token = said["rewriteToken"]

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        return rest.delete_each(self._delete, [(key, None) for key in keys])

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        def same(key: str, etag: str) -> str | None:
            head = self.head(key)
            is_same = isinstance(head, Head) and head.info.etag == etag
            return head.info.version_id if is_same and isinstance(head, Head) else None

        named = ((key, same(key, etag)) for key, etag in objects)
        return rest.delete_each(self._delete, [(key, at) for key, at in named if at is not None])

    def _delete(self, key: str, generation: str | None) -> None:
        query = {"generation": generation}
        self._ask(
            "DELETE", self._path(key), query=query, outcomes=(404,), whole=rest.no_body, key=key
        )

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Puts an empty object that holds the metadata and headers of the target."""
        rules.check_key(key)
        upload_id = uuid.uuid4().hex
        name = _part_name(key, upload_id, 0)
        self._insert(name, b"", _described(key, metadata, headers), None)
        return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        """An aborted upload is noticed at its completion (`Missing`), not here."""
        rules.check_part(key, number, len(body))
        content = body if isinstance(body, bytes) else bytes(body)
        answer = self._insert(_part_name(key, upload_id, number), content, {}, None)
        assert isinstance(answer, Answer)  # without a condition
        return Part(number, str(answer.json()["generation"]))

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
        raise http_rules.no_range_copies(key, "Google Cloud Storage")

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        rules.check_part_list(key, parts)
        parts_there = self._of_upload(key, upload_id)
        held = {part.number: part for part in parts_there if "timeDeleted" not in part.resource}
        if 0 not in held:
            return Missing(self._now_us())
        staged = {
            number: rules.StagedPart(part.generation, int(part.resource["size"]))
            for number, part in held.items()
            if 0 < number < _JOINED
        }
        rules.check_completion(key, parts, staged)
        generation = self._generation(key, condition)
        if isinstance(generation, Refused):
            return generation
        sources = [(held[part.number].name, part.etag) for part in parts]
        joined = itertools.count(_JOINED)
        while len(sources) > _SOURCES:
            sources = [
                self._join(
                    _part_name(key, upload_id, next(joined)), sources[start : start + _SOURCES]
                )
                for start in range(0, len(sources), _SOURCES)
            ]
        first = held[0].resource
        described = {name: first[name] for name in _HEADERS.values() if name in first}
        if first.get("metadata"):
            described["metadata"] = first["metadata"]
        answer = self._compose(key, sources, described, generation, condition)
        if answer.done:
            self._forget(key, upload_id)
            return _written(answer)
        refused = self._refused(key, answer, condition)
        if answer.attempt > 1 and refused.reason == "exists":
            # An earlier attempt may have landed. That is for the caller to compare, as of a PUT; but nobody
            # would ask for these parts again, and a target of the same size needs them no more.
            there = self.head(key)
            size = sum(staged[part.number].size for part in parts)
            if isinstance(there, Head) and there.info.size == size:
                self._forget(key, upload_id)
        return refused

    def _join(self, name: str, sources: Sequence[tuple[str, str]]) -> tuple[str, str]:
        answer = self._compose(name, sources, {"contentType": _PLAIN_TYPE}, None, None)
        return name, str(answer.json()["generation"])

    def _compose(
        self,
        key: str,
        sources: Sequence[tuple[str, str]],
        described: Mapping[str, Any],
        generation: str | None,
        condition: Condition,
    ) -> Answer:
        listed = [{"name": name, "generation": source} for name, source in sources]
        return self._ask(
            "POST",
            f"{self._path(key)}/compose",
            query={"ifGenerationMatch": generation},
            headers={"Content-Type": "application/json"},
            body=json.dumps({"sourceObjects": listed, "destination": described}).encode(),
            outcomes=() if condition is None else (409, 412),
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            whole=_resource,
            key=key,
        )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self._forget(key, upload_id)

    def _forget(self, key: str, upload_id: str) -> None:
        """Deletes what an upload left, the object that makes it one last."""
        staged = self._of_upload(key, upload_id)
        for some in ([e for e in staged if e.number], [e for e in staged if not e.number]):
            failures = rest.delete_each(self._delete, [(e.name, e.generation) for e in some])
            if failures:
                raise AccessDenied(
                    f"a part of an upload cannot be deleted: {failures[0].reason}",
                    key=key,
                    next_step="Grant storage.objects.delete",
                )

    def _of_upload(self, key: str, upload_id: str) -> Sequence[_Staged]:
        folder, slash, _ = key.rpartition("/")
        prefix = f"{folder}{slash}{_HIDDEN}{upload_id}~"
        staged = [_staged(item) for item in self._listed(prefix, versions="true")]
        return [part for part in staged if part is not None and part.target == key]

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        folder = prefix[: prefix.rfind("/") + 1]
        began: dict[tuple[str, str], int] = {}
        for item in self._listed(folder, versions="true"):
            if (part := _staged(item)) is not None and part.target.startswith(prefix):
                name = (part.target, part.upload_id)
                at = _time_us(item)
                began[name] = min(at, began.get(name, at))
        for (key, upload_id), at in sorted(began.items(), key=lambda e: (e[0][0].encode(), e[1])):
            yield Upload(key, upload_id, at)

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        kept = self._listed(prefix, versions="true")
        ordered = heapq.merge(kept, self._soft_deleted(prefix), key=lambda e: e["name"].encode())
        for _, of_key in itertools.groupby(ordered, lambda item: item["name"]):
            for item in sorted(of_key, key=lambda e: int(e["generation"]), reverse=True):
                part, soft = _staged(item), "softDeleteTime" in item
                if part is not None and not soft:
                    continue  # of an unfinished upload, which is aborted with all its versions
                yield ObjectVersion(
                    item["name"] if part is None else part.target,
                    f"{_SOFT}{item['generation']}:{item.get('hardDeleteTime', '')}"
                    if soft
                    else str(item["generation"]),
                    int(item["size"]),
                    _time_us(item),
                    is_latest=not soft and "timeDeleted" not in item,
                    marker=False,
                    etag=str(item["generation"]),
                )

    def _soft_deleted(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        try:
            yield from self._listed(prefix, softDeleted="true")
        except InvalidRequest as error:
            # A bucket that never had a policy refuses the question.
            if "softdelete" not in re.sub(r"[ -]", "", error.message.lower()):
                raise

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        def held(version_id: str) -> str | None:
            if not version_id.startswith(_SOFT):
                return None
            return f"the bucket's soft delete policy keeps it until {version_id.split(':', 2)[2]}"

        return rest.delete_versions(self._delete, versions, held)

    # -- requests -----------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return _path(self._name, key)

    def _ask(self, method: str, path: str, **how: Any) -> Answer:
        answer = self._line.ask(method, path, **how)
        if answer.status == 404 and "bucket does not exist" in answer.message:
            raise self._line.unexpected(answer, how.get("key"))
        return answer

    def _listed(self, prefix: str, **how: str | None) -> Iterator[Mapping[str, Any]]:
        for page in self._pages(prefix, **how):
            yield from page.get("items", ())

    def _pages(self, prefix: str, **how: str | None) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        while True:  # ends with the listing: each page begins where the last one stopped
            answer = self._ask(
                "GET",
                f"/storage/v1/b/{quote(self._name, safe='')}/o",
                query={"prefix": prefix, "maxResults": "1000", "pageToken": token, **how},
                whole=_objects,
                key=prefix,
            )
            page = _objects(answer)
            yield page
            following = page.get("nextPageToken")
            if not following:
                return
            http_rules.check_goes_on(self._line.place, token, following)
            token = following


def _objects(answer: Answer) -> Mapping[str, Any]:
    """A page of a listing. Raises `ValueError` for another document, which would be a list of nothing."""
    page: Mapping[str, Any] = answer.json()
    if page.get("kind") != "storage#objects":
        raise ValueError("the answer is no list of objects")
    return page


def _path(bucket: str, key: str, api: str = "/storage/v1") -> str:
    return f"{api}/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"


def _part_name(key: str, upload_id: str, number: int) -> str:
    folder, slash, name = key.rpartition("/")
    hidden = f"{folder}{slash}{_HIDDEN}{upload_id}~{number:05d}~{name}"
    rules.check_key(hidden)
    return hidden


def _staged(resource: Mapping[str, Any]) -> _Staged | None:
    """An object as a part of an unfinished upload; None for every other object."""
    folder, slash, name = resource["name"].rpartition("/")
    part = _PART.fullmatch(name)
    if part is None:
        return None
    return _Staged(part[1], int(part[2]), f"{folder}{slash}{part[3]}", resource)


def _described(
    key: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """The fields of an object's resource that its writer sets."""
    kept, kept_headers = rules.check_headers(key, metadata, headers)
    described: dict[str, Any] = {
        _HEADERS[name]: value
        for name, value in http_rules.kept_by(key, kept_headers, _HEADERS, "gs://").items()
    }
    if kept:
        described["metadata"] = kept
    return described


# -- answers --------------------------------------------------------------------------------------


def _resource(answer: Answer) -> object:
    said = answer.json()
    return said["generation"], said["size"]


def _written(answer: Answer) -> Written:
    made = str(answer.json()["generation"])
    return Written(made, answer.date_us, made)


def _time_us(resource: Mapping[str, Any]) -> int:
    said = resource.get("updated") or resource["timeCreated"]
    return rest.microseconds(datetime.fromisoformat(said))


def _info(resource: Mapping[str, Any]) -> ObjectInfo:
    generation = str(resource["generation"])
    return ObjectInfo(
        resource["name"],
        int(resource["size"]),
        generation,
        _time_us(resource),
        generation,
        resource.get("metadata") or {},
        {name: resource[field] for name, field in _HEADERS.items() if resource.get(field)},
    )


def _got(answer: Answer, body: bytes) -> Got:
    generation = answer.headers["x-goog-generation"]
    return Got(
        body,
        rest.size_of(answer.headers),
        generation,
        rest.microseconds(email.utils.parsedate_to_datetime(answer.headers["last-modified"])),
        answer.date_us,
        generation,
    )

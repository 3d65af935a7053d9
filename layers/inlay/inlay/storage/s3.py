"""S3, and other stores with its protocol.

Promise: each method is one request (a page or batch each for lists and deletes), answered with the values
of `base.py` or a typed error; the store's clock is the `Date` header of the answer, never the host's.
Settings come from the standard AWS environment: AWS_ENDPOINT_URL_S3, region, profile, credential chain.
One is our own: INLAY_S3_DIALECT (`DIALECTS`).

Attempts. The SDK's own retries are off (`total_max_attempts=1`): they cannot be set by request, and a
second attempt can turn a PUT that landed into a 412. Here it depends on the request. A swap (`If-Match`) is
tried once, because the commit reads the pointer after any doubt. Everything else is tried up to four times.
A create (`If-None-Match: *`) that is refused on a later attempt may have met its own first one. It stays
refused: equal bytes may be another's as well (an archive beside a pointer that went back). `write_once`
compares what is there, and reports that it was there before.

GET, HEAD, PUT and object listings bypass the SDK's model of them (`s3_direct.py`), the rest use the SDK
(`s3_client.py`), which is loaded when it is needed first. botocore is used without boto3, whose resources
are of no use here and cost import time.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from inlay.errors import (
    AccessDenied,
    InlayError,
    InvalidRequest,
    PageError,
    StoreUnavailable,
    UnsupportedStore,
)
from inlay.record import Record, replace
from inlay.storage import http_rules, rules, s3_direct, s3_environment, s3_errors
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
from inlay.storage.wrapped import PerProcess, check_same_process, current_process

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from inlay.storage.s3_direct import DirectLine

# Four attempts with full jitter wait 0.7 s on average and 1.4 s at most: longer than a SlowDown or
# a dropped connection usually lasts, short beside any function's timeout.
MAX_ATTEMPTS: Final = 4
# Larger bodies are sent without their digest, unless they replace something.
DIGEST_BYTES: Final = 1 << 20
_LOG = logging.getLogger("inlay.storage")
_FIRST_BACKOFF_SECONDS: Final = 0.2
# Every answer has these headers.
_ALWAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "get_object": ("ETag", "LastModified", "ContentLength"),
    "head_object": ("ETag", "LastModified", "ContentLength"),
    "put_object": ("ETag",),
    "copy_object": ("CopyObjectResult",),
    "create_multipart_upload": ("UploadId",),
    "upload_part": ("ETag",),
    "upload_part_copy": ("CopyPartResult",),
    "complete_multipart_upload": ("ETag",),
}
# Where the next page of a listing begins, and how it is asked for; each listing has its own names.
_FOLLOWING: Final = {
    "NextContinuationToken": "ContinuationToken",
    "NextKeyMarker": "KeyMarker",
    "NextUploadIdMarker": "UploadIdMarker",
    "NextVersionIdMarker": "VersionIdMarker",
}
# What a page of a listing lists, each with these members.
_LISTED: Final[Mapping[str, tuple[str, ...]]] = {
    "Contents": ("Key", "LastModified"),
    "Versions": ("Key", "VersionId", "IsLatest", "LastModified"),
    "DeleteMarkers": ("Key", "VersionId", "IsLatest", "LastModified"),
    "Uploads": ("Key", "UploadId", "Initiated"),
}
# Names of requests that change nothing begin so.
_READS: Final = ("get_", "head_", "list_")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Whose S3 it is, where that matters. "ceph" is Ceph's gateway, as seen on 16.2, 18.2 and 20.2; DigitalOcean
# Spaces is one. To 18.2 a write's `If-Match` is compared with the bare ETag, so that one in quotes, as HTTP
# has it (RFC 9110, 8.8.3), never matches; 20.2 takes both. The condition on the source of a copied part is
# ignored by all, and in a bucket with versions no condition holds against a racing write. Never guessed: a
# server that takes no bare ETag might leave the condition out. The gateway is known by the ids of its
# answers, and where a proxy hides those, by the setting.
DIALECTS: Final = ("aws", "ceph")
# "tx", number, time, gateway, zone. Swift's, which it resembles, end with the time.
_ID_OF_CEPH: Final = re.compile(r"tx[0-9a-f]{21}-[0-9a-f]{10}-[0-9a-f]+-.+")
_DIALECT_VARIABLE: Final = "INLAY_S3_DIALECT"


class _Answer(Record):
    """A request that S3 carried out."""

    content: Mapping[str, Any]
    date_us: int


class _Declined(Record):
    """A request that S3 understood and did not carry out."""

    status: int
    code: str
    message: str
    date_us: int


class _Direct:
    """The direct line of one process to a bucket: the environment's where that is plain, else what the SDK
    says, asked on first use. Two threads may do so at once: both find the same."""

    def __init__(
        self, bucket: str, plain: DirectLine | None, client: Callable[[], BaseClient]
    ) -> None:
        self._bucket = bucket
        self._client = client
        self._line = self.plain = plain
        self._known = plain is not None
        if plain is None:
            client()  # raises here if the environment is wrong

    def line(self) -> DirectLine | None:
        if not self._known:
            from inlay.storage.s3_client import find

            self._line = find(self._client(), self._bucket)
            self._known = True
        return self._line

    def forget(self) -> None:
        self._known = False


class S3Store:
    """One bucket. Thread-safe, like the client. A process forked from this one makes its own client, with
    the same endpoint and region; a client that was passed in is refused there. Pickled it is bucket,
    endpoint and region: the process that unpickles it uses its own credentials."""

    scheme = "s3"
    copies_ranges = True

    def __init__(
        self,
        bucket: str,
        *,
        client: BaseClient | None = None,
        endpoint_url: str | None = None,
        region: str | None = None,
        dialect: str | None = None,
    ) -> None:
        self._name = bucket
        self._given = client
        self._endpoint_url = s3_environment.endpoint_of(endpoint_url)
        self._region = region
        self._dialect = _dialect(dialect)
        self._plain = False  # found without versioning, where conditions need it so
        self._process = current_process()
        self._clients = PerProcess(self._connect)
        self._directs = PerProcess(self._direct)
        self._directs.get()

    def _direct(self) -> _Direct:
        plain = None
        if self._given is None:
            plain = s3_environment.line_to(
                self._name, endpoint=self._endpoint_url, region=self._region
            )
        return _Direct(self._name, plain, self._clients.get)

    def _connect(self) -> BaseClient:
        from inlay.storage import s3_client

        if self._given is None:
            return s3_client.connect(endpoint_url=self._endpoint_url, region=self._region)
        check_same_process(self._process, "the client that was given to this store")
        return s3_client.prepared(self._given)

    def __reduce__(self) -> tuple[object, ...]:
        if self._given is not None:
            raise InvalidRequest(
                "an S3 store with a client of its own cannot be pickled",
                next_step="Set AWS_ENDPOINT_URL_S3 and AWS_REGION and open the table by its URI",
            )
        http_rules.check_endpoint(self._endpoint_url)
        plain = self._directs.get().plain
        region = self.client.meta.region_name if plain is None else plain.scope.region
        made = partial(
            S3Store, endpoint_url=self._endpoint_url, region=region, dialect=self._dialect
        )
        return made, (self._name,)

    @property
    def bucket(self) -> str:
        return self._name

    @property
    def client(self) -> BaseClient:
        """The SDK's client, for requests that are not a store's: creating a bucket, for example."""
        return self._clients.get()

    @property
    def connection(self) -> Hashable:
        """What stores have in common that reach the same S3 with the same credentials."""
        plain = self._directs.get().plain
        if plain is None:
            return self.client
        return self._endpoint_url, plain.scope, plain.credentials()

    def at(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            client=self._given,
            endpoint_url=self._endpoint_url,
            region=self._region,
            dialect=self._dialect,
        )

    # -- reads --------------------------------------------------------------------------------

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        arguments = _version(version_id)
        if byte_range is not None:
            arguments["Range"] = f"bytes={byte_range.start}-{byte_range.end - 1}"
        if if_match is not None:
            arguments["IfMatch"] = http_rules.quoted_etag(if_match)
        answer = self._ask("get_object", key, **arguments)
        if isinstance(answer, _Answer):
            return _got(answer, byte_range)
        if _is_gone(answer, version_id):
            return Missing(answer.date_us)
        if answer.status == 412:
            return Refused("exists", answer.date_us)
        if answer.status == 416 and byte_range is not None:
            raise rules.range_past_end(key, byte_range)
        raise self._unexpected(answer, key)

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        rules.check_suffix_length(length)
        answer = self._ask("get_object", key, Range=f"bytes=-{length}", **_version(version_id))
        if isinstance(answer, _Answer):
            got = _got(answer, None)
            return replace(got, body=got.body[-length:])  # cut, should the range be ignored
        if _is_gone(answer, version_id):
            return Missing(answer.date_us)
        if answer.status != 416:
            raise self._unexpected(answer, key)
        # No byte satisfies a range of an empty object. The 416 does not say its ETag.
        head = self.head(key, version_id=version_id)
        return head if isinstance(head, Missing) else head.empty()

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        answer = self._ask("head_object", key, **_version(version_id))
        if isinstance(answer, _Declined):
            if _is_gone(answer, version_id):
                return Missing(answer.date_us)
            raise self._unexpected(answer, key)
        content = answer.content
        headers = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name in sorted(rules.HEADER_NAMES)
            if (value := content.get(name)) is not None
        }
        if content.get("TagCount"):
            headers |= self._tagging(key, version_id)
        info = ObjectInfo(
            key,
            content["ContentLength"],
            http_rules.bare_etag(content["ETag"]),
            _us(content["LastModified"]),
            content.get("VersionId"),
            content.get("Metadata", {}),
            headers,
            unread_tags=bool(content.get("TagCount")) and "Tagging" not in headers,
        )
        return Head(info, answer.date_us)

    def _tagging(self, key: str, version_id: str | None) -> Mapping[str, str]:
        try:
            answer = self._ask("get_object_tagging", key, **_version(version_id))
        except AccessDenied:
            return {}  # reading tags is a permission of its own
        if isinstance(answer, _Declined):
            return {}
        tags = [(tag["Key"], tag["Value"]) for tag in answer.content["TagSet"]]
        return {"Tagging": urlencode(tags)}

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        infos = (
            ObjectInfo(
                item["Key"],
                item["Size"],
                http_rules.bare_etag(item["ETag"]),
                _us(item["LastModified"]),
            )
            for page in self._pages("list_objects_v2", prefix, StartAfter=start_after)
            for item in page.get("Contents", ())
        )
        return http_rules.in_key_order(f"s3://{self._name}", infos, after=start_after)

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        for page in self._pages("list_objects_v2", prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                yield item["Prefix"]

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
        # The SDK takes no memoryview.
        content = body if isinstance(body, bytes) else bytes(body)
        answer = self._ask(
            "put_object",
            key,
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            Body=content,
            **_digest(content, condition),
            **self._condition(condition),
            **_kept(key, metadata, headers),
        )
        if isinstance(answer, _Answer):
            return _written(answer)
        return self._refused(answer, key, conditional=condition is not None)

    def put_locked(self, key: str, body: bytes, *, mode: str, until_us: int) -> Written | Refused:
        """PUT of an object that is not there yet, which nobody may delete until then (S3 Object Lock)."""
        rules.check_key(key)
        answer = self._ask(
            "put_object",
            key,
            Body=body,
            IfNoneMatch="*",
            ContentMD5=http_rules.content_md5(body),  # S3 asks for one where there is a lock
            ObjectLockMode=mode,
            ObjectLockRetainUntilDate=datetime.fromtimestamp(until_us // 1_000_000, UTC)
            .isoformat()
            .replace("+00:00", "Z"),
        )
        if isinstance(answer, _Answer):
            return _written(answer)
        return self._refused(answer, key, conditional=True)

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
        arguments = _source(source, if_source_match) | self._condition(condition)
        if bare:
            arguments |= {"MetadataDirective": "REPLACE", "TaggingDirective": "REPLACE"}
        answer = self._ask(
            "copy_object", key, attempts=1 if condition is not None else MAX_ATTEMPTS, **arguments
        )
        if isinstance(answer, _Answer):
            if (changed := self._changed(source, if_source_match)) is not None:
                self.delete([key])  # of other bytes than were asked for
                return changed
            etag = http_rules.bare_etag(answer.content["CopyObjectResult"]["ETag"])
            return Written(etag, answer.date_us, answer.content.get("VersionId"))
        if answer.status == 404:
            return Missing(answer.date_us)
        conditional = condition is not None or if_source_match is not None
        return self._refused(answer, key, conditional=conditional)

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        return self._delete({"Key": key} for key in keys)

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        """A server that does not know conditions on deletes ignores them, or refuses the request: then they
        are deleted without."""
        failures: list[DeleteFailure] = []
        for batch in rules.delete_batches(objects):
            try:
                failures += self._delete(
                    {"Key": key, "ETag": http_rules.quoted_etag(etag)} for key, etag in batch
                )
            except (InvalidRequest, UnsupportedStore):
                failures += self.delete(key for key, _ in batch)
        return failures

    def _delete(self, objects: Iterable[Mapping[str, str]]) -> Sequence[DeleteFailure]:
        failures: list[DeleteFailure] = []
        for batch in rules.delete_batches(objects):
            pending = batch
            for attempt in range(1, MAX_ATTEMPTS + 1):
                refused = self._delete_batch(pending)
                repeated = [
                    refusal for refusal in refused if refusal["Code"] in s3_errors.TRANSIENT
                ]
                if not repeated or attempt == MAX_ATTEMPTS:
                    break
                failures += [_failure(refusal) for refusal in refused if refusal not in repeated]
                names = {refusal["Key"] for refusal in repeated}
                pending = [item for item in pending if item["Key"] in names]
                _back_off(attempt, repeated[0]["Code"], self._name)
            failures += [_failure(refusal) for refusal in refused]
        return failures

    def _delete_batch(self, batch: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """What S3 did not delete. One answer covers up to 1,000 keys."""
        asked = {"Objects": batch, "Quiet": True}
        content = self._content("delete_objects", None, batch[0]["Key"], Delete=asked)
        refused: Sequence[Mapping[str, str]] = content.get("Errors", ())
        keys = {item["Key"] for item in batch}
        for refusal in refused:
            if "Code" not in refusal or refusal.get("Key") not in keys:
                # What it kept cannot be said.
                raise StoreUnavailable(
                    f"S3 answered a deletion with an error of no key that was asked for: {refusal} "
                    f"(bucket {self._name!r})",
                    key=batch[0]["Key"],
                )
        # A missing key counts as deleted; some servers report a missing version as an error.
        done = s3_errors.GONE | {"PreconditionFailed"}  # of `delete_unchanged`: it was overwritten
        return [refusal for refusal in refused if refusal["Code"] not in done]

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        rules.check_key(key)
        kept = _kept(key, metadata, headers)
        upload_id: str = self._content("create_multipart_upload", key, key, **kept)["UploadId"]
        return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        rules.check_part(key, number, len(body))
        answer = self._ask(
            "upload_part",
            key,
            UploadId=upload_id,
            PartNumber=number,
            Body=body if isinstance(body, bytes) else bytes(body),
        )
        if isinstance(answer, _Answer):
            return Part(number, http_rules.bare_etag(answer.content["ETag"]))
        if answer.code == "NoSuchUpload":
            raise rules.upload_gone(key, upload_id)
        raise self._unexpected(answer, key)

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
        answer = self._ask(
            "upload_part_copy",
            key,
            UploadId=upload_id,
            PartNumber=number,
            CopySourceRange=f"bytes={byte_range.start}-{byte_range.end - 1}",
            **_source(source, if_source_match),
        )
        if isinstance(answer, _Answer):
            if (changed := self._changed(source, if_source_match)) is not None:
                return changed
            return Part(number, http_rules.bare_etag(answer.content["CopyPartResult"]["ETag"]))
        if answer.code == "NoSuchUpload":
            raise rules.upload_gone(key, upload_id)
        if answer.status == 404:
            return Missing(answer.date_us)
        if answer.status == 412:
            return Refused("exists", answer.date_us)
        raise self._unexpected(answer, key)

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        rules.check_part_list(key, parts)
        listed = [
            {"PartNumber": part.number, "ETag": http_rules.quoted_etag(part.etag)} for part in parts
        ]
        answer = self._ask(
            "complete_multipart_upload",
            key,
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            UploadId=upload_id,
            MultipartUpload={"Parts": listed},
            **self._condition(condition),
        )
        if isinstance(answer, _Answer):
            return _written(answer)
        if answer.status == 404 and not isinstance(condition, IfMatch):
            return Missing(answer.date_us)
        return self._refused(answer, key, conditional=condition is not None)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        answer = self._ask("abort_multipart_upload", key, UploadId=upload_id)
        if isinstance(answer, _Declined) and answer.status != 404:
            raise self._unexpected(answer, key)

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        for page in self._pages("list_multipart_uploads", prefix):
            for upload in page.get("Uploads", ()):
                yield Upload(upload["Key"], upload["UploadId"], _us(upload["Initiated"]))

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        for page in self._pages("list_object_versions", prefix):
            versions = [
                (version, marker)
                for name, marker in (("Versions", False), ("DeleteMarkers", True))
                for version in page.get(name, ())
            ]
            # The SDK separates versions from markers; restore S3's order: of a key the newest first.
            versions.sort(key=lambda version: version[0]["LastModified"], reverse=True)
            versions.sort(key=lambda version: (version[0]["Key"], not version[0]["IsLatest"]))
            for version, marker in versions:
                yield ObjectVersion(
                    version["Key"],
                    version["VersionId"],
                    version.get("Size", 0),
                    _us(version["LastModified"]),
                    is_latest=version["IsLatest"],
                    marker=marker,
                    etag=http_rules.bare_etag(version.get("ETag", "")),
                )

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        return self._delete({"Key": key, "VersionId": version} for key, version in versions)

    # -- requests -----------------------------------------------------------------------------

    def _condition(self, condition: Condition) -> dict[str, str]:
        if condition is None:
            return {}
        ceph = self._dialect == "ceph"
        if ceph and not self._plain:
            self._refuse_versioning()
        match condition:
            case IfAbsent():
                return {"IfNoneMatch": "*"}
            case IfMatch(etag):
                return {"IfMatch": etag if ceph else http_rules.quoted_etag(etag)}

    def _refuse_versioning(self) -> None:
        """Raises where conditions do not hold at Ceph's gateway: in a bucket that has or had versions.
        18.2 compares them with the new version: a create replaces what is there, a swap is always refused.
        20.2 compares them with what is there, but not in one step with the write: racing swaps may all
        succeed."""
        if "Status" in self._content("get_bucket_versioning", None, ""):
            raise UnsupportedStore(
                f"bucket {self._name!r} has versioning, and with it Ceph's gateway lets racing writers "
                "replace each other's rows",
                next_step="Nothing was changed. Keep tables in a bucket that never had versioning",
            )
        self._plain = True

    def _changed(self, source: Location, etag: str | None) -> Refused | Missing | None:
        """What a copy from `source` should have answered where the server ignores the condition on it; None
        if the source still has the ETag that it had before the copy."""
        if self._dialect != "ceph" or etag is None:
            return None
        head = self.at(source.bucket).head(source.key, version_id=source.version_id)
        if isinstance(head, Head):
            return None if head.info.etag == etag else Refused("exists", head.date_us)
        return head

    def _pages(self, operation: str, prefix: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        asked = {name: value for name, value in arguments.items() if value is not None}
        while True:  # terminates with the listing: each page begins where the last one stopped
            page = self._content(operation, None, prefix, Prefix=prefix, **asked)
            self._check_page(prefix, page)
            yield page
            if not page.get("IsTruncated"):
                return
            following = asked | {
                ask: page[said] for said, ask in _FOLLOWING.items() if said in page
            }
            http_rules.check_goes_on(f"s3://{self._name}", asked, following)
            asked = following

    def _check_page(self, prefix: str, page: Mapping[str, Any]) -> None:
        for name, members in _LISTED.items():
            for item in page.get(name, ()):
                if any(member not in item for member in members):
                    raise StoreUnavailable(
                        f"S3 lists half an entry (bucket {self._name!r}): {item}"
                    )
                http_rules.check_prefix(f"s3://{self._name}", prefix, item["Key"])

    def _content(
        self, operation: str, key: str | None, about: str, **arguments: Any
    ) -> Mapping[str, Any]:
        """The answer to a request that has no other outcome; errors name `about` as their key."""
        answer = self._ask(operation, key, **arguments)
        if isinstance(answer, _Declined):
            raise self._unexpected(answer, about)
        return answer.content

    def _ask(
        self, operation: str, key: str | None, *, attempts: int = MAX_ATTEMPTS, **arguments: Any
    ) -> _Answer | _Declined:
        """Send one request, again after a transient failure while `attempts` last."""
        if key is not None:
            arguments["Key"] = key
        for attempt in range(1, attempts + 1):
            try:
                return self._ask_once(operation, key, arguments)
            except StoreUnavailable as fault:
                if attempt == attempts:
                    raise
                _back_off(attempt, fault.message, self._name)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _ask_once(
        self, operation: str, key: str | None, arguments: Mapping[str, Any]
    ) -> _Answer | _Declined:
        try:
            try:
                content = self._send(operation, arguments)
            except ClientError as error:
                if not s3_errors.is_answer_to(error, operation):
                    raise s3_errors.of_settings(error) from error
                return self._declined(operation, key, arguments, error)
            self._note_server(content)
            _check_head(operation, content, arguments.get("Range"))
            return _Answer(content, _date_us(operation, content))
        except (BotoCoreError, OSError) as error:
            raise s3_errors.of_exception(error, self._name, key) from error
        except (
            RecursionError
        ) as error:  # the SDK follows a redirect by asking, where it is redirected
            raise s3_errors.redirected(self._name, key) from error
        except RuntimeError as error:  # the SDK's, of credentials that it cannot refresh
            raise s3_errors.of_settings(error) from error
        except (LookupError, ValueError) as error:
            # An unreadable answer proves nothing, not even that a write was refused.
            words = f"{type(error).__name__}: {error} (bucket {self._name!r})"
            raise StoreUnavailable(f"no answer of S3 that can be read: {words}", key=key) from error

    def _note_server(self, response: Mapping[str, Any]) -> None:
        """Notes which server answered, and that a bucket has versions after all. Whatever writes a name
        that others write has read before, by this store: its first condition is in the right dialect."""
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        if _ID_OF_CEPH.fullmatch(headers.get("x-amz-request-id", "")):
            self._dialect = "ceph"
        if "x-amz-version-id" in headers:
            self._plain = False

    def _declined(
        self, operation: str, key: str | None, arguments: Mapping[str, Any], error: ClientError
    ) -> _Declined:
        """The outcome that an error answer stands for; raises where it is not an outcome."""
        self._note_server(error.response)
        status, code, message = s3_errors.parts_of(error)
        if _is_cut_short("", error.response):
            status, message = 500, "the head of the answer was cut short"
        elif operation != "head_object" and s3_errors.may_be_another_server(status, code):
            status, code, message = 502, "", f"{status} without a code of S3, as of a proxy"
        # S3 calls an id that never was a version's an invalid argument.
        no_version = status == 400 and code == "InvalidArgument" and "VersionId" in arguments
        if not no_version and not s3_errors.is_outcome(status, code):
            raise s3_errors.of_answer(status, code, message, self._name, key) from error
        return _Declined(status, code, message, _date_us(operation, error.response))

    def _send(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """One request, directly where that is possible, else by the SDK."""
        direct = self._directs.get()
        if operation in s3_direct.OPERATIONS and (line := direct.line()) is not None:
            try:
                return line.ask(operation, arguments)
            except s3_direct.Elsewhere:
                # Not carried out. The SDK finds the bucket, and then says where it is.
                direct.forget()
        from inlay.storage.s3_client import by_sdk

        content: Mapping[str, Any] = by_sdk(self.client, self._name, operation, arguments)
        return content

    def _refused(self, declined: _Declined, key: str, *, conditional: bool) -> Refused:
        """The outcome of a conditional write; raises what is not about its condition."""
        match declined.status:
            case 412 if conditional:
                return Refused("exists", declined.date_us)
            case 404 if conditional:
                return Refused("missing", declined.date_us)
            case 409 if conditional:
                return Refused("race", declined.date_us)
            case _:  # a failure
                raise self._unexpected(declined, key)

    def _unexpected(self, declined: _Declined, key: str) -> InlayError:
        """The error for an answer that is not one of the request's expected outcomes."""
        return s3_errors.of_answer(
            declined.status, declined.code, declined.message, self._name, key
        )


def _dialect(given: str | None) -> str:
    dialect = given or os.environ.get(_DIALECT_VARIABLE) or "aws"
    if dialect not in DIALECTS:
        raise InvalidRequest(
            f"{dialect[:40]!r} is no dialect of S3",
            next_step=f"Set storage_options={{'dialect': …}} or {_DIALECT_VARIABLE} to one of "
            + ", ".join(DIALECTS),
        )
    return dialect


# -- arguments ------------------------------------------------------------------------------------


def _version(version_id: str | None) -> dict[str, Any]:
    return {} if version_id is None else {"VersionId": version_id}


def _source(source: Location, if_match: str | None) -> dict[str, Any]:
    rules.check_scheme(source, "s3", "S3")
    named = {"Bucket": source.bucket, "Key": source.key}
    if source.version_id is not None:
        named["VersionId"] = source.version_id
    arguments: dict[str, Any] = {"CopySource": named}
    if if_match is not None:
        arguments["CopySourceIfMatch"] = http_rules.quoted_etag(if_match)
    return arguments


def _digest(content: bytes, condition: Condition) -> dict[str, str]:
    """The digest of a body, in the head of its request. Without one a server may store an empty object for
    a request that ends after its head, and so lose the pointer of a killed writer (SeaweedFS 4.48). Large
    objects go without: it would be an eighth of the CPU of an append, and they have random names that
    nobody knows before the store acknowledges them. A second try of such a write is compared with what is
    there."""
    if isinstance(condition, IfMatch) or len(content) <= DIGEST_BYTES:
        return {"ContentMD5": http_rules.content_md5(content)}
    return {}


def _kept(
    key: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    kept, kept_headers = rules.check_headers(key, metadata, headers)
    arguments: dict[str, Any] = dict(kept_headers)
    if "BucketKeyEnabled" in arguments:
        arguments["BucketKeyEnabled"] = arguments["BucketKeyEnabled"] == "true"
    if kept:
        arguments["Metadata"] = kept
    return arguments


# -- answers --------------------------------------------------------------------------------------


def _us(when: datetime) -> int:
    """Whole seconds: S3 shows no others, but listings of MinIO, Ceph and others do, and an object would be
    newer than the `Date` of an answer that comes after it. Without a zone it is UTC (RFC 9110, 5.6.7; ISO
    8601 as S3 has it)."""
    known = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (known - _EPOCH) // timedelta(seconds=1) * 1_000_000


def _check_head(operation: str, content: Mapping[str, Any], asked: str | None) -> None:
    """Raises `ConnectionError` for a head that was cut short, `ValueError` for one that means nothing, or
    is of other bytes than the `Range` that was asked for."""
    if _is_cut_short(operation, content):
        raise ConnectionError("the head of the answer was cut short")
    if operation == "get_object":
        if content["ResponseMetadata"]["HTTPStatusCode"] == 206:
            said = content.get("ContentRange", "")
            http_rules.check_content_range(asked, said, len(content["Body"]))
        _whole_size(content)


def _whole_size(content: Mapping[str, Any]) -> int:
    """The size of the object of a GET."""
    said = content.get("ContentRange")  # "bytes 0-9/1234"
    return int(said.rpartition("/")[2] if said else content["ContentLength"])


def _is_cut_short(operation: str, content: Mapping[str, Any]) -> bool:
    """Python's HTTP client accepts a header section whose connection ended as complete."""
    if not content.get("ResponseMetadata", {}).get("HTTPHeaders"):
        return True
    members = [content.get(name) for name in _ALWAYS.get(operation, ())]
    return any(
        member is None or (isinstance(member, dict) and "ETag" not in member) for member in members
    )


def _date_us(operation: str, response: Mapping[str, Any]) -> int:
    """The server's clock as it answered. Raises `PageError` without one, and for a write `ValueError`: it
    may have been carried out."""
    said = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if said is None and not operation.startswith(_READS):
        raise ValueError("it has no Date header")
    if said is None:
        raise PageError(
            "the S3 answer has no Date header, and Inlay takes the time from nowhere else",
            next_step="Look for a proxy that strips headers",
        )
    return _us(http_rules.http_date(said))


def _got(answer: _Answer, byte_range: ByteRange | None) -> Got:
    content = answer.content
    body = content["Body"]
    if "ContentRange" not in content and byte_range is not None:  # the server ignored the range
        body = body[byte_range.start : byte_range.end]
    return Got(
        body,
        _whole_size(content),
        http_rules.bare_etag(content["ETag"]),
        _us(content["LastModified"]),
        answer.date_us,
        content.get("VersionId"),
    )


def _written(answer: _Answer) -> Written:
    content = answer.content
    return Written(http_rules.bare_etag(content["ETag"]), answer.date_us, content.get("VersionId"))


def _is_gone(declined: _Declined, version_id: str | None) -> bool:
    """No such object, or no such version; 405 is a version that is a delete marker."""
    return declined.status == 404 or (version_id is not None and declined.status in (400, 405))


def _failure(said: Mapping[str, str]) -> DeleteFailure:
    words = f"{said['Code']}: {said.get('Message', '')}".rstrip(": ")
    return DeleteFailure(said["Key"], said.get("VersionId"), words)


def _back_off(attempt: int, why: str, bucket: str) -> None:
    seconds = random.uniform(0, _FIRST_BACKOFF_SECONDS * 2 ** (attempt - 1))
    _LOG.warning("waiting %.1f s for s3://%s: %s (try %d)", seconds, bucket, why, attempt)
    time.sleep(seconds)

"""Azure Blob Storage, by its REST API.

Promise: as `base.py` says, with the conditions of the service (`If-None-Match: *`, `If-Match`), which it
checks and applies in one step. A swap is sent once; a create that is refused on a later attempt may have
met its own first one, which `write_once` finds out. A pickle holds container, account and endpoint: the
process that unpickles it uses its own credentials.

A container is named with its account, `container@account.dfs.core.windows.net`, as engines name it in
`abfss://` URIs: an object's full name does not depend on anybody's environment.

*Parts* are blocks. A blob has one set of uncommitted blocks and no uploads; an upload is a prefix of the
blocks' ids, its first block makes it visible to `list_uploads`, and its id carries the metadata and headers
that the blocks are committed with. Blocks of an aborted upload are dropped by committing none of them and
deleting that empty blob, under conditions.

*Not offered by the service*: a suffix is read by two requests (HEAD, then a pinned range); a bare copy is
read and written, since a copy on the server carries metadata and headers of its source; ranges are not
copied.

*Soft delete*, versions and snapshots are listed by `list_versions`; what is soft-deleted cannot be deleted
sooner, so `delete_versions` reports a failure with the days that are left: an erasure stays open until
then.
"""

from __future__ import annotations

import base64
import email.utils
import itertools
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from inlay.errors import InlayError, InvalidRequest, StoreUnavailable
from inlay.record import replace
from inlay.storage import azure_account, http_rules, rest, rules
from inlay.storage.base import (
    IF_ABSENT,
    NULL_VERSION,
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

# Azure: one Put Blob takes at most 5,000 MiB. A bare copy of more than one block is sent in blocks.
MAX_PUT_BYTES: Final = 5_000 * 1024 * 1024
_BLOCK_BYTES: Final = 64 * 1024 * 1024
_SOFT: Final = "soft-deleted:"
_SNAPSHOT: Final = "snapshot:"
_METADATA: Final = "x-ms-meta-"
_HEADERS: Final = {
    "CacheControl": "cache-control",
    "ContentDisposition": "content-disposition",
    "ContentEncoding": "content-encoding",
    "ContentLanguage": "content-language",
    "ContentType": "content-type",
}
# With these codes a 409 means what a 412 means elsewhere: the condition does not hold.
_EXISTS: Final = frozenset({"BlobAlreadyExists"})
_UNMET: Final = frozenset({"ConditionNotMet", "SourceConditionNotMet", "TargetConditionNotMet", ""})
_GONE: Final = frozenset({"BlobNotFound", "CannotVerifyCopySource", "ResourceNotFound", ""})
_NO_BLOCKS: Final = frozenset({"InvalidBlockList"})
# 409s that repeating the request does not resolve.
_HELD: Final = frozenset(
    {
        "BlobImmutableDueToPolicy",
        "BlobArchived",
        "InvalidBlobType",
        "LeaseAlreadyPresent",
        "PathConflict",
        "SnapshotsPresent",
        "UnauthorizedBlobOverwrite",
    }
)


def _explain(body: bytes, headers: Mapping[str, str]) -> tuple[str, str]:
    code = headers.get("x-ms-error-code", "")
    try:
        root = ElementTree.fromstring(body.removeprefix(b"\xef\xbb\xbf"))
    except ElementTree.ParseError:
        return code, ""
    message = _text(root, "Message").partition("\n")[0]
    return code or _text(root, "Code"), message


class AzureStore:
    """One container. Thread-safe; a process forked from this one makes its own connections."""

    scheme = "abfss"
    copies_ranges = False

    def __init__(
        self, container: str, *, account: str | None = None, endpoint_url: str | None = None
    ) -> None:
        if account is not None and "@" not in container:
            container = f"{container}@{account}.dfs.core.windows.net"
        self._bucket = azure_account.full_name(container)
        self._container, at, host = self._bucket.partition("@")
        if not at:
            raise InvalidRequest(
                f"the storage account of az://{container} is not known",
                next_step="Set AZURE_STORAGE_ACCOUNT, or write abfss://container@account."
                "dfs.core.windows.net/…",
            )
        name = host.partition(".")[0]
        settings = azure_account.settings()
        theirs = settings.endpoint if settings.account in (None, name) else None
        self._endpoint = (endpoint_url or theirs or azure_account.endpoint_of(host)).rstrip("/")
        self._line = Line(
            f"abfss://{self._bucket}",
            self._endpoint,
            partial(_sign, name, self._endpoint),
            _explain,
        )

    def __reduce__(self) -> tuple[object, ...]:
        http_rules.check_endpoint(self._endpoint)
        return partial(AzureStore, endpoint_url=self._endpoint), (self._bucket,)

    @property
    def bucket(self) -> str:
        return self._bucket

    def at(self, bucket: str) -> AzureStore:
        container, at, _ = bucket.partition("@")
        ours = self._bucket.partition("@")[2]
        if not at or azure_account.full_name(bucket).partition("@")[2] == ours:
            return AzureStore(f"{container}@{ours}", endpoint_url=self._endpoint)
        return AzureStore(bucket)

    # -- reads --------------------------------------------------------------------------------

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        headers = {} if if_match is None else {"If-Match": http_rules.quoted_etag(if_match)}
        if byte_range is not None:
            headers["Range"] = f"bytes={byte_range.start}-{byte_range.end - 1}"
        answer = self._ask(
            "GET",
            key,
            query=_version(version_id),
            headers=headers,
            outcomes=(400, 404, 412, 416),
            whole=lambda said: (_facts(said), rest.size_of(said.headers)),
        )
        if answer.done:
            return _got(answer, rest.in_range(answer, key, byte_range))
        if _is_gone(answer, version_id):
            return Missing(answer.date_us)
        if answer.status == 412 and answer.code in _UNMET:
            head = self.head(key, version_id=version_id)
            return head if isinstance(head, Missing) else Refused("exists", head.date_us)
        if answer.status == 416 and byte_range is not None:
            raise rules.range_past_end(key, byte_range)
        raise self._unexpected(answer, key)

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        rules.check_suffix_length(length)
        for _ in range(MAX_ATTEMPTS):
            head = self.head(key, version_id=version_id)
            if isinstance(head, Missing):
                return head
            info = head.info
            if info.size == 0:
                return head.empty()
            end = ByteRange(max(0, info.size - length), info.size)
            got = self.get(key, byte_range=end, if_match=info.etag, version_id=version_id)
            if not isinstance(got, Refused):
                return got
        raise StoreUnavailable("the object is overwritten again and again", key=key)

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        answer = self._ask(
            "HEAD",
            key,
            query=_version(version_id),
            outcomes=(400, 404),
            whole=lambda said: (_facts(said), int(said.headers["content-length"])),
        )
        if not answer.done:
            if _is_gone(answer, version_id):
                return Missing(answer.date_us)
            raise self._unexpected(answer, key)
        said = answer.headers
        etag, modified_us = _facts(answer)
        info = ObjectInfo(
            key,
            int(said["content-length"]),
            etag,
            modified_us,
            said.get("x-ms-version-id"),
            {
                _named(name.lower().removeprefix(_METADATA)): value
                for name, value in said.items()
                if name.lower().startswith(_METADATA)
            },
            {name: said[header] for name, header in _HEADERS.items() if said.get(header)},
            # Blob index tags: they are asked for apart, with a permission of their own.
            unread_tags=said.get("x-ms-tag-count", "0") != "0",
        )
        return Head(info, answer.date_us)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        after = None if start_after is None else start_after.encode()
        for blob in self._blobs(prefix):
            if after is None or blob.key.encode() > after:
                version_id = None if blob.version_id == NULL_VERSION else blob.version_id
                yield ObjectInfo(blob.key, blob.size, blob.etag, blob.modified_us, version_id)

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        for page in self._pages(prefix, delimiter="/"):
            for folder in page.iter("BlobPrefix"):
                yield _text(folder, "Name")

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
        rules.check_put_size(key, len(body), MAX_PUT_BYTES)
        content = body if isinstance(body, bytes) else bytes(body)
        answer = self._ask(
            "PUT",
            key,
            headers={
                "x-ms-blob-type": "BlockBlob",
                **_described(key, metadata, headers),
                **_condition(condition),
            },
            body=content,
            outcomes=() if condition is None else (404, 409, 412),
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            whole=_facts,
        )
        if answer.done:
            return _written(answer)
        return self._refused(key, answer, condition)

    def _refused(self, key: str, answer: Answer, condition: Condition) -> Refused:
        """The outcome of a conditional write."""
        if answer.status == 409 and answer.code in _EXISTS:
            return Refused("exists", answer.date_us)
        if answer.status == 409 and answer.code not in _HELD:
            return Refused("race", answer.date_us)
        if answer.status == 412 and answer.code in _UNMET:
            if not isinstance(condition, IfMatch):
                return Refused("exists", answer.date_us)
            # One answer for "another content" and "nothing".
            head = self.head(key)
            return Refused("exists" if isinstance(head, Head) else "missing", head.date_us)
        if answer.status == 404 and answer.code in _GONE:
            return Refused("missing", answer.date_us)
        raise self._unexpected(answer, key)

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        """Reads the source and writes it: a copy on the server cannot be bare, and a large one goes on
        after its answer, while its object is already visible and not yet whole."""
        rules.check_key(key)
        rules.check_scheme(source, self.scheme, "Azure")
        origin = self.at(source.bucket)
        head = origin.head(source.key, version_id=source.version_id)
        if isinstance(head, Missing):
            return head
        info = head.info
        if if_source_match is not None and info.etag != if_source_match:
            return Refused("exists", head.date_us)
        metadata = {} if bare else info.metadata
        headers = {} if bare else info.headers
        pieces = [
            ByteRange(start, min(start + _BLOCK_BYTES, info.size))
            for start in range(0, info.size, _BLOCK_BYTES)
        ]
        upload_id = None
        parts: list[Part] = []
        for number, piece in enumerate(pieces, 1):
            original = origin.get(
                source.key, byte_range=piece, if_match=info.etag, version_id=source.version_id
            )
            if not isinstance(original, Got):
                return original
            if len(pieces) == 1:
                return self.put(
                    key, original.body, condition=condition, metadata=metadata, headers=headers
                )
            upload_id = upload_id or self.create_multipart(key, metadata=metadata, headers=headers)
            parts.append(self.upload_part(key, upload_id, number, original.body))
        if upload_id is None:
            return self.put(key, b"", condition=condition, metadata=metadata, headers=headers)
        return self.complete_multipart(key, upload_id, parts, condition=condition)

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        named = list(keys)
        for key in named:
            _check_segments(key)
        whole = {"x-ms-delete-snapshots": "include"}
        return rest.delete_each(
            lambda key, _: self._delete(key, {}, whole), [(key, None) for key in named]
        )

    def delete_unchanged(self, objects: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        def delete(key: str, etag: str | None) -> None:
            condition = {"If-Match": http_rules.quoted_etag(etag or "")}
            self._delete(key, {}, {"x-ms-delete-snapshots": "include", **condition})

        return rest.delete_each(delete, list(objects))

    def _delete(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> None:
        answer = self._ask(
            "DELETE",
            key,
            query=query,
            headers=headers,
            outcomes=(404, 409, 412) if "If-Match" in headers else (404, 409),
            whole=rest.no_body,
        )
        if answer.status == 404 and answer.code not in _GONE:
            raise self._unexpected(answer, key)
        if answer.status == 409:
            raise self._unexpected(answer, key)

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        rules.check_key(key)
        described = _described(key, metadata, headers)
        upload_id = uuid.uuid4().hex
        self._put_block(key, _block(upload_id, 0), b"\n")
        if described:
            upload_id += "." + base64.urlsafe_b64encode(json.dumps(described).encode()).decode()
        return upload_id

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        """An aborted upload is noticed at its completion (`Missing`), not here. A part that is sent again
        is another part: the one that is listed is the one that is used."""
        rules.check_part(key, number, len(body))
        content = body if isinstance(body, bytes) else bytes(body)
        block = _block(upload_id, number)
        self._put_block(key, block, content)
        return Part(number, f"{block}.{len(content)}")

    def _put_block(self, key: str, block: str, body: bytes) -> None:
        query = {"comp": "block", "blockid": block}
        self._ask("PUT", key, query=query, body=body, whole=rest.no_body)

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
        raise http_rules.no_range_copies(key, "Azure")

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: Condition = None
    ) -> Written | Refused | Missing:
        held = {part.number: _staged(key, upload_id, part) for part in parts}
        rules.check_completion(key, parts, held)
        # "Uncommitted", not "Latest": a second completion must not write the blob again.
        blocks = (f"<Uncommitted>{part.etag.partition('.')[0]}</Uncommitted>" for part in parts)
        _, _, described = upload_id.partition(".")
        headers = json.loads(base64.urlsafe_b64decode(described)) if described else {}
        answer = self._commit(key, "".join(blocks), headers, condition)
        if answer.done:
            return _written(answer)
        if answer.status == 400 and answer.code in _NO_BLOCKS:
            return Missing(answer.date_us)
        if condition is None:
            raise self._unexpected(answer, key)
        return self._refused(key, answer, condition)

    def _commit(
        self, key: str, blocks: str, headers: Mapping[str, str], condition: Condition
    ) -> Answer:
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'
        return self._ask(
            "PUT",
            key,
            query={"comp": "blocklist"},
            headers={"Content-Type": "application/xml", **headers, **_condition(condition)},
            body=body.encode(),
            outcomes=(400, 404, 409, 412),
            attempts=1 if isinstance(condition, IfMatch) else MAX_ATTEMPTS,
            whole=_facts,
        )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """The uncommitted blocks of a blob that exists cannot be dropped without writing it again: the
        service drops them after a week."""
        if upload_id.partition(".")[0] not in self._uploads_to(key):
            return
        empty = self._commit(key, "", {}, IF_ABSENT)
        if empty.done:
            pinned = {
                "If-Match": http_rules.quoted_etag(_facts(empty)[0]),
                "x-ms-delete-snapshots": "include",
            }
            self._delete(key, {}, pinned)

    def _uploads_to(self, key: str) -> Sequence[str]:
        """The unfinished uploads to a blob, by their blocks."""
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        answer = self._ask("GET", key, query=query, outcomes=(404,), whole=_blocks)
        if not answer.done:
            return ()
        names = (_text(block, "Name") for block in _blocks(answer))
        return sorted({u for name in names if (u := _upload_of(name)) is not None})

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        for blob in self._blobs(prefix, include="uncommittedblobs"):
            if blob.size == 0:  # what is committed is seldom empty
                for upload_id in self._uploads_to(blob.key):
                    yield Upload(blob.key, upload_id, blob.modified_us)

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        yield from self._blobs(prefix, include="deleted,snapshots,versions")

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        def held(version_id: str) -> str | None:
            if not version_id.startswith(_SOFT):
                return None
            days = version_id.removeprefix(_SOFT).partition(":")[0]
            return f"the account's soft delete keeps it for {days} more days"

        def delete(key: str, version_id: str | None) -> None:
            whole = version_id == NULL_VERSION
            headers = {"x-ms-delete-snapshots": "include"} if whole else {}
            self._delete(key, _version(version_id), headers)

        return rest.delete_versions(delete, versions, held)

    # -- requests -----------------------------------------------------------------------------

    def _ask(self, method: str, key: str | None, **how: Any) -> Answer:
        path = f"/{quote(self._container, safe='')}"
        if key is not None:
            _check_segments(key)
            path += f"/{quote(key, safe='/~')}"
        answer = self._line.ask(method, path, key=key, **how)
        if answer.code == "ContainerNotFound":
            raise self._unexpected(answer, key)
        return answer

    def _unexpected(self, answer: Answer, key: str | None) -> InlayError:
        error = self._line.unexpected(answer, key)
        if answer.status == 409 and answer.code in _HELD:
            return InvalidRequest(error.message, key=key, next_step="Release the blob, or wait")
        return error

    def _blobs(self, prefix: str, *, include: str | None = None) -> Iterator[ObjectVersion]:
        """The blobs of a listing, as versions, in order of their keys' UTF-8 bytes."""
        return http_rules.in_key_order(self._line.place, self._in_utf8(prefix, include))

    def _in_utf8(self, prefix: str, include: str | None) -> Iterator[ObjectVersion]:
        # Listed in order of UTF-16: other than in UTF-8 for the characters from U+E000 on. Those with the
        # same text before the first such character are neighbours in both orders.
        for before, blobs in itertools.groupby(self._listed(prefix, include), _before_high):
            if before is not None:
                blobs = iter(sorted(blobs, key=lambda blob: blob.key.encode()))
            yield from blobs

    def _listed(self, prefix: str, include: str | None) -> Iterator[ObjectVersion]:
        for page in self._pages(prefix, include=include):
            for element in page.iter("Blob"):
                if (blob := _version_in(element)) is not None:
                    yield blob

    def _pages(self, prefix: str, **how: str | None) -> Iterator[ElementTree.Element]:
        marker: str | None = None
        while True:  # ends with the listing: each page begins where the last one stopped
            answer = self._ask(
                "GET",
                None,
                query={
                    "restype": "container",
                    "comp": "list",
                    "prefix": prefix or None,
                    "marker": marker,
                    **how,
                },
                whole=_listed_blobs,
            )
            page = _listed_blobs(answer)
            yield page
            following = _text(page, "NextMarker")
            if not following:
                return
            http_rules.check_goes_on(self._line.place, marker, following)
            marker = following


def _sign(
    account: str, endpoint: str, request: Request
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return azure_account.sign(account, endpoint, request, email.utils.formatdate(usegmt=True))


# -- arguments ------------------------------------------------------------------------------------


def _check_segments(key: str) -> None:
    """A path's segments "." and ".." and its backslashes do not survive the way to the service."""
    if "\\" in key or not {".", ".."}.isdisjoint(key.split("/")):
        raise InvalidRequest(
            f"{key!r} has a backslash or a segment of dots alone, which Azure does not take",
            key=key,
            next_step="Use another key",
        )


def _condition(condition: Condition) -> dict[str, str]:
    match condition:
        case None:
            return {}
        case IfAbsent():
            return {"If-None-Match": "*"}
        case IfMatch(etag):
            return {"If-Match": http_rules.quoted_etag(etag)}


def _version(version_id: str | None) -> dict[str, str]:
    if version_id is None or version_id == NULL_VERSION:
        return {}
    if version_id.startswith(_SNAPSHOT):
        return {"snapshot": version_id.removeprefix(_SNAPSHOT)}
    return {"versionid": version_id}


def _described(
    key: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> dict[str, str]:
    """The request headers that set what is kept with a blob."""
    kept, kept_headers = rules.check_headers(key, metadata, headers)
    described = {
        f"x-ms-blob-{_HEADERS[name]}": value
        for name, value in http_rules.kept_by(key, kept_headers, _HEADERS, "abfss://").items()
    }
    # Names are C# identifiers there: no dash.
    return described | {_METADATA + name.replace("-", "__"): v for name, v in kept.items()}


def _named(name: str) -> str:
    return name.replace("__", "-")


def _block(upload_id: str, number: int) -> str:
    """A new id of a block: all of one blob have the same length."""
    name = f"{upload_id.partition('.')[0]}-{number:05d}-{uuid.uuid4().hex[:10]}"
    return base64.b64encode(name.encode()).decode()


def _upload_of(block: str) -> str | None:
    """The upload that a block is of; None for a block of another writer."""
    try:
        name = base64.b64decode(block, validate=True).decode()
    except ValueError:
        return None
    upload_id, dash, _ = name.partition("-")
    return upload_id if dash and len(upload_id) == 32 else None


def _staged(key: str, upload_id: str, part: Part) -> rules.StagedPart:
    """A part, as its own ETag describes it."""
    block, _, size = part.etag.partition(".")
    try:
        name = base64.b64decode(block, validate=True).decode()
        ours = name.startswith(f"{upload_id.partition('.')[0]}-{part.number:05d}-")
        return rules.StagedPart(part.etag if ours else "", int(size))
    except ValueError:
        return rules.StagedPart("", 0)


# -- answers --------------------------------------------------------------------------------------


def _facts(answer: Answer) -> tuple[str, int]:
    """(ETag, LastModified)."""
    when = email.utils.parsedate_to_datetime(answer.headers["last-modified"])
    return http_rules.bare_etag(answer.headers["etag"]), rest.microseconds(when)


def _written(answer: Answer) -> Written:
    return Written(_facts(answer)[0], answer.date_us, answer.headers.get("x-ms-version-id"))


def _got(answer: Answer, body: bytes) -> Got:
    etag, modified_us = _facts(answer)
    size, version_id = rest.size_of(answer.headers), answer.headers.get("x-ms-version-id")
    return Got(body, size, etag, modified_us, answer.date_us, version_id)


def _is_gone(answer: Answer, version_id: str | None) -> bool:
    """No such blob, or no such version: an id that never was one is an invalid value."""
    if answer.status == 400:
        return version_id is not None
    return answer.status == 404 and answer.code in _GONE


def _listed_blobs(answer: Answer) -> ElementTree.Element:
    return _xml(answer, "EnumerationResults")


def _blocks(answer: Answer) -> Iterator[ElementTree.Element]:
    return _xml(answer, "BlockList").iter("Block")


def _xml(answer: Answer, document: str) -> ElementTree.Element:
    """Raises `ValueError` also for another document: it would be read as a list of nothing."""
    try:
        root = ElementTree.fromstring(answer.body.removeprefix(b"\xef\xbb\xbf"))
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML: {error}") from error
    if root.tag != document:
        raise ValueError(f"a document <{root.tag[:40]}> in place of <{document}>")
    return root


_HIGH: Final = re.compile(r"[\ue000-\U0010ffff]")


def _before_high(blob: ObjectVersion) -> str | None:
    high = _HIGH.search(blob.key)
    return None if high is None else blob.key[: high.start()]


def _text(parent: ElementTree.Element, name: str) -> str:
    child = parent.find(name)
    return "" if child is None else child.text or ""


def _version_in(blob: ElementTree.Element) -> ObjectVersion | None:
    """A blob of a listing; None for a folder of an account with a hierarchical namespace."""
    facts = blob.find("Properties")
    if facts is None or _text(facts, "ResourceType") == "directory":
        return None
    etag = http_rules.bare_etag(_text(facts, "Etag"))
    when = _text(facts, "Last-Modified")
    version_id, snapshot = _text(blob, "VersionId"), _text(blob, "Snapshot")
    soft = _text(blob, "Deleted") == "true"
    name = blob.find("Name")
    key = _text(blob, "Name")
    if name is not None and name.get("Encoded") == "true":  # not a text of XML
        key = unquote(key)
    version = ObjectVersion(
        key,
        version_id or NULL_VERSION,
        int(_text(facts, "Content-Length") or 0),
        rest.microseconds(email.utils.parsedate_to_datetime(when)) if when else 0,
        is_latest=not (
            soft or snapshot or (version_id and _text(blob, "IsCurrentVersion") != "true")
        ),
        marker=False,
        etag=etag,
    )
    if snapshot:
        version = replace(version, version_id=_SNAPSHOT + snapshot)
    if soft:
        days = _text(facts, "RemainingRetentionDays")
        version = replace(version, version_id=f"{_SOFT}{days}:{snapshot or version_id or when}")
    return version

"""A server of Google Cloud Storage's JSON API, as far as Inlay uses it, written from its reference.

Promise: one lock decides every request, so conditions are checked and applied in one step, as the service
promises (`ifGenerationMatch`; 0: nothing is there); every content gets a generation that was never used.
What it does not know it refuses with 501. The emulators that registries offer take no conditions on writes
(measured: docs/STORES.md), so none of them can carry a table.

    python tests/store/gcs_server.py        # prints its URL, serves until its input ends
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]
_FIELDS = {
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "metadata",
    "storageClass",
}


class Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status, self.reason, self.message = status, reason, message


def _not_found(name: str) -> Refusal:
    return Refusal(404, "notFound", f"No such object: {name}")


@dataclass
class Content:
    resource: Json
    body: bytes


@dataclass
class Bucket:
    name: str
    versioning: bool = False
    soft_seconds: int | None = None
    live: dict[str, Content] = field(default_factory=dict)
    noncurrent: list[Content] = field(default_factory=list)
    soft: list[Content] = field(default_factory=list)


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Service:
    """The state; every method runs under the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.buckets: dict[str, Bucket] = {}
        self._generation = time.time_ns() // 1_000

    # -- buckets ------------------------------------------------------------------------------

    def bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise Refusal(404, "notFound", "The specified bucket does not exist.")
        return self.buckets[name]

    def set_bucket(self, name: str, body: Json) -> Json:
        bucket = self.buckets.setdefault(name, Bucket(name))
        if "versioning" in body:
            bucket.versioning = body["versioning"]["enabled"]
        if "softDeletePolicy" in body:
            bucket.soft_seconds = int(body["softDeletePolicy"]["retentionDurationSeconds"])
        return {"kind": "storage#bucket", "name": name}

    # -- objects ------------------------------------------------------------------------------

    def find(self, bucket: Bucket, name: str, query: dict[str, str]) -> Content:
        found = bucket.live.get(name)
        if (asked := query.get("generation") or query.get("sourceGeneration")) is not None:
            kept = [c for c in bucket.noncurrent if c.resource["name"] == name]
            every = [*kept, *([found] if found else [])]
            found = next((c for c in every if c.resource["generation"] == asked), None)
        if found is None:
            raise _not_found(f"{bucket.name}/{name}")
        wanted = query.get("ifGenerationMatch")
        if wanted is not None and found.resource["generation"] != wanted:
            raise Refusal(
                412, "conditionNotMet", "At least one of the pre-conditions did not hold."
            )
        return found

    def write(
        self, bucket: Bucket, name: str, body: bytes, given: Json, query: dict[str, str]
    ) -> Json:
        if not 1 <= len(name.encode()) <= 1024:
            raise Refusal(400, "invalid", "Invalid object name")
        there = bucket.live.get(name)
        wanted = query.get("ifGenerationMatch")
        if wanted is not None and wanted != (there.resource["generation"] if there else "0"):
            raise Refusal(
                412, "conditionNotMet", "At least one of the pre-conditions did not hold."
            )
        if there is not None:
            self._put_away(bucket, there)
        now = time.time()
        self._generation = max(self._generation + 1, int(now * 1_000_000))
        kept = {key: value for key, value in given.items() if key in _FIELDS and value}
        resource = {
            "kind": "storage#object",
            "bucket": bucket.name,
            "name": name,
            "generation": str(self._generation),
            "metageneration": "1",
            "size": str(len(body)),
            "md5Hash": base64.b64encode(hashlib.md5(body).digest()).decode(),
            "timeCreated": _stamp(now),
            "updated": _stamp(now),
            **kept,
        }
        bucket.live[name] = Content(resource, body)
        return resource

    def _put_away(self, bucket: Bucket, old: Content, *, for_good: bool = False) -> None:
        """What becomes of a content that is no longer live, or of a version that is deleted."""
        now = time.time()
        if bucket.versioning and not for_good:
            old.resource["timeDeleted"] = _stamp(now)
            bucket.noncurrent.append(old)
        elif bucket.soft_seconds:
            old.resource["softDeleteTime"] = _stamp(now)
            old.resource["hardDeleteTime"] = _stamp(now + bucket.soft_seconds)
            bucket.soft.append(old)

    def delete(self, bucket: Bucket, name: str, query: dict[str, str]) -> None:
        found = self.find(bucket, name, query)
        if bucket.live.get(name) is found:
            del bucket.live[name]
        else:
            bucket.noncurrent.remove(found)
        self._put_away(bucket, found, for_good="generation" in query)

    def list(self, bucket: Bucket, query: dict[str, str]) -> Json:
        found = list(bucket.live.values())
        if query.get("versions") == "true":
            found += bucket.noncurrent
        if query.get("softDeleted") == "true":
            if bucket.soft_seconds is None:
                raise Refusal(412, "conditionNotMet", "The bucket has no soft delete policy.")
            now = _stamp(time.time())
            bucket.soft = [c for c in bucket.soft if c.resource["hardDeleteTime"] > now]
            found = bucket.soft

        def place(resource: Json) -> tuple[bytes, int]:
            return resource["name"].encode(), int(resource["generation"])

        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        start = query.get("startOffset", "").encode()
        every = sorted((c.resource for c in found), key=place)
        every = [r for r in every if r["name"].startswith(prefix) and r["name"].encode() >= start]
        prefixes: dict[str, None] = {}
        if delimiter:
            below = [(r, r["name"][len(prefix) :].partition(delimiter)) for r in every]
            prefixes = {prefix + parts[0] + delimiter: None for _, parts in below if parts[1]}
            every = [r for r, parts in below if not parts[1]]
        at, most = int(query.get("pageToken", "0")), int(query.get("maxResults", "1000"))
        page: Json = {"kind": "storage#objects", "items": every[at : at + most]}
        if at == 0 and prefixes:
            page["prefixes"] = list(prefixes)
        if at + most < len(every):
            page["nextPageToken"] = str(at + most)
        return page

    def rewrite(self, source: Content, target: Bucket, name: str, given: Json, query: Any) -> Json:
        wanted = query.get("ifSourceGenerationMatch")
        if wanted is not None and source.resource["generation"] != wanted:
            raise Refusal(412, "conditionNotMet", "The source's pre-condition did not hold.")
        made = self.write(target, name, source.body, given or source.resource, query)
        return {"kind": "storage#rewriteResponse", "done": True, "resource": made}

    def compose(self, bucket: Bucket, name: str, given: Json, query: dict[str, str]) -> Json:
        if not 1 <= len(given["sourceObjects"]) <= 32:
            raise Refusal(400, "invalid", "The number of source components must be 1 to 32.")
        bodies = [
            self.find(bucket, each["name"], {"generation": each["generation"]}).body
            for each in given["sourceObjects"]
        ]
        return self.write(bucket, name, b"".join(bodies), given.get("destination", {}), query)


_OBJECT = re.compile(
    r"/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>[^/]+)"
    r"(?P<rest>/compose|/rewriteTo/b/(?P<to>[^/]+)/o/(?P<as>[^/]+))?"
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    service: Service

    def log_message(self, *args: object) -> None:
        pass

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {k: v[-1] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers: dict[str, str] = {"Content-Type": "application/json"}
        try:
            with self.service.lock:
                status, answer = self._answer(url.path, query, body, headers)
        except Refusal as error:
            status = error.status
            reasons = [{"reason": error.reason, "message": error.message}]
            said = {"error": {"code": status, "message": error.message, "errors": reasons}}
            answer = json.dumps(said).encode()
        self.send_response_only(status)
        self.send_header("Date", formatdate(usegmt=True))
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if status != 204:
            self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815

    def _answer(
        self, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        service = self.service
        if self.command == "POST" and path == "/storage/v1/b":
            said = json.loads(body)
            return 200, json.dumps(service.set_bucket(said["name"], said)).encode()
        if (found := re.fullmatch(r"/storage/v1/b/([^/]+)", path)) and self.command == "PATCH":
            return 200, json.dumps(service.set_bucket(found[1], json.loads(body))).encode()
        if (found := re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", path)) is not None:
            return 200, self._upload(service.bucket(found[1]), query, body)
        if (found := re.fullmatch(r"/storage/v1/b/([^/]+)/o", path)) is not None:
            return 200, json.dumps(service.list(service.bucket(found[1]), query)).encode()
        if (found := _OBJECT.fullmatch(path)) is None:
            raise Refusal(501, "notImplemented", f"{self.command} {path}")
        bucket, name = service.bucket(found["bucket"]), unquote(found["name"])
        given = json.loads(body) if body else {}
        if found["to"]:
            source = service.find(
                bucket, name, {k: query[k] for k in query if k == "sourceGeneration"}
            )
            target = service.bucket(found["to"])
            made = service.rewrite(source, target, unquote(found["as"]), given, query)
            return 200, json.dumps(made).encode()
        if found["rest"]:
            return 200, json.dumps(service.compose(bucket, name, given, query)).encode()
        if self.command == "DELETE":
            service.delete(bucket, name, query)
            return 204, b""
        content = service.find(bucket, name, query)
        if query.get("alt") != "media":
            return 200, json.dumps(content.resource).encode()
        return self._media(content, headers)

    def _upload(self, bucket: Bucket, query: dict[str, str], body: bytes) -> bytes:
        kind = self.headers["content-type"]
        given: Json = {"name": query.get("name"), "contentType": kind}
        if query["uploadType"] == "multipart":
            mark = b"--" + kind.partition("boundary=")[2].encode()
            head, _, rest = body.removeprefix(mark + b"\r\n").partition(b"\r\n" + mark + b"\r\n")
            given = json.loads(head.partition(b"\r\n\r\n")[2])
            media, _, body = rest.removesuffix(b"\r\n" + mark + b"--\r\n").partition(b"\r\n\r\n")
            given.setdefault("contentType", media.partition(b": ")[2].decode())
        elif query["uploadType"] != "media":
            raise Refusal(501, "notImplemented", query["uploadType"])
        return json.dumps(self.service.write(bucket, given["name"], body, given, query)).encode()

    def _media(self, content: Content, headers: dict[str, str]) -> tuple[int, bytes]:
        body, resource = content.body, content.resource
        headers["Content-Type"] = resource.get("contentType", "application/octet-stream")
        headers["X-Goog-Generation"] = resource["generation"]
        updated = datetime.fromisoformat(resource["updated"]).timestamp()
        headers["Last-Modified"] = formatdate(updated, usegmt=True)
        asked = self.headers.get("range")
        if asked is None:
            return 200, body
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        if start >= end:
            raise Refusal(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        return 206, body[start:end]


class GcsServer(ThreadingHTTPServer):
    """On a free port of 127.0.0.1, in a thread of this process."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.service = Service()
        super().__init__(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": self.service}))
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    running = GcsServer()
    print(running.url, flush=True)
    sys.stdin.read()
    running.shutdown()

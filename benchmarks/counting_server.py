"""An S3 server that counts: in a process of its own, in memory, atomic, as far away as one likes.

Promise: every request is logged with its operation, key, bytes both ways and when it began and ended, after
which `Usage` of any stretch of the log is exact. Conditions are checked and applied in one step. `latency`
is added to each request before it is answered, so that round trips cost here what they cost elsewhere.

It knows what the benchmarked libraries ask for and nothing more: objects (ranges, conditions, copies),
listings, batch deletes, multipart uploads. Signatures are not checked.

    with CountingServer(latency_ms=20) as server:
        server.env()            # for libraries that read AWS_* variables
        server.clear()
        ...
        server.usage()          # Usage(requests={"GetObject": 3}, bytes_up=0, bytes_down=…, depth=2)
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

CONTROL = "/_bench/"
PAGE_ITEMS = 1_000


@dataclass(frozen=True)
class Logged:
    """One request as the server saw it; times in seconds."""

    operation: str
    key: str
    bytes_in: int
    bytes_out: int
    began: float
    ended: float


@dataclass(frozen=True)
class Usage:
    """What was asked for. `depth` is the longest chain of requests each of which began after the one
    before had been answered: the round trips that latency multiplies."""

    requests: Mapping[str, int]
    bytes_up: int
    bytes_down: int
    depth: int

    @property
    def total(self) -> int:
        return sum(self.requests.values())


def usage_of(log: Sequence[Logged]) -> Usage:
    # By beginnings, with ends sorted beside them: each request is one deeper than the deepest that had
    # ended when it began.
    ends: list[tuple[float, int]] = []
    deepest = 0
    done = 0
    for request in sorted(log, key=lambda r: r.began):
        ends.sort()
        while done < len(ends) and ends[done][0] <= request.began:
            deepest = max(deepest, ends[done][1])
            done += 1
        ends.append((request.ended, deepest + 1))
    return Usage(
        dict(Counter(r.operation for r in log)),
        sum(r.bytes_in for r in log),
        sum(r.bytes_out for r in log),
        max((depth for _, depth in ends), default=0),
    )


# -- the server -----------------------------------------------------------------------------------


@dataclass
class _Object:
    body: bytes
    etag: str
    modified: float
    headers: dict[str, str]


@dataclass
class _Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """bucket/key"""
        return unquote(self.path).lstrip("/")


@dataclass
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None  # of what a HEAD does not send


_PHRASES = {200: "OK", 204: "No Content", 206: "Partial Content", 304: "Not Modified"}


def _error(status: int, code: str) -> _Answer:
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return _Answer(status, body, {"Content-Type": "application/xml"})


class _Store:
    """The objects, by bucket/key. Every method runs in one step of the event loop: it is atomic."""

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes], dict[str, str]]] = {}

    def answer(self, request: _Request) -> tuple[str, _Answer]:
        query, method = request.query, request.method
        bucket, _, key = request.key.partition("/")
        if not key:
            if method == "POST" and "delete" in query:
                return "DeleteObjects", self._delete_many(bucket, request)
            if method == "GET" and "location" in query:
                return "GetBucketLocation", _Answer(body=b"<LocationConstraint/>")
            if method == "GET" and "uploads" in query:
                return "ListMultipartUploads", _Answer(body=b"<ListMultipartUploadsResult/>")
            if method == "GET":
                return "ListObjectsV2", self._list(bucket, query)
            return "HeadBucket", _Answer(headers={"x-amz-bucket-region": "us-east-1"})
        if method == "POST":
            if "uploads" in query:
                return "CreateMultipartUpload", self._create_upload(request)
            return "CompleteMultipartUpload", self._complete(request)
        if method == "PUT":
            if "partNumber" in query:
                copied = "x-amz-copy-source" in request.headers
                return "UploadPartCopy" if copied else "UploadPart", self._part(request)
            copied = "x-amz-copy-source" in request.headers
            return "CopyObject" if copied else "PutObject", self._put(request)
        if method == "DELETE":
            if "uploadId" in query:
                self.uploads.pop(query["uploadId"], None)
                return "AbortMultipartUpload", _Answer(204)
            self.objects.pop(request.key, None)
            return "DeleteObject", _Answer(204)
        return "HeadObject" if method == "HEAD" else "GetObject", self._get(request)

    # -- objects ------------------------------------------------------------------------------

    def _get(self, request: _Request) -> _Answer:
        found = self.objects.get(request.key)
        if found is None:
            return _error(404, "NoSuchKey")
        wanted = request.headers.get("if-match")
        if wanted not in (None, "*", found.etag):
            return _error(412, "PreconditionFailed")
        if request.headers.get("if-none-match") == found.etag:
            return _Answer(304, headers={"ETag": found.etag})
        headers = {
            "ETag": found.etag,
            "Last-Modified": formatdate(found.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "Content-Type": "binary/octet-stream",
            **found.headers,
        }
        size = len(found.body)
        asked = request.headers.get("range")
        if asked is None:
            if request.method == "HEAD":
                return _Answer(headers=headers, length=size)
            return _Answer(200, found.body, headers)
        start, end = _range(asked, size)
        if start >= end:
            return _error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        if request.method == "HEAD":
            return _Answer(206, headers=headers, length=end - start)
        return _Answer(206, found.body[start:end], headers)

    def _refused(self, request: _Request) -> _Answer | None:
        found = self.objects.get(request.key)
        if request.headers.get("if-none-match") == "*" and found is not None:
            return _error(412, "PreconditionFailed")
        wanted = request.headers.get("if-match")
        if wanted is not None and found is None:
            return _error(404, "NoSuchKey")
        if wanted is not None and found is not None and wanted != found.etag:
            return _error(412, "PreconditionFailed")
        return None

    def _put(self, request: _Request) -> _Answer:
        refused = self._refused(request)
        if refused is not None:
            return refused
        kept = {n: v for n, v in request.headers.items() if n.startswith("x-amz-meta-")}
        source = request.headers.get("x-amz-copy-source")
        if source is None:
            return self._store(request.key, request.body, kept)
        found = self.objects.get(unquote(source).partition("?")[0].lstrip("/"))
        if found is None:
            return _error(404, "NoSuchKey")
        if request.headers.get("x-amz-copy-source-if-match") not in (None, found.etag):
            return _error(412, "PreconditionFailed")
        self._store(request.key, found.body, kept or found.headers)
        return _copied("CopyObjectResult", self.objects[request.key].etag)

    def _store(self, key: str, body: bytes, headers: dict[str, str], etag: str = "") -> _Answer:
        etag = etag or f'"{hashlib.md5(body).hexdigest()}"'
        self.objects[key] = _Object(body, etag, time.time(), headers)
        return _Answer(headers={"ETag": etag})

    def _delete_many(self, bucket: str, request: _Request) -> _Answer:
        found = ["<DeleteResult>"]
        for element in ElementTree.fromstring(request.body).iter():
            if element.tag.endswith("Key"):
                self.objects.pop(f"{bucket}/{element.text}", None)
                found.append(f"<Deleted><Key>{escape(element.text or '')}</Key></Deleted>")
        return _Answer(body="".join([*found, "</DeleteResult>"]).encode())

    def _list(self, bucket: str, query: dict[str, str]) -> _Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = int(query.get("max-keys", PAGE_ITEMS))
        items: list[str] = []
        last, cut = "", False
        seen: set[str] = set()
        for name in sorted(k for k in self.objects if k.startswith(f"{bucket}/{prefix}")):
            key = name.removeprefix(f"{bucket}/")
            inside, found, _ = (
                key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            )
            group = f"{prefix}{inside}{delimiter}" if found else ""
            at = group or key
            if at <= after or at in seen:
                continue
            if len(items) >= most:
                cut = True
                break
            seen.add(at)
            last = at
            items.append(
                f"<CommonPrefixes><Prefix>{escape(group)}</Prefix></CommonPrefixes>"
                if group
                else _listed(key, self.objects[name])
            )
        more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if cut else ""
        body = (
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(items)}</KeyCount><MaxKeys>{most}</MaxKeys>"
            f"<IsTruncated>{str(cut).lower()}</IsTruncated>{more}{''.join(items)}</ListBucketResult>"
        )
        return _Answer(body=body.encode(), headers={"Content-Type": "application/xml"})

    # -- uploads in parts ---------------------------------------------------------------------

    def _create_upload(self, request: _Request) -> _Answer:
        name = f"upload{len(self.uploads)}-{time.monotonic_ns()}"
        kept = {n: v for n, v in request.headers.items() if n.startswith("x-amz-meta-")}
        self.uploads[name] = (request.key, {}, kept)
        bucket, _, key = request.key.partition("/")
        body = (
            f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        )
        return _Answer(body=body.encode())

    def _part(self, request: _Request) -> _Answer:
        upload = self.uploads.get(request.query["uploadId"])
        if upload is None:
            return _error(404, "NoSuchUpload")
        body = request.body
        source = request.headers.get("x-amz-copy-source")
        if source is not None:
            found = self.objects.get(unquote(source).partition("?")[0].lstrip("/"))
            if found is None:
                return _error(404, "NoSuchKey")
            if request.headers.get("x-amz-copy-source-if-match") not in (None, found.etag):
                return _error(412, "PreconditionFailed")
            start, end = 0, len(found.body)
            if "x-amz-copy-source-range" in request.headers:
                start, end = _range(request.headers["x-amz-copy-source-range"], len(found.body))
            body = found.body[start:end]
        upload[1][int(request.query["partNumber"])] = body
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        return (
            _Answer(headers={"ETag": etag}) if source is None else _copied("CopyPartResult", etag)
        )

    def _complete(self, request: _Request) -> _Answer:
        upload = self.uploads.get(request.query["uploadId"])
        if upload is None:
            return _error(404, "NoSuchUpload")
        refused = self._refused(request)
        if refused is not None:
            return refused
        key, parts, headers = self.uploads.pop(request.query["uploadId"])
        listed = [
            int(e.text or 0)
            for e in ElementTree.fromstring(request.body).iter()
            if e.tag.endswith("PartNumber")
        ]
        body = b"".join(parts[n] for n in listed)
        etag = f'"{hashlib.md5(body).hexdigest()}-{len(listed)}"'
        self._store(key, body, headers, etag)
        found = f"<ETag>{escape(etag)}</ETag>"
        return _Answer(
            body=f"<CompleteMultipartUploadResult>{found}</CompleteMultipartUploadResult>".encode()
        )


def _listed(key: str, found: _Object) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.modified))
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{moment}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.body)}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def _copied(element: str, etag: str) -> _Answer:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    inside = f"<ETag>{escape(etag)}</ETag><LastModified>{moment}</LastModified>"
    return _Answer(body=f"<{element}>{inside}</{element}>".encode())


def _range(header: str, size: int) -> tuple[int, int]:
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _unchunked(body: bytes) -> bytes:
    """The payload of an `aws-chunked` body."""
    found: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        length = int(body[at:end].partition(b";")[0], 16)
        if not length:
            return b"".join(found)
        found.append(body[end + 2 : end + 2 + length])
        at = end + 2 + length + 2


class _Server:
    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.stream = 0.0  # bytes a second of one connection; 0: all that there are
        self.store = _Store()
        self.log: list[Logged] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        began = time.monotonic()
        line, *rest = head.split("\r\n")
        method, target, _ = line.split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (h.partition(":") for h in rest if h)
        }
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b""
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            body = await self._chunks(reader)
        if "aws-chunked" in headers.get("content-encoding", "") or headers.get(
            "x-amz-content-sha256", ""
        ).startswith("STREAMING-"):
            body = _unchunked(body)
        path, _, query = target.partition("?")
        if path.startswith(CONTROL):
            answer = self._control(path.removeprefix(CONTROL), body)
        else:
            request = _Request(
                method, path, dict(parse_qsl(query, keep_blank_values=True)), headers, body
            )
            if self.latency:
                await asyncio.sleep(self.latency)
            operation, answer = self.store.answer(request)
            if self.stream:
                await asyncio.sleep(len(answer.body) / self.stream)
            ended = time.monotonic()
            sent = 0 if method == "HEAD" else len(answer.body)
            self.log.append(Logged(operation, request.key, len(body), sent, began, ended))
        await self._send(writer, answer, method == "HEAD")
        return headers.get("connection", "").lower() != "close"

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        found = []
        while True:
            length = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
            found.append(await reader.readexactly(length))
            await reader.readexactly(2)
            if not length:
                return b"".join(found)

    async def _send(self, writer: asyncio.StreamWriter, answer: _Answer, is_head: bool) -> None:
        headers = {
            "Date": formatdate(usegmt=True),
            "x-amz-request-id": "bench",
            **answer.headers,
        }
        if answer.status != 204:
            length = answer.length if answer.length is not None else len(answer.body)
            headers["Content-Length"] = str(length)
        phrase = _PHRASES.get(answer.status, "Error")
        lines = [f"HTTP/1.1 {answer.status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if not is_head:
            writer.write(answer.body)
        await writer.drain()

    def _control(self, what: str, body: bytes) -> _Answer:
        if what == "clear":
            self.log.clear()
        elif what == "latency":
            self.latency = float(body)
        elif what == "stream":
            self.stream = float(body)
        elif what == "log":
            rows = [
                (r.operation, r.key, r.bytes_in, r.bytes_out, r.began, r.ended) for r in self.log
            ]
            return _Answer(body=json.dumps(rows).encode())
        return _Answer()


async def _run(latency: float) -> None:
    server = _Server(latency)
    # Bodies are read whole: the limit is only for heads.
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20)
    print(listening.sockets[0].getsockname()[1], flush=True)
    # The parent's end of standard input closes with it, however it ends.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# -- its client -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One action: counted at the server; CPU (user and system), wall and memory of this process. `peak_mb`
    is how far its memory rose above what it had before."""

    rows: int
    requests: int
    bytes_up: int
    bytes_down: int
    depth: int
    cpu_s: float
    wall_s: float
    peak_mb: float


def _status(name: str) -> int:
    """Bytes, of /proc/self/status; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(at.split()[1]) * 1024 for at in lines if at.startswith(name + ":")), 0)


def _reset_peak() -> int:
    """Forget the highest memory use so far; returns what is used now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


class CountingServer:
    """The server in a process of its own; ends with the `with` block, or with this process. With an
    `endpoint` it is one that somebody else has started."""

    def __init__(self, latency_ms: float = 0.0, *, endpoint: str = "") -> None:
        self._latency_ms = latency_ms
        self.endpoint = endpoint
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> CountingServer:
        if self.endpoint:
            return self
        command = [sys.executable, __file__, "--latency-ms", str(self._latency_ms)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ALLOW_HTTP": "true",
        }

    def clear(self) -> None:
        self._ask("clear")

    def set_latency(self, latency_ms: float) -> None:
        self._ask("latency", str(latency_ms / 1000))

    def set_stream(self, bytes_a_second: float) -> None:
        """What one connection brings at most; 0: no limit."""
        self._ask("stream", str(bytes_a_second))

    def log(self) -> list[Logged]:
        return [Logged(*row) for row in json.loads(self._ask("log"))]

    def usage(self) -> Usage:
        return usage_of(self.log())

    def measure(self, action: Callable[[], Any]) -> Measured:
        """What `action` costs. Its result, a number of rows, is part of what is measured."""
        gc.collect()
        before_bytes = _reset_peak()
        self.clear()
        before, started = time.process_time(), time.perf_counter()
        rows = action()
        wall, cpu = time.perf_counter() - started, time.process_time() - before
        used = self.usage()
        return Measured(
            rows=rows if isinstance(rows, int) else 0,
            requests=used.total,
            bytes_up=used.bytes_up,
            bytes_down=used.bytes_down,
            depth=used.depth,
            cpu_s=round(cpu, 4),
            wall_s=round(wall, 4),
            peak_mb=round(max(0, _status("VmHWM") - before_bytes) / 1e6, 1),
        )

    def measure_process(self, program: str) -> Measured:
        """The same of a Python process that does only this: CPU and wall from its start to its end."""
        self.clear()
        before, started = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            env={**os.environ, **self.env(), "PYTHONDONTWRITEBYTECODE": ""},
            stdout=subprocess.DEVNULL,
        )
        wall, after = time.perf_counter() - started, os.times()
        children = after.children_user + after.children_system
        used = self.usage()
        return Measured(
            rows=0,
            requests=used.total,
            bytes_up=used.bytes_up,
            bytes_down=used.bytes_down,
            depth=used.depth,
            cpu_s=round(children - before.children_user - before.children_system, 4),
            wall_s=round(wall, 4),
            peak_mb=0.0,
        )

    def _ask(self, what: str, body: str = "") -> bytes:
        url = self.endpoint + CONTROL + what
        with urllib.request.urlopen(url, data=body.encode()) as answer:
            return bytes(answer.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-ms", type=float, default=0.0)
    asyncio.run(_run(parser.parse_args().latency_ms / 1000))

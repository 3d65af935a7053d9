"""A client that dies while it sends leaves nothing behind, as on S3."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from inlay.storage.base import Missing, Written


def test_a_put_that_did_not_arrive_whole_is_not_stored(embedded_aws, s3_store):
    before = s3_store.put("pointer", b"whole")
    assert isinstance(before, Written)
    at = urlsplit(embedded_aws.endpoint_url)
    for key, sent in (("pointer", b""), ("pointer", b"par"), ("new", b"par")):
        with socket.create_connection((at.hostname, at.port), timeout=10) as wire:
            head = f"PUT /{s3_store.bucket}/{key} HTTP/1.1\r\nHost: {at.netloc}\r\n"
            wire.sendall(f"{head}Content-Length: 9\r\n\r\n".encode() + sent)
            wire.shutdown(socket.SHUT_WR)
            assert wire.recv(1) == b"", "an answer would say that it was stored"
    assert s3_store.get("pointer").body == b"whole"
    assert isinstance(s3_store.get("new"), Missing)

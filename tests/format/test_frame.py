"""Frames refuse everything that is not whole and unedited."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import CorruptTable, InlayError, NewerFormat
from inlay.format.codec import PLAIN_MAX_BYTES, decode_frame, encode_frame

SMALL = {"a": 1, "b": ["x", None, 2.5]}
LARGE = {"rows": [f"value {n}" for n in range(1000)]}


@pytest.mark.parametrize("body", [SMALL, LARGE])
def test_a_frame_comes_back_as_it_went(body):
    data = encode_frame("files", body)
    assert decode_frame("files", data, key="k") == body
    assert data == encode_frame("files", body), "equal values must give equal bytes"


def test_small_frames_are_plain_and_large_ones_gzip():
    assert encode_frame("files", SMALL).startswith(b'{"inlay":1,"kind":"files"')
    large = encode_frame("files", LARGE)
    assert large[:2] == b"\x1f\x8b"
    assert len(gzip.decompress(large)) > PLAIN_MAX_BYTES


@pytest.mark.parametrize("body", [SMALL, LARGE])
def test_every_truncation_is_refused(body):
    data = encode_frame("files", body)
    for length in range(0, len(data), max(1, len(data) // 200)):
        with pytest.raises(CorruptTable) as caught:
            decode_frame("files", data[:length], key="manifest/x")
        assert "manifest/x" in str(caught.value)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_every_changed_byte_is_refused(data):
    for body in (SMALL, LARGE):
        frame = bytearray(encode_frame("files", body))
        at = data.draw(st.integers(0, len(frame) - 1))
        flip = data.draw(st.integers(1, 255))
        frame[at] ^= flip
        try:
            found = decode_frame("files", bytes(frame), key="k")
        except InlayError:
            continue
        # gzip has bytes that mean nothing (its time and operating-system fields).
        assert found == body and frame[:2] == b"\x1f\x8b" and at < 10


def test_an_edit_that_is_still_json_is_refused():
    data = encode_frame("files", SMALL).replace(b'"a":1', b'"a":2')
    with pytest.raises(CorruptTable, match="digest"):
        decode_frame("files", data, key="k")


def test_a_newer_format_is_named_before_anything_else_is_judged():
    data = encode_frame("files", SMALL).replace(b'"inlay":1', b'"inlay":7')
    with pytest.raises(NewerFormat, match="7"):
        decode_frame("files", data, key="k")


def test_a_frame_of_another_kind_is_refused():
    with pytest.raises(CorruptTable, match="markers"):
        decode_frame("files", encode_frame("markers", SMALL), key="k")


def test_a_gzip_bomb_with_a_tail_is_refused():
    data = encode_frame("files", LARGE)
    with pytest.raises(CorruptTable):
        decode_frame("files", data + b"x", key="k")


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(InlayError):
        decode_frame("snapshot", data, key="k")


def test_what_was_written_before_the_freeze_is_refused_by_name():
    data = encode_frame("files", SMALL).replace(b'"inlay":1', b'"inlay":0')
    with pytest.raises(CorruptTable, match="before the format was frozen"):
        decode_frame("files", data, key="k")

"""S3's documents: XML in both directions.

Promise: what is written is escaped and in S3's namespace; what is read is found by its local name,
whatever namespace a client gave it, and a body that is no XML is S3's `MalformedXML`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from inlay.storage.embedded_s3.request import AwsAnswer, S3Error

# What an element holds: text, a number, elements by name (one or several of each), or pieces of these.
# An element that is None is left out.
Content = Any

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"


def document(name: str, content: Content, headers: Mapping[str, str] | None = None) -> AwsAnswer:
    """An answer whose body is one element."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{name} xmlns="{_NAMESPACE}">{_inner(content)}</{name}>'
    ).encode()
    return AwsAnswer(200, {"Content-Type": "application/xml", **(headers or {})}, body)


def _inner(content: Content) -> str:
    match content:
        case bool():
            return str(content).lower()
        case str() | int():
            return escape(str(content), {"\r": "&#13;"})
        case Mapping():
            return "".join(_element(name, item) for name, item in content.items())
        case Sequence():
            return "".join(map(_inner, content))
        case _:
            raise TypeError(f"no XML for {content!r}")


def _element(name: str, content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        return "".join(_element(name, item) for item in content)
    return f"<{name}>{_inner(content)}</{name}>"


def iso(us: int) -> str:
    """A time as S3's documents have it."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def parse(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise S3Error(400, "MalformedXML", "The XML you provided was not well-formed.") from error


def children(parent: ElementTree.Element, name: str) -> Iterable[ElementTree.Element]:
    return (element for element in parent if element.tag.rpartition("}")[2] == name)


def child(parent: ElementTree.Element, *path: str) -> ElementTree.Element | None:
    for name in path:
        element = next(iter(children(parent, name)), None)
        if element is None:
            return None
        parent = element
    return parent


def text(parent: ElementTree.Element, *path: str) -> str | None:
    """The text of the element at `path`; None where there is no such element."""
    element = child(parent, *path)
    return None if element is None else element.text or ""

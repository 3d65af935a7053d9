"""Counting what stores of one kind are asked for, where no server sees it: directories, memory.

A request is one that S3 would see: a call of a method of `ObjectStore`, a page of a listing, a batch of a
delete. It is told before it is sent, so that one that fails counts as well. What a store asks of itself is
part of the request that it answers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

from inlay.engine import ObjectStore

T = TypeVar("T")
# Key (a listing's prefix, the first key of a batch), bytes of the body.
Sent = Callable[[str, int], None]

# AWS: items of a page of a listing, names of a batch of a delete.
ITEMS = 1_000
# By name, the place of the argument that is a body.
REQUESTS = {
    **dict.fromkeys(("get", "get_suffix", "head", "copy", "create_multipart", "upload_part_copy")),
    **dict.fromkeys(("complete_multipart", "abort_multipart")),
    "put": 1,
    "upload_part": 3,
}
LISTINGS = ("list", "list_prefixes", "list_uploads", "list_versions")
DELETES = ("delete", "delete_unchanged", "delete_versions")


def count_requests(store: ObjectStore, sent: Sent) -> None:
    """From now on `sent` is told of each request to a store of this kind in this process."""
    kind, thread = type(store), threading.local()

    def asked(send: Callable[[], T]) -> T:
        thread.inside = True
        try:
            return send()
        finally:
            thread.inside = False

    def replace(name: str, counted: Callable[..., Any]) -> None:
        method = getattr(kind, name)

        @wraps(method)
        def outermost(*arguments: Any, **options: Any) -> Any:
            if getattr(thread, "inside", False):
                return method(*arguments, **options)
            return counted(method, *arguments, **options)

        setattr(kind, name, outermost)

    def request(body: int | None, method: Any, own: Any, *arguments: Any, **options: Any) -> Any:
        size = 0 if body is None else memoryview(arguments[body]).nbytes
        sent(str(arguments[0]), size)
        return asked(partial(method, own, *arguments, **options))

    def listing(method: Any, own: Any, prefix: str, **options: Any) -> Iterator[Any]:
        items = method(own, prefix, **options)

        def draw(most: int) -> list[Any]:
            return asked(lambda: list(itertools.islice(items, most)))

        page: list[Any] = []
        while True:  # ends with the listing; an empty one is a page too
            sent(prefix, 0)
            page += draw(ITEMS - len(page))
            yield from page
            page = draw(1) if len(page) == ITEMS else []
            if not page:
                return

    def delete(method: Any, own: Any, items: Any) -> list[Any]:
        failures: list[Any] = []
        rest = iter(items)
        while batch := list(itertools.islice(rest, ITEMS)):
            sent(batch[0] if isinstance(batch[0], str) else batch[0][0], 0)
            failures += asked(partial(method, own, batch))
        return failures

    for name, body in REQUESTS.items():
        replace(name, partial(request, body))
    for name in LISTINGS:
        replace(name, listing)
    for name in DELETES:
        replace(name, delete)

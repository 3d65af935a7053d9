"""The engine's door: what runs around the library imports from here, not from the engine's rooms.

Promise: a name here keeps its meaning while the rooms behind it change. Beside `inlay` (tables),
`inlay.errors` and `inlay.progress` this is all that a guest needs. The handlers of `functions/` and
`pipelines/` import nothing else of the engine; `tests/unit/test_door.py` holds that, and that the names are
few. What a guest lacks here is first of all an operation that is missing in the engine.

A name is imported when it is first used: the cold start of a function loads what that function calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlay.format.keys import POINTER as POINTER
    from inlay.format.keys import PUBLISHED_POINTER as PUBLISHED_POINTER
    from inlay.format.properties import Properties as Properties
    from inlay.format.properties import is_published as is_published
    from inlay.format.schema import Primitive as Primitive
    from inlay.format.schema import Schema as Schema
    from inlay.format.snapshot import Snapshot as Snapshot
    from inlay.iceberg.catalog import Catalog as Catalog
    from inlay.ops.catalog.writes import TableWrites as TableWrites
    from inlay.ops.collect_garbage import collect_garbage as collect_garbage
    from inlay.ops.commit.driver import already_applied as already_applied
    from inlay.ops.context import Context as Context
    from inlay.ops.erase.request import advance_erasures as advance_erasures
    from inlay.ops.maintain.compact import compact as compact
    from inlay.ops.maintain.expire import expire as expire
    from inlay.ops.maintain.rewrite import rewrite as rewrite
    from inlay.ops.metadata.load import load_pointer as load_pointer
    from inlay.ops.publish.publish import is_published_whole as is_published_whole
    from inlay.ops.publish.publish import publish as publish
    from inlay.ops.publish.status import publication_status as publication_status
    from inlay.parse import parse_predicate as parse_predicate
    from inlay.plan.change import Request as Request
    from inlay.plan.change_records import PRESETS as PRESETS
    from inlay.plan.erasure import LIFE_SECONDS as LIFE_SECONDS
    from inlay.plan.surgery import STRATEGIES as STRATEGIES
    from inlay.storage.base import Got as Got
    from inlay.storage.base import Head as Head
    from inlay.storage.open import open_store as open_store
    from inlay.storage.wrapped import usage_of as usage_of

NAMES: Mapping[str, str] = {
    # A table as it is: its pointer's snapshot, its columns, its properties.
    "Context": "inlay.ops.context",
    "load_pointer": "inlay.ops.metadata.load",
    "Snapshot": "inlay.format.snapshot",
    "Schema": "inlay.format.schema",
    "Primitive": "inlay.format.schema",
    "Properties": "inlay.format.properties",
    "parse_predicate": "inlay.parse",
    # Operations on a context: each returns what it did.
    "compact": "inlay.ops.maintain.compact",
    "expire": "inlay.ops.maintain.expire",
    "rewrite": "inlay.ops.maintain.rewrite",
    "collect_garbage": "inlay.ops.collect_garbage",
    "advance_erasures": "inlay.ops.erase.request",
    # How long a reader or writer may live that an erasure waits for; how rows are removed from a file; what
    # the operations of change records are called, by producer.
    "LIFE_SECONDS": "inlay.plan.erasure",
    "STRATEGIES": "inlay.plan.surgery",
    "PRESETS": "inlay.plan.change_records",
    # Requests that are applied once, whoever repeats them.
    "Request": "inlay.plan.change",
    "already_applied": "inlay.ops.commit.driver",
    # Publication as Apache Iceberg.
    "publish": "inlay.ops.publish.publish",
    "publication_status": "inlay.ops.publish.status",
    "is_published": "inlay.format.properties",
    "is_published_whole": "inlay.ops.publish.publish",
    "Catalog": "inlay.iceberg.catalog",
    "TableWrites": "inlay.ops.catalog.writes",
    # Objects: a store by its URI, its answers, what a context has requested, the two names that change.
    "open_store": "inlay.storage.open",
    "Got": "inlay.storage.base",
    "Head": "inlay.storage.base",
    "usage_of": "inlay.storage.wrapped",
    "POINTER": "inlay.format.keys",
    "PUBLISHED_POINTER": "inlay.format.keys",
}


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return getattr(import_module(NAMES[name]), name)
    raise AttributeError(f"module 'inlay.engine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(NAMES)

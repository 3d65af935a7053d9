"""The engine's door: what runs around the library imports from here, not from the engine's rooms.

Promise: a name here keeps its meaning while the rooms behind it change. Beside `inlay` (tables),
`inlay.errors` and `inlay.progress` this is all that a guest needs. `tests/unit/test_door.py` holds
which guests import nothing else of the engine, and that the names are few. What a guest lacks here is first
of all an operation that is missing in the engine.

A name is imported when it is first used: the cold start of a function loads what that function calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inlay.lazy import import_now

if TYPE_CHECKING:
    from inlay.exact_json import decode_json as decode_json
    from inlay.format.entry import DataFile as DataFile
    from inlay.format.keys import POINTER as POINTER
    from inlay.format.keys import PUBLISHED_POINTER as PUBLISHED_POINTER
    from inlay.format.predicate import Predicate as Predicate
    from inlay.format.predicate_fold import PredicateBuilder as PredicateBuilder
    from inlay.format.predicate_fold import PredicateFold as PredicateFold
    from inlay.format.schema import Field as Field
    from inlay.format.schema import Primitive as Primitive
    from inlay.format.schema import Schema as Schema
    from inlay.format.schema import cut_at_equals as cut_at_equals
    from inlay.format.schema import listed_names as listed_names
    from inlay.format.snapshot import Snapshot as Snapshot
    from inlay.format.type_fold import TypeFold as TypeFold
    from inlay.iceberg.catalog import Catalog as Catalog
    from inlay.ops.adopt.adopt import adopt as adopt
    from inlay.ops.catalog.served import served_catalog as served_catalog
    from inlay.ops.collect_garbage import collect_garbage as collect_garbage
    from inlay.ops.context import Context as Context
    from inlay.ops.context import Workers as Workers
    from inlay.ops.delete_request import delete_requested as delete_requested
    from inlay.ops.erase.copies import LockedCopies as LockedCopies
    from inlay.ops.erase.key_files import erase_from_file as erase_from_file
    from inlay.ops.erase.p256 import KeyFile as KeyFile
    from inlay.ops.erase.receipt import receipts_since as receipts_since
    from inlay.ops.erase.request import advance_erasures as advance_erasures
    from inlay.ops.feed_parts import FeedParts as FeedParts
    from inlay.ops.local_files import LocalFiles as LocalFiles
    from inlay.ops.maintain.cluster_slices import ClusterPlan as ClusterPlan
    from inlay.ops.maintain.compact import compact as compact
    from inlay.ops.maintain.expire import expire as expire
    from inlay.ops.maintain.rewrite import rewrite as rewrite
    from inlay.ops.metadata.load import LoadedTable as LoadedTable
    from inlay.ops.metadata.load import load_pointer as load_pointer
    from inlay.ops.publish.publish import is_published_whole as is_published_whole
    from inlay.ops.publish.publish import publish as publish
    from inlay.ops.publish.status import publication_status as publication_status
    from inlay.ops.read.in_parts import ScanParts as ScanParts
    from inlay.ops.read.other_reader import OtherReader as OtherReader
    from inlay.ops.write.append import IngestSource as IngestSource
    from inlay.ops.write.in_parts import PartedWrite as PartedWrite
    from inlay.ops.write.ingest import SourceOutcome as SourceOutcome
    from inlay.ops.write.ingest import not_ingested as not_ingested
    from inlay.ops.write.ingest_or_create import ingest_or_create as ingest_or_create
    from inlay.ops.write.landed_changes import apply_message as apply_message
    from inlay.ops.write.landing import landed as landed
    from inlay.ops.write.parted_change import PartedChange as PartedChange
    from inlay.ops.write.parted_merge import PartedMerge as PartedMerge
    from inlay.ops.write.recent_rows import RecentRows as RecentRows
    from inlay.parse import parse_predicate as parse_predicate
    from inlay.plan.change import Request as Request
    from inlay.plan.change_records import Operations as Operations
    from inlay.plan.scan import FileTask as FileTask
    from inlay.storage.base import ObjectStore as ObjectStore
    from inlay.storage.embedded_s3.request import AwsAnswer as AwsAnswer
    from inlay.storage.embedded_s3.request import AwsRequest as AwsRequest
    from inlay.storage.embedded_s3.rest import EmbeddedS3 as EmbeddedS3
    from inlay.storage.open import open_store as open_store
    from inlay.text.written import json_rows as json_rows
    from inlay.text.written import to_line as to_line

NAMES: Mapping[str, str] = {
    # A table as it is: its pointer's snapshot, its columns, its properties.
    "Context": "inlay.ops.context",
    "load_pointer": "inlay.ops.metadata.load",
    "LoadedTable": "inlay.ops.metadata.load",
    "Snapshot": "inlay.format.snapshot",
    "Schema": "inlay.format.schema",
    "Field": "inlay.format.schema",
    "Primitive": "inlay.format.schema",
    "parse_predicate": "inlay.parse",
    # Conditions in another language: a translator has a method for each kind.
    "Predicate": "inlay.format.predicate",
    "PredicateFold": "inlay.format.predicate_fold",
    "PredicateBuilder": "inlay.format.predicate_fold",
    # Types in another language, likewise.
    "TypeFold": "inlay.format.type_fold",
    # Texts that name columns: `a, "b,c"`, and `"a=b"=1` cut in two.
    "listed_names": "inlay.format.schema",
    "cut_at_equals": "inlay.format.schema",
    # Operations on a context: each returns what it did.
    "compact": "inlay.ops.maintain.compact",
    "expire": "inlay.ops.maintain.expire",
    "rewrite": "inlay.ops.maintain.rewrite",
    "collect_garbage": "inlay.ops.collect_garbage",
    "advance_erasures": "inlay.ops.erase.request",
    "adopt": "inlay.ops.adopt.adopt",
    # Clustering by another engine's shuffle: what to rewrite; writing a run in many processes.
    "ClusterPlan": "inlay.ops.maintain.cluster_slices",
    # What versions changed, planned in one process and read in parts by many.
    "FeedParts": "inlay.ops.feed_parts",
    # A snapshot's rows, planned in one process and read in parts by many; by another engine's own reader.
    "ScanParts": "inlay.ops.read.in_parts",
    "FileTask": "inlay.plan.scan",
    "OtherReader": "inlay.ops.read.other_reader",
    # Rows that many processes write, and one commits: new ones, ones that replace rows they have found, and
    # change records.
    "PartedWrite": "inlay.ops.write.in_parts",
    "DataFile": "inlay.format.entry",
    "PartedChange": "inlay.ops.write.parted_change",
    "PartedMerge": "inlay.ops.write.parted_merge",
    "RecentRows": "inlay.ops.write.recent_rows",
    "Operations": "inlay.plan.change_records",
    # Requests that are applied once, whoever repeats them: deletes by text or keys, files that landed,
    # change records; JSON that is taken as it is written or not at all.
    "Request": "inlay.plan.change",
    "delete_requested": "inlay.ops.delete_request",
    "erase_from_file": "inlay.ops.erase.key_files",
    "IngestSource": "inlay.ops.write.append",
    "SourceOutcome": "inlay.ops.write.ingest",
    "ingest_or_create": "inlay.ops.write.ingest_or_create",
    "not_ingested": "inlay.ops.write.ingest",
    "landed": "inlay.ops.write.landing",
    "apply_message": "inlay.ops.write.landed_changes",
    "decode_json": "inlay.exact_json",
    # Rows in local files, both ways; values as JSON.
    "LocalFiles": "inlay.ops.local_files",
    "json_rows": "inlay.text.written",
    "to_line": "inlay.text.written",
    # Publication as Apache Iceberg.
    "publish": "inlay.ops.publish.publish",
    "publication_status": "inlay.ops.publish.status",
    "is_published_whole": "inlay.ops.publish.publish",
    "Catalog": "inlay.iceberg.catalog",
    "served_catalog": "inlay.ops.catalog.served",
    # Who signs the receipts of erasures, and where copies are kept; those of late.
    "KeyFile": "inlay.ops.erase.p256",
    "receipts_since": "inlay.ops.erase.receipt",
    "LockedCopies": "inlay.ops.erase.copies",
    # Objects: a store by its URI, its answers, the two names that change; what a context is made of.
    "open_store": "inlay.storage.open",
    "POINTER": "inlay.format.keys",
    "PUBLISHED_POINTER": "inlay.format.keys",
    "ObjectStore": "inlay.storage.base",
    "Workers": "inlay.ops.context",
    # The embedded S3, for development: where it is kept, what it is asked and answers, its events.
    "EmbeddedS3": "inlay.storage.embedded_s3.rest",
    "AwsRequest": "inlay.storage.embedded_s3.request",
    "AwsAnswer": "inlay.storage.embedded_s3.request",
}


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return getattr(import_now(NAMES[name]), name)
    raise AttributeError(f"module 'inlay.engine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(NAMES)

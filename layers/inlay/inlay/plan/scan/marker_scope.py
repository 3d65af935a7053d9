"""Marker scope: which files a delete marker may hit.

Promise: `marker_may_hit` is False only when the marker certainly deletes no row of the file, by statistics
that scans rely on, too (for erasures: by trusted ones). `marker_hits_all` is True only when it deletes
every row, whatever another writer's statistics say.
"""

from __future__ import annotations

from inlay.format.entry import DataFile, KeyRange, Keys, Marker, Where
from inlay.format.predicate import Predicate, field_ids
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Segment
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.pruning.prune import all_match, keys_may_match, may_match, range_predicate


def marker_predicate(marker: Marker, schema: Schema) -> Predicate | None:
    """The predicate of a range or predicate marker; None for the other kinds."""
    match marker.body:
        case Where(predicate):
            return predicate
        case KeyRange() as key_range:
            found = schema.by_id(key_range.field_id)
            if found is None or not isinstance(found.type, Primitive):
                return None
            return range_predicate(key_range, key_range.kind or found.type)
        case _:
            return None


def fields_of_marker(marker: Marker) -> frozenset[int]:
    """Field ids that a delete reads."""
    match marker.body:
        case KeyRange(field_id=field_id):
            return frozenset((field_id,))
        case Where(predicate):
            return field_ids(predicate)
        case Keys(field_ids=ids):
            return frozenset(ids)
        case _:
            return frozenset()


def reference_may_hit(marker: Marker, segment: Segment, evidence: Evidence) -> bool:
    """The same for all files under a reference."""
    if isinstance(marker.body, Keys):
        return keys_may_match(marker.body, segment.stats, segment.rows)
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is None or may_match(predicate, segment.stats, segment.rows)


def marker_may_hit(marker: Marker, entry: DataFile, evidence: Evidence) -> bool:
    """Decided by file, sequence (docs/design/design.md, section 2: a table-wide marker at S hits sequence <
    S) and evidence."""
    if marker.file is not None:
        return marker.file == entry.key
    committed_later = marker.sequence is None or (entry.sequence or 0) < marker.sequence
    if not committed_later:
        return False
    # An erasure leaves nothing out because of another writer's statistics.
    known = evidence.of(entry) if marker.erasure is None else evidence.trusted(entry)
    if isinstance(marker.body, Keys):
        return keys_may_match(marker.body, known, entry.rows)
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is None or may_match(predicate, known, entry.rows)


def marker_hits_all(marker: Marker, entry: DataFile, evidence: Evidence) -> bool:
    """Whether a range or predicate marker that applies to a file certainly deletes every row of it."""
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is not None and all_match(predicate, evidence.trusted(entry), entry.rows)

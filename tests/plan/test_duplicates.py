"""What of a change is left where some of its events were applied before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.maintenance.bench import new_bench

from inlay.format.entry import DataFile, Marker, Rows
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    Change,
    ForgetContents,
    RemoveFiles,
    Request,
    Unit,
)
from inlay.plan.commit.apply import without_duplicates
from inlay.plan.commit.conflicts import _with_arrival
from inlay.plan.commit.draft import next_salt
from inlay.plan.metadata.state import LedgerSalt


def file(key: str, **options: object) -> DataFile:
    made = DataFile(key=key, size=9, footer_size=9, rows=5, row_groups=1, schema_id=1)
    return replace(made, **options)  # type: ignore[arg-type]


REQUESTS = {name: Request.of(name) for name in "abc"}


@pytest.mark.parametrize("known", [(), ("a",), ("b", "c"), ("a", "b", "c"), ("other",)])
def test_files_and_markers_of_known_events_are_left_out_and_no_others(
    known: tuple[str, ...],
) -> None:
    files = tuple(file(name, event=request.token) for name, request in REQUESTS.items())
    files += (file("none"),)
    markers = tuple(Marker(id=f"m-{f.key}", body=Rows((1,)), file=f.key) for f in files)
    markers += (Marker(id="m-table", body=Rows((1,)), file=None),)
    change = Change(
        operation="ingest",
        events=tuple(REQUESTS.values()),
        updates=(
            AddFiles(files, sources_us=dict.fromkeys("abc", 7)),
            AddMarkers(markers),
            RemoveFiles(("a",)),
        ),
    )
    ids = frozenset(Request.of(name).id for name in known)
    found = without_duplicates(change, ids)
    # The new events of a batch are remembered: they would be applied again.
    assert [r.text for r in found.events] == [name for name in "abc" if name not in known]
    added, marked, removed = found.updates
    assert isinstance(added, AddFiles) and isinstance(marked, AddMarkers)
    left = [name for name in ("a", "b", "c", "none") if name not in known]
    assert [f.key for f in added.files] == left
    assert set(added.sources_us) == set(left) - {"none"}
    assert [m.id for m in marked.markers] == [*(f"m-{name}" for name in left), "m-table"]
    assert removed == RemoveFiles(("a",))


def test_what_maintenance_writes_holds_rows_as_new_as_the_newest_it_read() -> None:
    """By that reads of other writers are validated; a file with changed rows is as new as its commit."""
    inputs = [
        file("a", sequence=4),
        file("b", sequence=9, arrived=None),
        file("c", sequence=12, arrived=6),
    ]
    outputs = (file("kept", data_change=False), file("changed", data_change=True))
    made = _with_arrival(Unit(("a", "b", "c"), outputs, 12), inputs)
    assert [f.arrived for f in made.outputs] == [max(f.newest_rows for f in inputs), None]
    assert max(f.newest_rows for f in inputs) == 9
    assert _with_arrival(Unit((), outputs, 12), []).outputs[0].arrived == 0


def test_the_first_content_that_is_remembered_brings_the_salt_of_its_digest() -> None:
    base = new_bench().load().snapshot
    assert LedgerSalt.of(base.properties) is None
    for bodies, forgets, salted in (
        ([], False, False),
        ([None, None], False, False),
        ([None, "text"], False, True),
        (["text"], False, True),
        ([None], True, True),
    ):
        requests = [Request.of(f"{n}", body=body) for n, body in enumerate(bodies)]
        change = Change(
            operation="append",
            request=requests[0] if requests else None,
            events=tuple(requests[1:]),
            updates=(ForgetContents(),) if forgets else (),
        )
        found = next_salt(base, change, "fresh")
        assert found == (
            LedgerSalt("fresh", base.version + 1, base.version + 1) if salted else None
        )

"""Random schedules of the real operations, and the mistakes that they must catch."""

from __future__ import annotations

import os
import time

import pytest

from inlay.testing.mutations import MUTATIONS, SEEDS, caught
from inlay.testing.simulation import run_schedule

# Seconds of random schedules in `make test`; INLAY_SIMULATE_SECONDS sets another share.
SECONDS = float(os.environ.get("INLAY_SIMULATE_SECONDS", "40"))
# Mistakes that need a rare meeting of actors take minutes to catch: `make test-all`.
RARE = {
    "believe_every_refusal",
    "delete_rows_of_files_that_are_gone",
    "ignore_the_boundary",
    "outputs_of_maintenance_are_never_arrivals",
    "collect_before_the_boundary_is_committed",
    "keep_the_time_of_an_unseen_commit",
    "take_the_age_of_a_file_for_that_of_its_rows",
    "believe_a_newer_pointer_without_the_archive",
    "date_a_group_by_its_newest_upload",
    "carry_row_deletes_over_without_mapping_them",
    "reuse_what_was_written_for_a_file_that_changed",
    "bury_nothing",
}
# Those of `test_history`.
HISTORY = {"edit_refs_that_have_moved", "commit_over_a_restore", "collect_what_a_tag_holds"}


def test_every_promise_holds_on_as_many_schedules_as_time_allows(capsys):
    started, seed, requests = time.monotonic(), 0, 0
    while time.monotonic() - started < SECONDS:
        report = run_schedule(seed)
        assert report.violation is None, (
            f"replay: python -m inlay.testing.simulation --seed {seed} --trace\n{report.violation}"
        )
        requests += report.requests
        seed += 1
    assert seed >= 5, "a machine this slow proves nothing"
    with capsys.disabled():
        print(f"\n{seed} schedules, {requests} requests, no violation")


def test_a_seed_replays_exactly():
    first, second = (run_schedule(7, trace=True) for _ in range(2))
    assert first == second
    assert first.trace


@pytest.mark.parametrize("name", sorted(set(MUTATIONS) - RARE - HISTORY))
def test_a_broken_rule_is_caught(name):
    assert caught(name, seeds=40) is not None, f"no schedule shows that {name} is wrong"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_rule_that_is_rarely_needed_is_caught(name):
    assert caught(name, seeds=SEEDS) is not None, f"no schedule shows that {name} is wrong"

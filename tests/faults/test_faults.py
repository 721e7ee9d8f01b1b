"""Seeded schedules of writers, readers and faults: a short form of `python -m tests.soak`, schedules that
failed once, and mistakes that are found.
"""

from __future__ import annotations

import pytest

from tests.faults.__main__ import run_all

#: `python -m tests.soak` continues after these seeds.
SHORT = 40
#: Seeds that soon find some of the mistakes, all on S3. `python -m tests.soak` tries all mistakes.
FOUND_BY = {
    "overwriting_put": 15,
    "blind_retry": 64,
    "greedy_cleanup": 1,
    "lost_updates": 4,
    "parts_left": 21,
    "unsorted_parts": 44,
    "late_names": 130,
    "sure_names": 12,
    "late_restores": 625,
    "forgetful_clone": 15,
}
#: A mistake must be found within so many schedules. A change of the package changes what each seed
#: does: the seeds above only make it soon.
ENOUGH = 400
#: Schedules that run before the test looks at their result.
STEP = 10


def test_schedules() -> None:
    result = run_all(1, SHORT)
    assert not result["failed"], [failure[:3] for failure in result["failed"]]
    assert result["schedules"] == SHORT
    assert all(result[f"on {store_kind}"] > SHORT // 6 for store_kind in ("s3", "gs", "local"))
    tried = {name.partition(" of ")[0] for name in result["faults"]}
    assert tried == {
        "error",
        "lost answer",
        "time-out",
        "late effect",
        "refused",
        "truncated read",
        "short write",
        "duplicate",
        "delay",
        "outage",
    }


def test_a_seed_is_a_schedule() -> None:
    first, second = run_all(30, 3), run_all(30, 3)
    assert first["digests"] == second["digests"]
    assert run_all(31, 3)["digests"] != first["digests"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("mutation", FOUND_BY)
def test_the_checker_reports_every_mutation(mutation: str) -> None:
    first = FOUND_BY[mutation]
    assert any(
        run_all(seed, STEP, store_kind="s3", mutation=mutation)["failed"]
        for seed in range(first, first + ENOUGH, STEP)
    ), mutation

"""Thousands of runs in which something goes wrong, each under its seed; see `holdfast.testing`.

A run that breaks a promise is shown with the one line that plays it again. For more of them:
`python -m tests.simulation --seeds 5000-50000`.
"""

from __future__ import annotations

import pytest

from tests.simulation.run import simulate
from tests.simulation.story import Story, draw, draw_long, draw_wide

CHUNK = 250
CHUNKS = 6
CHUNKS_LONG = 20


@pytest.mark.req("T-005", "T-007", "T-008", "T-011", "T-012", "T-013", "T-036", "T-048", "T-050")
@pytest.mark.req("T-055", "T-062", "T-063", "T-064", "T-073", "T-074", "T-080")
@pytest.mark.parametrize(
    "chunk",
    [
        *range(CHUNKS),
        *(pytest.param(chunk, marks=pytest.mark.long) for chunk in range(CHUNKS, CHUNKS_LONG)),
    ],
)
def test_a_run_keeps_every_promise_whatever_goes_wrong(chunk: int) -> None:
    reports = [simulate(seed) for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK)]

    wrong = [str(report) for report in reports if report.problem is not None]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "story", [draw_wide(1, workers=64), draw_long(0, failures=1000, days=30)], ids=["wide", "long"]
)
def test_a_large_run_keeps_every_promise_too(story: Story) -> None:
    """One with 64 workers, and one over a month in which something fails a thousand times."""
    report = simulate(story)

    assert report.problem is None
    assert report.seconds > 30 * 86400 or story.setting.workers == 64


def test_the_seeds_hold_every_kind_of_fault() -> None:
    stories = [draw(seed) for seed in range(CHUNKS * CHUNK)]

    kinds = {fault.kind for story in stories for fault in story.faults}
    assert kinds == {
        "raise", "die", "hang", "slow", "return", "stuck", "slow store", "unsavable",
        "node lost", "node drains", "node joins", "worker killed", "worker warned",
        "driver killed", "notice", "stop", "outage", "freeze", "replaced", "rival", "damage",
        "busy", "answer lost", "error", "error after", "killed before", "killed after",
        "refused", "extra",
    }  # fmt: skip
    assert sum(not story.faults for story in stories) > 50

"""Every kind of end has a cause, has a sentence, and comes back from the journal."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from holdfast.core.run.outcomes import (
    Blame,
    Died,
    Evicted,
    Finished,
    Hung,
    Raised,
    WorkerExit,
    from_data,
    to_data,
)
from holdfast.errors import FormatTooNew

ENDS: list[tuple[WorkerExit, Blame | None, str]] = [
    (Finished(0, "n"), None, "rank 0 finished"),
    (Raised(1, "n", "ValueError: no", "Traceback"), Blame.CODE, "rank 1 raised ValueError: no"),
    (
        Died(2, "n", 7, signal=9, last_lines=("a", "b")),
        Blame.PROCESS,
        "rank 2 (pid 7) was killed by SIGKILL",
    ),
    (
        Died(2, "n", 7, node_lost=True, out_of_memory=True),
        Blame.NODE,
        "rank 2 (pid 7) was lost with node n",
    ),
    (Hung(3, "n", 9.0, "stack"), Blame.HANG, "rank 3 made no progress for 9 s"),
    (Evicted(4, "n"), None, "rank 4 was stopped"),
    (
        Evicted(4, "n", preempted=True),
        Blame.PREEMPTION,
        "rank 4 was evicted: node n is preempted",
    ),
]


@pytest.mark.parametrize(("ended", "blamed", "sentence"), ENDS)
def test_an_end_is_blamed_described_and_comes_back_from_the_journal(
    ended: WorkerExit, blamed: Blame | None, sentence: str
) -> None:
    assert ended.blame is blamed
    assert ended.has_failed is (blamed not in (None, Blame.PREEMPTION))
    assert ended.describe() == sentence
    assert from_data(json.loads(json.dumps(to_data(ended)))) == ended


def test_these_are_all_kinds() -> None:
    assert {type(ended) for ended, _, _ in ENDS} == set(get_args(WorkerExit))


def test_an_end_of_a_kind_that_a_later_version_wrote_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="'throttled', which this version does not know"):
        from_data({"kind": "throttled", "rank": 0, "node": "n"})

"""What trials print is kept, but never more than there should be room for."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.host import study_logs
from tests.integration.tune.conftest import Lab

CHATTER = 256 << 10  # bytes that a trial prints
ROOM = 3 * CHATTER


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_BYTES", str(ROOM))
    monkeypatch.setattr(study_logs, "LOOK_EVERY_S", 0.0)


def prints(config: dict[str, Any]) -> None:
    print("x" * CHATTER, flush=True)  # noqa: T201
    tune.report({"loss": 1.0})
    if config["fails"]:
        raise ValueError("as it should")


def logs_of(results: tune.ResultGrid) -> list[bool]:
    """Return of which trials there is a log."""
    homes = [os.path.join(results.experiment_path, one.folder) for one in results.trials]
    return [os.path.exists(os.path.join(home, "logs", "attempt-1.log")) for home in homes]


@pytest.mark.usefixtures("little_room")
def test_the_oldest_logs_of_trials_go_when_there_is_too_much_and_those_of_failures_last(
    lab: Lab,
) -> None:
    fails = [True, False, False, False, False, False, False]
    results = lab.fit(prints, {"fails": tune.grid_search(fails)}, tune={"max_concurrent_trials": 1})

    found = logs_of(results)

    assert results.num_errors == 1
    assert found[0], "the log of the one that failed"
    assert not any(found[1:4])
    assert found[-1]


def test_logs_stay_where_there_is_room(lab: Lab) -> None:
    results = lab.fit(prints, {"fails": tune.grid_search([False, False])})

    assert logs_of(results) == [True, True]


def test_who_asks_for_files_of_what_is_printed_is_told_where_they_are(lab: Lab) -> None:
    with pytest.warns(UserWarning, match=r"log_to_file is ignored: .*logs/attempt-") as caught:
        results = lab.fit(prints, {"fails": False}, log_to_file=True)

    assert logs_of(results) == [True]
    assert caught[0].filename.endswith("conftest.py")  # the line that calls fit

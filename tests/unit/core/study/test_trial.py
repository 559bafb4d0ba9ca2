"""A trial as it is seen from outside: what it remembers, and where its files are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.study.trial import Status, Trial


def saved(trial: Trial, number: int, step: int, **metrics: Any) -> None:
    facts = {"number": number, "directory": f"checkpoint_{number:06d}", "epoch": 1, "attempt": 1}
    more = {"step": step, "metrics": metrics, "created": 0.0, "problems": [], "pins": []}
    trial.checkpoints.apply("checkpoint_committed", {**facts, **more})


class Home:
    def path(self, folder: str) -> str:
        return f"s3://bucket/study/{folder}"

    def local_path(self, folder: str) -> str | None:
        return None

    def checkpoint(self, folder: str, directory: str) -> str:
        return f"{folder}:{directory}"


def test_a_step_that_is_done_again_counts_in_no_average_twice() -> None:
    trial = Trial("t")
    for step, loss in ((1, 4.0), (2, 2.0)):
        trial.observe(step, {"loss": loss})
        trial.judged = step
    trial.observe(2, {"loss": 8.0})  # after a loss
    assert trial.metric_analysis["loss"]["last"] == 8.0

    trial.observe(3, {"loss": 3.0})

    found = trial.metric_analysis["loss"]
    assert found["avg"] == found["last-5-avg"] == 3.0
    assert (found["max"], found["min"], found["last"]) == (4.0, 2.0, 3.0)


def test_a_trial_knows_where_its_files_are_only_if_it_was_told() -> None:
    trial = Trial("t", folder="t_folder", error="it broke")
    assert (trial.path, trial.logdir, trial.checkpoint, trial.error_file) == (None,) * 4

    trial.home = Home()
    assert (trial.path, trial.checkpoint) == ("s3://bucket/study/t_folder", None)
    saved(trial, 0, 2)
    saved(trial, 1, 4)

    assert trial.has_checkpoint()
    assert trial.checkpoint == "t_folder:checkpoint_000001"
    assert trial.logdir is trial.local_path is trial.error_file is None
    assert "home" not in trial.to_data()


@pytest.mark.parametrize("status", Status)
def test_it_is_finished_when_nothing_more_will_happen(status: Status) -> None:
    assert Trial("t", status=status).is_finished() == (status in ("TERMINATED", "ERROR"))

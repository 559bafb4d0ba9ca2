"""A trial by the names that Ray's users know."""

from __future__ import annotations

from typing import Any

from holdfast.core.study.judges import Judges
from holdfast.core.study.machine import Study
from holdfast.core.study.rules import Rules
from holdfast.tune.trial import Trial
from tests.unit.core.study.studies import Judge, added


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


def test_a_trial_knows_where_its_files_are_only_if_it_has_a_home() -> None:
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


def test_results_are_summed_up_by_metric() -> None:
    trial = Trial("t")
    trial.observe(1, {"loss": 2.0, "deep": {"er": 1}})

    assert trial.metric_analysis["loss"]["max"] == trial.metric_analysis["loss"]["last"] == 2.0
    assert trial.metric_analysis["deep/er"]["min"] == 1.0


def test_a_study_makes_and_reads_trials_of_the_type_it_is_given() -> None:
    judge = Judge()
    study, again = (Study(Judges(judge, judge, judge), Rules(), Trial) for _ in range(2))
    study.take(added("t"))

    again.set_state(study.get_state())

    assert [type(trial) for trial in (*study.get_trials(), *again.get_trials())] == [Trial, Trial]

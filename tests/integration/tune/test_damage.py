"""A study whose journal is damaged: what is lost is told, and nothing begins anew in its place."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.control.study import journal as study_journal
from holdfast.storage.locate import open_store
from holdfast.tune.results.study_view import inspect_study
from holdfast.tune.schedulers import FIFOScheduler
from holdfast.tune.study.stored_spec import CannotRestoreStudy
from tests.integration.train.loops import is_first
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


def damage(lab: Lab, *signs: str) -> None:
    """Spoil the records of the journal that have one of these in them."""
    [file] = (lab.study / ".holdfast" / "journal").glob("*.jsonl")
    lines = file.read_text().splitlines()
    is_hit = [any(sign in line for sign in signs) for line in lines]
    spoilt = [
        line.replace(":", ";") if hit else line for line, hit in zip(lines, is_hit, strict=True)
    ]
    file.write_text("".join(f"{line}\n" for line in spoilt))


def test_a_study_of_which_no_trial_is_known_any_more_is_refused(lab: Lab) -> None:
    lab.fit(train, {"x": tune.grid_search([0, 1])})
    before = sorted(path.name for path in lab.study.iterdir())
    damage(lab, '"trial_', '"study_state"')

    for _ in range(2):  # that it was seen once does not make it better
        with pytest.raises(CannotRestoreStudy, match=r"no trial is known any more.*\n.*copy"):
            lab.restore(train)
    assert sorted(path.name for path in lab.study.iterdir()) == before


def test_a_trial_whose_record_is_lost_is_named_and_no_other_is_made_twice(lab: Lab) -> None:
    trials = lab.fit(train, {"x": tune.grid_search([0, 1, 2, 3])})._trials  # noqa: SLF001
    lost = trials[1].trial_id
    damage(lab, f'"trial_added","data":{{"trial_id":"{lost}"', '"made":4')

    with pytest.warns(UserWarning, match=rf"trials are lost: {lost}\. .*num_samples=1"):
        results = lab.restore(train)
    assert [last(one)["loss"] for one in results] == [0, 2, 3]
    assert len(lab.rows(lost)) == 1


def test_a_search_goes_on_after_a_lost_record_with_what_was_not_tried(lab: Lab) -> None:
    space = {"x": tune.grid_search([0, 1])}
    trials = lab.fit(train, space)._trials  # noqa: SLF001
    damage(lab, f'"trial_added","data":{{"trial_id":"{trials[0].trial_id}"', '"made":2')

    with pytest.warns(UserWarning, match="trials are lost"):
        results = tune.Tuner.restore(str(lab.study), train).extend(num_samples=1).fit()
    assert [last(one)["loss"] for one in results] == [1, 0, 1]


class PausesAtThree(FIFOScheduler):
    """Has the first trial wait after its third step, and the driver leave when the second runs."""

    def __init__(self, has_left: str) -> None:
        super().__init__()
        self.has_left = has_left

    def on_trial_result(self, view: Any, trial: Any, result: dict[str, Any]) -> str:
        if trial.number == 1 and is_first(Path(self.has_left)):
            os.kill(os.getpid(), signal.SIGINT)
        return self.PAUSE if result["training_iteration"] == 3 else self.CONTINUE

    def choose_trial_to_run(self, view: Any) -> Any:
        pending = [one for one in view.get_trials() if one.status == "PENDING"]
        return pending[0] if pending else None  # one that waits goes on when nothing else can


def test_a_trial_that_waits_goes_on_from_a_checkpoint_whose_record_is_lost(lab: Lab) -> None:
    lab.fit(
        Counter,
        {"add": tune.grid_search([1, 10])},
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        tune={"max_concurrent_trials": 1, "scheduler": PausesAtThree(str(lab.folder / "left"))},
    )
    trial = inspect_study(open_store(lab.study)).trials[0]
    saved = f'"id":"{trial.trial_id}","what":"checkpoint_committed","facts":{{"number":'
    damage(lab, f"{saved}1,", f"{saved}2,", '"study_state"')
    before = inspect_study(open_store(lab.study)).trials[0]
    assert (str(before.status), sorted(before.checkpoints.kept)) == ("PAUSED", [0])

    results = lab.restore(Counter)

    assert [last(one)["count"] for one in results] == [5, 50]
    after = inspect_study(open_store(lab.study)).trials[0]
    assert sorted(after.checkpoints.kept)[:3] == [0, 1, 2]
    assert after.checkpoints.kept[2].step == 3


def test_one_damaged_line_of_the_archive_hides_no_trial_from_anybody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to hide 249 good ones from `get_results`, and to end `fit` after all was done."""
    monkeypatch.setattr(study_journal, "ARCHIVE_AFTER", 4)
    lab.fit(train, {"x": tune.grid_search([0, 1, 2, 3, 4])})
    archive = min((lab.study / ".holdfast" / "trials").glob("*.jsonl"))
    data = archive.read_bytes()
    first, rest = data.split(b"\n", 1)
    archive.write_bytes(first.replace(b'"number":', b'"nomber":') + b"\n" + rest)

    def losses(found: Any) -> list[float]:
        return sorted(last(one)["loss"] for one in found)

    def tuner() -> Any:
        return tune.Tuner.restore(str(lab.study), train)

    seen: dict[str, list[float]] = {}
    for name, read in {
        "get_results": lambda: losses(tuner().get_results()),
        "fit": lambda: losses(tuner().fit()),
        "extend": lambda: losses(tuner().extend(num_samples=1).fit()),
        "analysis": lambda: sorted(
            one.last_result["loss"] for one in tune.ExperimentAnalysis(str(lab.study)).trials
        ),
    }.items():
        with pytest.warns(UserWarning, match=rf"{archive.name}: line 1: .* 1 of its \d trials"):
            seen[name] = read()

    every = [0, 1, 2, 3, 4]
    assert seen["get_results"] == seen["fit"] == every
    assert seen["extend"] == seen["analysis"] and set(seen["extend"]) == set(every)

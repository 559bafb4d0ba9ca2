from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from holdfast.tune.search.sample import uniform


def policy_file(folder: Path, steps: list[list[Any]]) -> Path:
    path = folder / "pbt_policy_t0.txt"
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return path


STEPS = [
    ["1", "0", 9, 3, {"lr": 1}, {"lr": 2}, 4],
    ["0", "1", 8, 5, {"lr": 2}, {"lr": 3}, 7],
]


def rates(study: FakeStudy) -> list[Any]:
    return [config["lr"] for config in study.weights["t0"]]


@pytest.mark.req("U-045")
def test_a_replay_begins_as_the_first_donor_did_and_changes_where_donors_were(
    tmp_path: Path,
) -> None:
    study = FakeStudy(PopulationBasedTrainingReplay(str(policy_file(tmp_path, STEPS))))
    trial = study.add({"whatever": 1})
    study.run(until=8)

    assert rates(study) == [1, 1, 1, 2, 2, 3, 3, 3]
    assert trial.experiment_tag == "0@replayed_5"
    assert sum(entry[0] == "decided" for entry in study.log) == 8  # and no step was done twice


def test_a_trial_that_saves_with_every_report_changes_at_once(tmp_path: Path) -> None:
    class Eager(FakeStudy):
        def _tell(self, hook: str, *args: Any) -> Any:
            if hook == "on_trial_result":
                self._save(args[0])
            return super()._tell(hook, *args)

    study = Eager(PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS)))
    study.add()
    study.run(until=8)

    assert rates(study) == [1, 1, 1, 2, 2, 3, 3, 3]
    assert sum(entry[0] == "decided" for entry in study.log) == 8  # and no step was done twice


def test_a_loss_at_any_step_leaves_no_mixture_of_configs(tmp_path: Path) -> None:
    for lost_at in range(1, 10):
        study = FakeStudy(PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS)))
        trial = study.add()
        for number in range(16):
            study.fill()
            if number == lost_at:
                study.lose(trial)
            elif study.times["t0"] < 8:
                study.report(trial)

        assert rates(study) == [1, 1, 1, 2, 2, 3, 3, 3]


def test_lines_of_other_lives_are_passed_over(tmp_path: Path) -> None:
    """What the trial was before it was made from another is in its file too, and in any order."""
    steps = [
        ["0", "7", 1, 1, {"lr": 8}, {"lr": 9}, 5],  # trial 0 before: gives way to what 1 was
        STEPS[0],
        STEPS[1],
        STEPS[0],  # written again after a crash
    ]
    replay = PopulationBasedTrainingReplay(policy_file(tmp_path, steps))

    assert replay.config == {"lr": 1}
    assert replay.debug_string() == "PopulationBasedTraining replay: step 0 of 2"


def test_files_without_numbers_are_read_in_their_order(tmp_path: Path) -> None:
    """As Ray writes them."""
    replay = PopulationBasedTrainingReplay(policy_file(tmp_path, [step[:6] for step in STEPS]))

    assert replay.config == {"lr": 1}
    assert replay.debug_string() == "PopulationBasedTraining replay: step 0 of 2"


def test_there_is_one_trial_only(tmp_path: Path) -> None:
    study = FakeStudy(PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS)))
    first = study.add()
    study.scheduler.on_trial_add(study, first)
    with pytest.raises(TuneError, match="a replay is of one trial"):
        study.add()


@pytest.mark.parametrize("text", ["", "\n\n", "[1, 2]\n", "nothing\n", '{"a": 1}\n', "3\n"])
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pbt_policy_x.txt").write_text(text)
    with pytest.raises(ConfigError, match="policy_file="):
        PopulationBasedTrainingReplay(tmp_path / "pbt_policy_x.txt")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PopulationBasedTrainingReplay(tmp_path / "no.txt")


def test_what_was_written_can_be_replayed(tmp_path: Path) -> None:
    """The configs a trial was run with are those its weights have seen, whoever had them then."""
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 2, 0, {"lr": uniform(0, 1)}, 0.5, synch=True, seed=4
    )
    study = FakeStudy(scheduler, slots=4, score=lambda trial, time: (trial.number * 7 + time) % 5)
    for _ in range(4):
        study.add()
    study.run(until=12)
    path = tmp_path / "policy.txt"
    for number in range(4):
        path.write_text(study.files[f"pbt_policy_t{number}.txt"])
        replayed = FakeStudy(PopulationBasedTrainingReplay(path))
        replayed.add()
        replayed.run(until=12)

        assert rates(replayed) == [one["lr"] for one in study.weights[f"t{number}"]]
        assert len(set(rates(replayed))) > 2

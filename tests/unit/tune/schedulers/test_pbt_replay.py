from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from holdfast.tune.search.sample import uniform
from tests.unit.tune.schedulers.fake_study import FakeStudy


def policy_file(folder: Path, *blocks: list[list[Any]]) -> Path:
    path = folder / "pbt_policy_t0.txt"
    text = ("\n".join(json.dumps(step) for step in block) + "\n" for block in blocks)
    path.write_text("\n".join(text))
    return path


STEPS = [
    ["1", "0", 9, 3, {"lr": 1}, {"lr": 2}],
    ["0", "1", 8, 5, {"lr": 2}, {"lr": 3}],
]


def test_a_replay_begins_as_the_first_donor_did_and_changes_where_donors_were(
    tmp_path: Path,
) -> None:
    study = FakeStudy(PopulationBasedTrainingReplay(str(policy_file(tmp_path, STEPS))))
    trial = study.add({"whatever": 1})
    used = {}
    for time in range(1, 8):
        study.fill()
        used[time] = trial.config["lr"]
        study.report(trial)

    assert used == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3}
    assert study.times["t0"] == 7  # no step was done twice, and none left out
    assert trial.experiment_tag == "0@replayed_5"


def test_only_what_follows_the_last_empty_line_counts(tmp_path: Path) -> None:
    old = [["0", "7", 1, 1, {"lr": 8}, {"lr": 9}]]
    replay = PopulationBasedTrainingReplay(policy_file(tmp_path, old, STEPS))

    assert replay.config == {"lr": 1}
    assert replay.debug_string() == "PopulationBasedTraining replay: step 0 of 2"


def test_a_change_that_cannot_be_made_yet_is_made_at_the_next_result(tmp_path: Path) -> None:
    class Slow(FakeStudy):
        """Knows of no checkpoint before it is there."""

        def exploit(self, trial: Any, donor: Any, config: Any, tag: str) -> bool:
            return trial.trial_id in self.saved and super().exploit(trial, donor, config, tag)

    study = Slow(PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS)))
    trial = study.add()
    study.fill()

    assert [study.report(trial) for _ in range(4)] == ["CONTINUE"] * 3 + ["NOOP"]
    assert trial.config == {"lr": 2}


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
    seen: dict[str, list[float]] = {}
    scheduler = PopulationBasedTraining(
        "training_iteration", "score", "max", 2, 0, {"lr": uniform(0, 1)}, 0.5, synch=True, seed=4
    )
    study = FakeStudy(scheduler, slots=4, score=lambda trial, time: (trial.number * 7 + time) % 5)
    for _ in range(4):
        seen[study.add().trial_id] = []
    for time in range(1, 13):
        study.fill()
        for trial in study.trials:
            seen[trial.trial_id].append(trial.config["lr"])
        marks = len(study.log)
        for trial in study.trials:
            study.report(trial, time)
        for entry in study.log[marks:]:
            if entry[0] == "_exploit":
                seen[entry[1]] = list(seen[entry[2]])
    assert len(study.files["pbt_policy_t0.txt"].splitlines()) > 3
    path = tmp_path / "policy.txt"
    path.write_text(study.files["pbt_policy_t0.txt"])

    replayed = FakeStudy(PopulationBasedTrainingReplay(path))
    trial = replayed.add()
    used = []
    for _ in range(12):
        replayed.fill()
        used.append(trial.config["lr"])
        replayed.report(trial)
    assert used == seen["t0"]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.fake_study import FakeStudy
from holdfast.tune import RunConfig, TuneConfig, Tuner
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
    with pytest.raises(TuneError, match="a replay runs a single trial"):
        study.add()


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "[1, 2]\n", "nothing\n", '{"a": 1}\n', "3\n", '["0", "1", 3, 2, [1], {"a": 2}]\n',
     '["0", "1", 3, 2, {"a": 1}, "x"]\n', '["0", "1", 3, -2, {"a": 1}, {"a": 2}]\n',
     '["0", "1", 3, 2.5, {"a": 1}, {"a": 2}]\n', '["0", "1", 3, NaN, {"a": 1}, {"a": 2}]\n', "\0"],
)  # fmt: skip
def test_a_file_that_is_no_policy_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pbt_policy_x.txt").write_text(text)
    with pytest.raises(ConfigError, match="policy_file="):
        PopulationBasedTrainingReplay(tmp_path / "pbt_policy_x.txt")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PopulationBasedTrainingReplay(tmp_path / "no.txt")
    with pytest.raises(ConfigError, match="cannot be read"):
        PopulationBasedTrainingReplay(tmp_path)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        PopulationBasedTrainingReplay(tmp_path / "binary.txt")


def test_what_was_written_can_be_replayed(tmp_path: Path) -> None:
    """A replay runs with the configs that the weights have seen, in whichever trial."""
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

        assert rates(replayed) == [config["lr"] for config in study.weights[f"t{number}"]]
        assert len(set(rates(replayed))) > 2


def test_a_file_of_another_study_is_refused_before_anything_runs(tmp_path: Path) -> None:
    replay = PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS))
    message = "is of another study: param_space has 'width', and the configs there have 'lr'"
    with pytest.raises(ConfigError, match=message) as refused:
        Tuner(
            lambda config: None,
            param_space={"lr": 1, "width": 3},
            tune_config=TuneConfig(scheduler=replay),
            run_config=RunConfig(name="replay", storage_path=str(tmp_path / "storage")),
        ).fit()

    assert "param_space can be left out" in str(refused.value.hint)
    assert not list((tmp_path / "storage" / "replay").glob("*/result.json"))
    replay.check_space({})
    replay.check_space({"lr": 7})


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (["0", "1", 8, 2, {"lr": 2}, {"lr": 3}, 7], "a change at iteration 2 follows one at 3"),
        (
            ["0", "1", 8, 5, {"lr": 9}, {"lr": 3}, 7],
            "changed at iteration 5 is not the one in use since 3: 'lr' is 9, not 2",
        ),
        (["0", "1", 8, 5, {}, {"lr": 3}, 7], "'lr' is None, not 2"),
    ],
)
def test_lines_that_do_not_go_on_from_each_other_are_refused(
    tmp_path: Path, second: list[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        PopulationBasedTrainingReplay(policy_file(tmp_path, [STEPS[0], second]))

    assert "files of two studies must not be joined" in str(refused.value.hint)


def test_a_replay_that_goes_on_with_another_file_is_refused(tmp_path: Path) -> None:
    replay = PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS))
    state = json.loads(json.dumps(replay.get_state()))
    same = PopulationBasedTrainingReplay(policy_file(tmp_path, [*STEPS, STEPS[0]]))
    same.set_state(state)
    changed = [*STEPS[0][:5], {"lr": 2, "width": 1}, 4]
    other = PopulationBasedTrainingReplay(policy_file(tmp_path, [changed]))
    with pytest.raises(ConfigError, match="is not the file that the study started with"):
        other.set_state(state)
    del state["policy"]
    other.set_state(state)  # it was written before that was noted


def test_a_trial_that_saves_late_changes_late_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It saves when it likes, as functions do: after 4 and 6, not after 3 and 5."""

    class Deaf(FakeStudy):
        def _tell(self, hook: str, *args: Any) -> Any:
            if hook == "on_trial_result" and self.times["t0"] % 2 == 0:
                super()._save(args[0])
            return super()._tell(hook, *args)

        def _save(self, trial: Any) -> None:
            """Asking is of no use."""

    study = Deaf(PopulationBasedTrainingReplay(policy_file(tmp_path, STEPS)))
    study.add()
    study.run(until=8)

    assert rates(study) == [1, 1, 1, 1, 2, 2, 3, 3]
    assert caplog.text.count("has saved nothing at iteration 3") == 1

"""When classes of `tune.run`'s era are saved, with what, and what they are given back."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import ConfigError
from holdfast.tune.schedulers import HyperBandScheduler
from tests.integration.train.loops import note
from tests.integration.tune.classes import Counter
from tests.integration.tune.old_lab import OldLab, old_lab, saved

__all__ = ["old_lab"]

STEPS_25 = {"training_iteration": 25}


# ---------------------------------------------------------------------- when


@pytest.mark.req("U-044", "U-056", "U-059")
def test_a_trial_is_saved_every_ten_iterations_and_not_at_its_end(old_lab: OldLab) -> None:
    [trial] = old_lab.run(stop=STEPS_25, checkpoint_freq=10).trials

    assert saved(trial) == [10, 20]
    assert trial.last_result["training_iteration"] == 25


@pytest.mark.req("U-045", "U-058")
def test_a_checkpoint_at_the_end_is_the_model_of_the_end(old_lab: OldLab) -> None:
    [trial] = old_lab.run(stop=STEPS_25, checkpoint_freq=10, checkpoint_at_end=True).trials

    assert saved(trial) == [10, 20, 25]
    with trial.checkpoint.as_directory() as folder:
        assert Path(folder, "count").read_text() == "25"


@pytest.mark.req("U-058")
def test_an_end_that_is_saved_anyway_is_saved_once(old_lab: OldLab) -> None:
    stop = {"training_iteration": 20}
    [trial] = old_lab.run(stop=stop, checkpoint_freq=10, checkpoint_at_end=True).trials

    assert saved(trial) == [10, 20]
    assert old_lab.counts("save") == [10, 20]


@pytest.mark.req("U-054", "U-055")
def test_a_trial_that_asks_for_it_is_saved_then_and_only_then(old_lab: OldLab) -> None:
    [trial] = old_lab.run(config={"saves_at": [2, 5]}).trials

    assert saved(trial) == [2, 5]
    assert tune.result.SHOULD_CHECKPOINT == "should_checkpoint"


@pytest.mark.req("U-046")
def test_a_function_cannot_be_saved_from_outside_and_an_old_study_stays(old_lab: OldLab) -> None:
    """It is told before anything is moved out of the way of a study that will not be."""

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1})

    old_lab.run(train)
    before = sorted(old_lab.storage.rglob("*"))

    with pytest.raises(ConfigError, match="the function `train` saves its checkpoints itself"):
        old_lab.run(train, checkpoint_freq=10)

    assert sorted(old_lab.storage.rglob("*")) == before


# ---------------------------------------------------------------------- the methods


class AllMethods(tune.Trainable):
    """Has all methods by the names of 0.7, and calls its parent's where there is one."""

    def _setup(self, config: dict[str, Any]) -> None:
        super()._setup(config)
        self.notes, self.count = Path(config["notes"]), 0
        note(self.notes, what="call", of="_setup")

    def _train(self) -> dict[str, Any]:
        note(self.notes, what="call", of="_train")
        self.count += 1
        if self.count == 3 and not self.notes.with_name("died").exists():
            self.notes.with_name("died").touch()
            raise RuntimeError("once")
        return {"count": self.count}

    def _save(self, checkpoint_dir: str) -> dict[str, Any]:
        note(self.notes, what="call", of="_save")
        return {"count": self.count, "set": {1, 2}}

    def _restore(self, saved: dict[str, Any]) -> None:
        note(
            self.notes, what="call", of="_restore", got=sorted(saved), equals=saved["set"] == {1, 2}
        )
        self.count = saved["count"]

    def _log_result(self, result: dict[str, Any]) -> None:
        super()._log_result(result)
        note(self.notes, what="call", of="_log_result")

    def _stop(self) -> None:
        super()._stop()
        note(self.notes, what="call", of="_stop")

    def _export_model(self, formats: Any, directory: str) -> dict[str, str]:
        note(self.notes, what="call", of="_export_model", formats=list(formats))
        path = Path(directory, "model.bin")
        path.write_text(f"model of {self.count}")
        return {formats[0]: str(path)}


@pytest.mark.req("U-047", "U-051")
def test_all_methods_of_the_old_names_are_called(old_lab: OldLab) -> None:
    [trial] = old_lab.run(
        AllMethods,
        stop={"training_iteration": 3},
        checkpoint_freq=2,
        max_failures=1,
        export_formats=["a name of its own"],
    ).trials

    step = ["_train", "_log_result"]
    assert [one["of"] for one in old_lab.noted("call")] == [
        *["_setup", *step, *step, "_save", "_train", "_stop"],
        *["_setup", "_restore", *step, "_export_model", "_stop"],
    ]
    [restored] = [one for one in old_lab.noted("call") if one["of"] == "_restore"]
    assert restored["got"] == ["count", "set"] and restored["equals"]
    assert [one["formats"] for one in old_lab.noted("call") if "formats" in one] == [
        ["a name of its own"]
    ]
    exported = old_lab.study / trial.folder / "export" / "model.bin"
    assert exported.read_text() == "model of 3"


class ReturnsNumber(Counter):
    def _train(self) -> dict[str, Any]:
        return 0.5  # type: ignore[return-value]


@pytest.mark.req("U-048")
def test_a_step_that_returns_no_dictionary_is_named(old_lab: OldLab) -> None:
    with pytest.raises(tune.TuneError, match=r"ReturnsNumber\._train\(\) returned 0.5"):
        old_lab.run(ReturnsNumber)


class CannotBeSaved(tune.Trainable):
    def _train(self) -> dict[str, Any]:
        return {"loss": 1}


@pytest.mark.req("U-049")
def test_a_scheduler_that_pauses_refuses_what_cannot_be_saved(old_lab: OldLab) -> None:
    scheduler = HyperBandScheduler(metric="loss", mode="min", max_t=9)

    with pytest.raises(ConfigError, match="CannotBeSaved cannot be saved"):
        old_lab.run(CannotBeSaved, scheduler=scheduler)

    assert not old_lab.study.exists()


# ---------------------------------------------------------------------- paths and prefixes


class FakeSaver:
    """Saves as TensorFlow's does: files with a common prefix, and no file of that name."""

    def save(self, state: dict[str, int], prefix: str) -> str:
        for name, value in state.items():
            Path(f"{prefix}.{name}").write_text(str(value))
        return prefix

    def restore(self, prefix: str) -> dict[str, int]:
        folder, name = os.path.split(prefix)
        assert not os.path.exists(prefix)
        found = sorted(Path(folder).glob(f"{name}.*"))
        return {path.suffix[1:]: int(path.read_text()) for path in found}


class WithSaver(Counter):
    """The example of the guide, with a saver that needs no TensorFlow."""

    def _setup(self, config: dict[str, Any]) -> None:
        super()._setup(config)
        self.saver = FakeSaver()

    def _save(self, checkpoint_dir: str) -> str:
        state = {"index": self.count, "data-00000-of-00001": 10 * self.count}
        return self.saver.save(state, os.path.join(checkpoint_dir, "save"))

    def _restore(self, checkpoint_prefix: str) -> None:
        state = self.saver.restore(checkpoint_prefix)
        self.count = state["index"]
        self._note("restore", state=state, prefix=os.path.basename(checkpoint_prefix))


@pytest.mark.req("U-050", "U-079", "U-073")
def test_a_prefix_comes_back_also_when_the_folder_was_moved(old_lab: OldLab) -> None:
    config = {"fails_at": 5}
    with pytest.raises(tune.TuneError, match="fails at 5"):
        old_lab.run(WithSaver, config, stop={"training_iteration": 6}, checkpoint_freq=2)
    elsewhere = old_lab.folder / "elsewhere"
    old_lab.storage.rename(elsewhere)
    (old_lab.folder / "fixed").touch()

    [trial] = old_lab.run(
        WithSaver,
        config,
        stop={"training_iteration": 6},
        checkpoint_freq=2,
        local_dir=str(elsewhere),
        resume="LOCAL+ERRORED",
    ).trials

    [restored] = old_lab.noted("restore")
    assert restored["state"] == {"data-00000-of-00001": 40, "index": 4}
    assert restored["prefix"] == "save"
    assert old_lab.counts() == [1, 2, 3, 4, 5, 6]
    assert trial.last_result["training_iteration"] == 6


class SavesElsewhere(Counter):
    def _save(self, checkpoint_dir: str) -> str:
        path = self.notes.with_name("elsewhere")
        path.write_text("lost")
        return str(path)


class SavesNumber(Counter):
    def _save(self, checkpoint_dir: str) -> str:
        return 7  # type: ignore[return-value]


@pytest.mark.req("U-050")
@pytest.mark.parametrize(
    ("trainable", "said"),
    [
        (SavesElsewhere, "SavesElsewhere was to be saved to .*, and returned .*elsewhere"),
        (SavesNumber, "SavesNumber returned 7 when it was saved"),
    ],
)
def test_what_was_not_saved_in_its_folder_is_an_error(
    old_lab: OldLab, trainable: Any, said: str
) -> None:
    stop = {"training_iteration": 2}
    [trial] = old_lab.run(
        trainable, stop=stop, checkpoint_freq=1, raise_on_failed_trial=False
    ).trials

    assert trial.status == "ERROR" and isinstance(trial.error, ValueError)
    assert re.search(said, str(trial.error))


class Watcher(tune.Callback):
    """Looks into the trial's folder whenever a checkpoint is told of."""

    def __init__(self, study: Path) -> None:
        self.study = study
        self.seen: list[list[str]] = []

    def on_checkpoint(
        self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        folder = self.study / trial.folder
        self.seen.append(sorted(path.name for path in folder.glob("checkpoint_*/count")))


@pytest.mark.req("U-052", "U-053")
def test_a_trial_saves_to_its_own_disk_and_the_driver_has_it_then(old_lab: OldLab) -> None:
    watcher = Watcher(old_lab.study)

    old_lab.run(checkpoint_freq=2, callbacks=[watcher])

    for saving in old_lab.noted("save"):
        assert saving["is_local"] and "checkpoint_" not in saving["folder"]
        assert not Path(saving["folder"]).exists(), "it is gone when its files are kept"
    assert watcher.seen == [["count"], ["count"] * 2, ["count"] * 3]


# ---------------------------------------------------------------------- which stay


class Scored(Counter):
    def _train(self) -> dict[str, Any]:
        result = super()._train()
        scores = [3, 1, 2, 5, 4, 6]
        return {**result, self.config["metric"]: scores[self.count - 1]}


@pytest.mark.parametrize(
    ("metric", "attribute", "kept"),
    [
        ("auc", "auc", [4, 6]),
        ("auc", "max-auc", [4, 6]),
        ("loss", "min-loss", [2, 3, 6]),
        ("max-auc", "max-auc", [4, 6]),
        ("min-loss", "min-loss", [2, 3, 6]),
    ],
)
def test_the_best_two_are_kept_and_the_newest(
    old_lab: OldLab, metric: str, attribute: str, kept: list[int]
) -> None:
    [trial] = old_lab.run(
        Scored,
        {"metric": metric},
        stop={"training_iteration": 6},
        checkpoint_freq=1,
        keep_checkpoints_num=2,
        checkpoint_score_attr=attribute,
    ).trials

    assert saved(trial) == kept
    assert len(list((old_lab.study / trial.folder).glob("checkpoint_*"))) == len(kept)


def test_a_checkpoint_to_begin_with_must_be_there(old_lab: OldLab) -> None:
    with pytest.raises(ConfigError, match=r"there is no checkpoint at .*nowhere"):
        old_lab.run(restore=str(old_lab.folder / "nowhere"))

    assert not old_lab.storage.exists()


def test_what_was_never_committed_is_no_checkpoint(old_lab: OldLab) -> None:
    [trial] = old_lab.run(checkpoint_freq=3).trials
    half = old_lab.study / trial.folder / "checkpoint_000007"
    half.mkdir()
    (half / "count").write_text("half a mod")

    [found] = tune.ExperimentAnalysis(str(old_lab.study)).trials

    assert saved(found) == [3, 6]
    assert found.checkpoint is not None and found.checkpoint.path == trial.checkpoint.path
    assert saved(trial) == [3, 6]


@pytest.mark.req("U-073")
def test_every_trial_begins_with_the_checkpoint_given_until_it_has_its_own(
    old_lab: OldLab,
) -> None:
    [first] = old_lab.run(checkpoint_at_end=True).trials
    given = old_lab.study / first.folder / "checkpoint_000000"
    before = [(path, path.read_bytes()) for path in given.iterdir()]
    old_lab.notes.unlink()

    second = old_lab.run(
        config={"x": tune.grid_search([1, 2]), "dies_at": 9},
        name="second",
        restore=f"{given}/count",
        stop={"training_iteration": 12},
        checkpoint_freq=2,
        max_failures=1,
    )

    assert sorted(one["count"] for one in old_lab.noted("restore")) == [6, 6, 8, 8]
    assert [trial.last_result["count"] for trial in second.trials] == [12, 12]
    assert [(path, path.read_bytes()) for path in given.iterdir()] == before

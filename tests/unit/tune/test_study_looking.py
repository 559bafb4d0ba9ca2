"""A study as it is shown: what its journal says is what a driver would make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.api.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.api.plain import to_plain
from holdfast.cli import main
from holdfast.control.resuming_study import recall
from holdfast.control.study_log import StudyTail
from holdfast.core.judges import Judges
from holdfast.core.study import Study
from holdfast.core.trial import Trial
from holdfast.storage.locate import open_store
from holdfast.tune import Trainable, TuneConfig
from holdfast.tune.onlooking import Onlooker
from holdfast.tune.stored_study import rules_of_stored, stored
from holdfast.tune.study_looking import look_at_study
from holdfast.tune.study_spec import StudySpec
from holdfast.tune.trainables import runnable
from tests.records import OPENED, Event, added, finished, result, started, study_at_rest


class Counter(Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": 1.0}

    def save_checkpoint(self, checkpoint_dir: str) -> None: ...

    def load_checkpoint(self, checkpoint: Any) -> None: ...


def function(config: dict[str, Any]) -> None:
    """Do nothing."""


def spec_of(trainable: Any, checkpoints: CheckpointConfig, exports: tuple[str, ...]) -> StudySpec:
    return StudySpec(
        trainable=runnable(trainable),
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=RunConfig(
            stop={"training_iteration": 1},
            failure_config=FailureConfig(fail_fast=True, hang_timeout_s=9),
            checkpoint_config=checkpoints,
        ),
        export_formats=exports,
    )


@pytest.mark.parametrize(
    ("trainable", "checkpoints", "exports"),
    [
        (function, {}, ()),
        (Counter, {}, ()),
        (Counter, {"checkpoint_at_end": True}, ()),
        (Counter, {"checkpoint_at_end": False}, ()),
        (Counter, {"checkpoint_at_end": False}, ("onnx",)),
    ],
)
def test_the_same_journal_means_the_same_for_the_driver_and_for_onlookers(
    trainable: Any, checkpoints: dict[str, Any], exports: tuple[str, ...], tmp_path: Path
) -> None:
    spec = spec_of(trainable, CheckpointConfig(**checkpoints), exports)
    kept = stored(
        spec.trainable.name, [], {}, spec.tune_config, spec.run_config,
        {"export_formats": exports}, saves_at_end=spec.rules().saves_at_end, planned=1,
    )  # fmt: skip
    events: list[Event] = [OPENED, added("a1"), started("a1"), result("a1", 1, loss=1.0), OPENED]
    fields = {name: getattr(kept, name) for name in kept.__slots__}
    study_at_rest(tmp_path / "study", events, **fields)

    looked = look_at_study(open_store(tmp_path / "study"))
    driven = Study(Judges(Onlooker(), spec.scheduler(), spec.stopper()), spec.rules())
    tail = StudyTail()
    for kind, data in events:
        tail.apply(kind, data)
    recall(driven, tail)

    assert rules_of_stored(kept) == spec.rules()
    assert looked.unsure is None
    [trial] = [*driven.trials.values(), *driven.finished.values()]
    assert [shown(one) for one in looked.trials] == [shown(trial)]


def shown(trial: Trial) -> tuple[str, bool, int]:
    return str(trial.status), trial.cut_off, trial.step


def test_a_class_that_has_not_saved_itself_at_its_end_is_not_shown_as_done(tmp_path: Path) -> None:
    events: list[Event] = [OPENED, added("a1"), started("a1"), result("a1", 1, loss=1.0), OPENED]
    stop = {"stop": {"training_iteration": 1}}
    study_at_rest(tmp_path / "class", events, run_config=stop, saves_at_end=True)
    study_at_rest(tmp_path / "function", events, run_config=stop, saves_at_end=False)

    by_kind = [look_at_study(open_store(tmp_path / one)) for one in ("class", "function")]

    assert [str(one.trials[0].status) for one in by_kind] == ["PENDING", "TERMINATED"]


def test_a_record_of_before_says_by_its_configs_what_rules_there_were(tmp_path: Path) -> None:
    config = to_plain(CheckpointConfig(checkpoint_at_end=True))
    kept = study_at_rest(tmp_path, run_config={"checkpoint_config": config})

    assert kept.saves_at_end is None
    assert rules_of_stored(kept).saves_at_end


@pytest.mark.parametrize(
    ("planned", "ends", "said", "listed"),
    [
        (200, [], "1 of 200 done (1 PENDING, 1 TERMINATED)", "2 of 200 (1 PENDING, 1 TERMINATED)"),
        (None, [], "1 of 2 so far done (1 PENDING, 1 TERMINATED)", "2 (1 PENDING, 1 TERMINATED)"),
        (
            200,
            [("search_ended", {}), finished("a2")],
            "2 of 2 done (2 TERMINATED)",
            "2 (2 TERMINATED)",
        ),
    ],
    ids=["more to come", "no end known", "the searcher has ended"],
)
def test_trials_that_are_still_to_be_made_count(
    planned: int | None,
    ends: list[Event],
    said: str,
    listed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first: list[Event] = [OPENED, added("a1"), started("a1"), finished("a1")]
    second: list[Event] = [added("a2", 1), started("a2")]
    study_at_rest(tmp_path / "study", [*first, *second, *ends], planned=planned)

    texts = []
    for command in (["show", str(tmp_path / "study")], ["ls", str(tmp_path)]):
        with pytest.raises(SystemExit):
            main(command)
        texts.append(capsys.readouterr().out)

    assert f"trials  {said}\n" in texts[0]
    assert f"  {listed}" in texts[1]

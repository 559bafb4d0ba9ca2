"""What of a trainer is kept for `restore`, and what a new run can begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.control.record.run_view import look
from holdfast.errors import Damaged
from holdfast.storage.locate import open_store
from holdfast.train import (
    Checkpoint,
    DataParallelTrainer,
    RunConfig,
    TrainingFailedError,
    UserCallback,
)
from holdfast.train.trainer import BaseTrainer
from tests.integration.train.conftest import Lab
from tests.integration.train.loops import begin, load, save
from tests.integration.train.restorable import (
    everything,
    fail_less,
    fail_once,
    read_given,
    say_word,
    steps_begun_with,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*restore is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*resume_from_checkpoint=.*:DeprecationWarning"),
]


# ---------------------------------------------------------------------- functions and configs


@pytest.mark.req("T-089")
def test_a_function_that_can_be_imported_leaves_no_code_behind(lab: Lab) -> None:
    lab.fit(say_word, config={"word": "x"})

    files = [path for path in lab.run.rglob("*") if path.is_file()]
    assert files
    assert not any(path.read_bytes().startswith(b"\x80") for path in files)
    assert not any(b"after step" in path.read_bytes() for path in files)


def test_a_closure_is_restored_from_the_path_alone(lab: Lab) -> None:
    word, notes = "captured", lab.notes

    def loop(config: dict[str, Any]) -> str:
        begin(notes)
        save(0)
        return f"{word} {config['scale']!r}"

    lab.fit(loop, config={"scale": np.float32(0.5)})
    del loop

    result = DataParallelTrainer.restore(lab.run).fit()

    assert result.return_value == f"captured {np.float32(0.5)!r}"
    assert steps_begun_with(lab) == [None, 0]


@pytest.mark.req("T-094")
def test_a_checkpoint_in_the_config_is_there_in_the_workers_also_after_restore(lab: Lab) -> None:
    source = lab.fit(fail_less, config={"notes": str(lab.notes)}, name="source").checkpoint
    assert source is not None

    first = lab.fit(read_given, config={"begin_with": source})
    again = DataParallelTrainer.restore(lab.run).fit()

    assert json.loads(first.return_value) == json.loads(again.return_value) == {"step": 1}
    assert not (lab.run / ".holdfast" / "pickled").exists()


# ---------------------------------------------------------------------- resume_from_checkpoint


def begun_from(lab: Lab, source: Checkpoint, **config: Any) -> DataParallelTrainer:
    return DataParallelTrainer(
        fail_less,
        train_loop_config={"notes": str(lab.notes), **config},
        run_config=RunConfig("run", str(lab.storage)),
        resume_from_checkpoint=source,
    )


@pytest.mark.req("T-029", "T-030", "T-031", "T-093")
def test_a_new_run_can_begin_with_a_checkpoint_of_another(lab: Lab) -> None:
    source = lab.fit(fail_less, config={"notes": str(lab.notes)}, name="source")
    assert source.checkpoint is not None
    before = everything(lab.storage / "source")

    first = begun_from(lab, source.checkpoint).fit()
    again = begun_from(lab, source.checkpoint, steps=0).fit()

    kept = look(open_store(lab.run)).record.kept
    assert first.return_value == 1
    assert again.return_value == 3, "once the run has a checkpoint of its own, that one is used"
    assert sorted(kept) == [0, 1]
    assert [kept[number].step for number in (0, 1)] == [1, 2]
    assert everything(lab.storage / "source") == before


def test_a_new_run_does_not_begin_with_a_damaged_checkpoint(lab: Lab) -> None:
    source = lab.fit(fail_less, config={"notes": str(lab.notes)}, name="source")
    assert source.checkpoint is not None
    [file] = Path(source.checkpoint.path).iterdir()
    file.write_bytes(b"BAD!" + file.read_bytes())
    lab.notes.unlink()

    with pytest.raises(Damaged, match="is damaged"):
        begun_from(lab, source.checkpoint).fit()
    assert not lab.notes.exists(), "nothing was started"


def test_restore_remembers_what_a_run_was_to_begin_with(lab: Lab) -> None:
    """Its first launch has saved nothing, so that is still where it begins."""
    source = lab.fit(fail_less, config={"notes": str(lab.notes)}, name="source")
    assert source.checkpoint is not None
    begun_from(lab, source.checkpoint, steps=0).fit()

    result = DataParallelTrainer.restore(lab.run).fit()

    assert result.return_value == 1


# ---------------------------------------------------------------------- trainers


def test_what_could_not_be_kept_is_told(lab: Lab) -> None:
    class Callback(UserCallback):
        pass

    lab.fit(say_word, config={"word": "x"}, callbacks=[Callback()])

    with pytest.warns(UserWarning, match="not stored: RunConfig.callbacks"):
        DataParallelTrainer.restore(lab.run)
    DataParallelTrainer.restore(lab.run, run_config=RunConfig(callbacks=[Callback()]))


class Own(BaseTrainer):
    """A trainer as they were written before training functions."""

    def __init__(self, word: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.word = word

    def setup(self) -> None:
        self.word += "!"

    def training_loop(self) -> str:
        save(0 if load() is None else 1)
        return f"{self.word} {load()}"


@pytest.mark.req("T-018", "T-026")
def test_a_trainer_with_a_loop_of_its_own_runs_and_is_restored(lab: Lab) -> None:
    first = Own("hello", run_config=RunConfig("run", str(lab.storage))).fit()
    trainer = BaseTrainer.restore(lab.run)
    again = trainer.fit()

    assert isinstance(trainer, Own)
    assert (first.return_value, again.return_value) == ("hello! 0", "hello! 1")


def trainer_class(name: str) -> type[DataParallelTrainer]:
    if name == "DataParallelTrainer":
        return DataParallelTrainer
    from holdfast.train.torch import TorchTrainer

    return TorchTrainer


@pytest.mark.req("T-018")
@pytest.mark.parametrize("name", ["DataParallelTrainer", "TorchTrainer"])
def test_every_trainer_is_restored_as_what_it_was(lab: Lab, name: str) -> None:
    from holdfast.train.torch import TorchConfig

    kind = trainer_class(name)
    own: dict[str, Any] = {}
    if name == "TorchTrainer":
        own = {"torch_config": TorchConfig(timeout_s=77)}
    config = {"notes": str(lab.notes), "steps": 4}
    run_config = RunConfig("run", str(lab.storage))
    with pytest.raises(TrainingFailedError):
        kind(fail_once, train_loop_config=config, run_config=run_config, **own).fit()

    assert kind.can_restore(lab.run)
    trainer = kind.restore(lab.run)

    assert trainer.fit().return_value == 2
    assert {name: getattr(trainer, name) for name in own} == own

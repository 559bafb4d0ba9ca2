"""What trials begin with that is not their own: verified, or not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import Damaged
from holdfast.tune import Tuner
from holdfast.tune.schedulers import FIFOScheduler
from tests.integration.tune.commands import flip
from tests.integration.tune.conftest import Lab, last
from tests.integration.tune.trainables import Counter


class TakesOver(FIFOScheduler):
    """Has the first trial take over the second's newest checkpoint, after that was damaged.

    The first stops at its step 1; the second goes to its step 3; then the first goes on.
    """

    def __init__(self, study: str, damaged: list[str]) -> None:
        super().__init__()
        self.study, self.damaged = study, damaged

    def on_trial_result(self, view: Any, trial: Any, result: dict[str, Any]) -> str:
        step = result["training_iteration"]
        return self.PAUSE if (trial.number, step) in ((0, 1), (1, 3)) else self.CONTINUE

    def choose_trial_to_run(self, view: Any) -> Any:
        first, *others = view.get_trials() or [None]
        if others and others[0].status == "PAUSED" and first.status == "PAUSED":
            assert view.exploit(first, others[0], {"add": 100}, "copied")
            for name in self.damaged:
                [file] = Path(self.study, others[0].folder, name).iterdir()
                flip(file)
            return first
        waiting = ("PENDING",) if first is not None and first.number == 0 else ("PENDING", "PAUSED")
        chosen = [one for one in (*others, first) if one is not None and one.status in waiting]
        return chosen[0] if chosen else None


@pytest.mark.parametrize(
    ("damaged", "count", "says"),
    [
        ([], 3 + 3 * 100, None),
        (["checkpoint_000002"], 2 + 4 * 100, "goes on from checkpoint_000001 instead"),
        (
            ["checkpoint_000000", "checkpoint_000001", "checkpoint_000002"],
            7 + 5 * 7,  # nothing of the other is left, so the config is its own as well
            "goes on with its own weights and config",
        ),
    ],
    ids=["none", "the newest", "all"],
)
def test_a_trial_takes_over_the_newest_weights_that_are_whole(
    lab: Lab,
    caplog: pytest.LogCaptureFixture,
    damaged: list[str],
    count: int,
    says: str | None,
) -> None:
    first, _ = lab.fit(
        Counter,
        {"add": tune.grid_search([7, 1])},
        stop={"training_iteration": 6},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        tune={"metric": "count", "mode": "max", "scheduler": TakesOver(str(lab.study), damaged)},
    )

    assert last(first)["count"] == count
    assert says is None or says in caplog.text


def test_a_fork_does_not_begin_with_a_damaged_checkpoint(lab: Lab) -> None:
    tuning = {"metric": "count", "mode": "max"}
    [result] = lab.fit(Counter, {"add": 1}, tune=tuning, stop={"training_iteration": 2})
    assert result.checkpoint is not None
    [file] = Path(result.checkpoint.path).iterdir()
    flip(file)
    restored = Tuner.restore(str(lab.study), Counter)

    with pytest.raises(Damaged, match="does not match its digest"):
        restored.fork(param_space={"add": 2}, from_best=True)


def test_trials_do_not_begin_with_a_damaged_checkpoint_of_another_study(lab: Lab) -> None:
    [result] = lab.fit(Counter, {"add": 1}, stop={"training_iteration": 2})
    assert result.checkpoint is not None
    [file] = Path(result.checkpoint.path).iterdir()
    flip(file)

    with pytest.raises(Damaged, match="does not match its digest"):
        tune.run(
            Counter,
            name="second",
            storage_path=str(lab.storage),
            restore=result.checkpoint.path,
            stop={"training_iteration": 4},
        )
    assert not list((lab.storage / "second").glob("Counter*"))

"""One trial that changes its config as another did under population based training."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.study.trial import Trial
from holdfast.core.study.view import StudyView
from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.explore import copied
from holdfast.tune.schedulers.lineage import Step, read_policy, saved_iteration
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler

log = logging.getLogger(__name__)


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Runs one trial with the configs that led to the weights of a trial of an earlier study.

    At each change the trial saves and pauses, and goes on from there with the next config. Config
    and weights change together, so a loss at that moment leaves no mixture, and every step is done
    with the config that it was done with then: a deterministic trainable ends with the weights
    of the original.

    Args:
        policy_file: A `pbt_policy_<trial id>.txt` that population based training wrote.
    """

    requires_checkpoints = True
    accepts_searcher = False
    made_needs_files = True

    _policy_file: str
    _policy: list[Step]
    _done: int
    _trial_id: str | None
    _tag: str
    _is_late: bool

    def __init__(self, policy_file: str | Path) -> None:
        self._policy_file = str(policy_file)
        self._policy = read_policy(policy_file)
        self._done = 0
        self._trial_id = None
        self._tag = ""
        self._is_late = False

    @property
    def config(self) -> dict[str, Any]:
        """The config that the trial begins with."""
        found: dict[str, Any] = copied(self._policy[0].before)
        return found

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if the configs of the file are not those of this study."""
        first = self._policy[0].before
        if lacking := [key for key in space if key not in first]:
            raise ConfigError(
                f"policy_file={self._policy_file!r} is of another study: param_space has "
                f"{', '.join(map(repr, lacking))}, and the configs there have "
                f"{', '.join(map(repr, first)) or 'nothing'}",
                hint="pass the file of a study of this trainable; param_space can be left out, "
                "because whole configs are in the file",
            )

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        """Give the trial its first config; a second trial is a `TuneError`."""
        if self._trial_id not in (None, trial.trial_id):
            raise TuneError(
                f"a replay is of one trial, and {trial} would be another one",
                hint="num_samples=1, and no grid_search in param_space",
            )
        if self._trial_id is None:
            self._trial_id, self._tag = trial.trial_id, trial.experiment_tag
            trial.config = self.config

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        iteration = score_of(result, "training_iteration")
        if iteration is None or math.isnan(iteration):
            return self.CONTINUE
        due = sum(step.after <= iteration for step in self._policy)
        if due <= self._done:
            return self.CONTINUE
        if self._change(view, trial, due):
            return self.NOOP
        if iteration == self._policy[due - 1].after:
            return self.PAUSE  # it saves, and changes when that is done
        view.save_trial(trial)  # by its next result it has; what it did since is done again
        return self.CONTINUE

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        """Change the config of a trial that has paused for it."""
        saved = saved_iteration(trial)
        self._change(view, trial, sum(step.after <= saved for step in self._policy))

    def _change(self, view: StudyView, trial: Trial, due: int) -> bool:
        """Have the trial go on from its newest checkpoint with the config that is due by then.

        Returns False, and nothing happens, if there is none, or if it has not saved since.
        """
        if due <= self._done or saved_iteration(trial) < self._policy[due - 1].after:
            return False
        step = self._policy[due - 1]
        tag = f"{self._tag}@replayed_{step.after}"
        if not view.exploit(trial, trial, copied(step.config), tag):
            return False
        self._done = due
        self._warn_of_lateness(trial, step)
        return True

    def _warn_of_lateness(self, trial: Trial, step: Step) -> None:
        saved = saved_iteration(trial)
        if saved == step.after or self._is_late:
            return
        self._is_late = True
        log.warning(
            "%s has saved nothing at iteration %d, where the config was changed; it changes at %d, "
            "and does not come to the weights of the original",
            trial, step.after, saved,
        )  # fmt: skip

    def debug_string(self) -> str:
        return f"PopulationBasedTraining replay: step {self._done} of {len(self._policy)}"

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "done": self._done,
            "trial_id": self._trial_id,
            "tag": self._tag,
            "policy": self._digest(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        if state.get("policy", self._digest()) != self._digest():
            raise ConfigError(
                f"policy_file={self._policy_file!r} is not the file that the study was begun with: "
                f"{state['done']} of its changes have been made, and others are in it now",
                hint="put the original file back, or begin a new study",
            )
        super().set_state(state)
        self._done, self._trial_id, self._tag = state["done"], state["trial_id"], state["tag"]

    def _digest(self) -> str:
        """Return what tells one policy from another."""
        told = repr([(step.after, step.before, step.config) for step in self._policy])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

"""Replays the config changes of one trial of population based training."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.errors import ConfigError
from holdfast.tune.errors import TuneError
from holdfast.tune.schedulers.explore import copied
from holdfast.tune.schedulers.lineage import Step, read_policy, saved_iteration
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler
from holdfast.tune.trial import StudyView, Trial

log = logging.getLogger(__name__)


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Runs one trial with the configs that led to the weights of a trial of an earlier study.

    At each change the trial saves, pauses, and continues with the next config. Config and weights
    change together, so a crash at that moment leaves no mixture. Every step runs with its original
    config, so a deterministic trainable ends with the original weights.

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
    _has_warned: bool

    def __init__(self, policy_file: str | Path) -> None:
        self._policy_file = str(policy_file)
        self._policy = read_policy(policy_file)
        self._done = 0
        self._trial_id = None
        self._tag = ""
        self._has_warned = False

    @property
    def config(self) -> dict[str, Any]:
        """The config that the trial starts with."""
        first: dict[str, Any] = copied(self._policy[0].before)
        return first

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if `param_space` has keys that the configs in the file lack."""
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
                f"a replay runs a single trial, and {trial} would be a second one",
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
        view.save_trial(trial)  # its next result finds the save; steps since then are repeated
        return self.CONTINUE

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        """Change the config of a trial that paused for this."""
        saved = saved_iteration(trial)
        self._change(view, trial, sum(step.after <= saved for step in self._policy))

    def _change(self, view: StudyView, trial: Trial, due: int) -> bool:
        """Make the trial continue from its newest checkpoint with the config that is due.

        Return False, and do nothing, if no change is due or the trial has not saved since it was.
        """
        if due <= self._done or saved_iteration(trial) < self._policy[due - 1].after:
            return False
        step = self._policy[due - 1]
        tag = f"{self._tag}@replayed_{step.after}"
        if not view.exploit(trial, trial, copied(step.config), tag):
            return False
        self._done = due
        self._warn_if_late(trial, step)
        return True

    def _warn_if_late(self, trial: Trial, step: Step) -> None:
        saved = saved_iteration(trial)
        if saved == step.after or self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s has saved nothing at iteration %d, where the config was changed; it changes at %d, "
            "and will not end with the original weights",
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
                f"policy_file={self._policy_file!r} is not the file that the study started with: "
                f"{state['done']} of the changes in that one have been made",
                hint="put the original file back, or start a new study",
            )
        super().set_state(state)
        self._done, self._trial_id, self._tag = state["done"], state["trial_id"], state["tag"]

    def _digest(self) -> str:
        """Return a digest that differs from that of any other policy."""
        text = repr([(step.after, step.before, step.config) for step in self._policy])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

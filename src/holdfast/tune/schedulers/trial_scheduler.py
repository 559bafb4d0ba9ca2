"""The base class of schedulers, which decide what trials do next, and the FIFO scheduler.

A study can be killed at any moment, and its scheduler must then decide as if nothing had happened.
So it depends only on its own state, the arguments of its calls and what it reads from the view: no
clock, no randomness but its own, no order of hashes. After a crash it is created again with the
same arguments, gets an earlier state, and the calls since then are repeated.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.api.recorded_call import Made
from holdfast.core.names import shown
from holdfast.core.plain_data import same
from holdfast.core.study.trial import Status
from holdfast.errors import ConfigError, Damaged
from holdfast.storage.local.store import LocalStore
from holdfast.tune.trial import StudyView, Trial

WAITING = (Status.PENDING, Status.PAUSED)


class TrialScheduler(Made):
    """The base of all schedulers; write your own by overriding its methods.

    Methods are called one at a time. For each result a scheduler returns a decision: `CONTINUE`,
    `PAUSE` (save, then make room for others), `STOP` (end as finished), or `NOOP` if it has asked
    the view to change this very trial. Everything else is asked of the view.

    Attributes:
        requires_checkpoints: Whether trials are paused or copied, so that a trainable that cannot
            save would start from the beginning again and again.
        accepts_searcher: Whether trials may come from a search algorithm that learns; False if
            this scheduler changes configs itself.
        trials_ahead: How many trials should wait to start before the scheduler chooses one, as long
            as more can be created. 0 will do for a scheduler that looks at each trial by itself;
            one that compares trials would compare too few.
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    requires_checkpoints: bool = False
    accepts_searcher: bool = True
    trials_ahead: int = 0
    _supports_buffered_results: bool = True
    _metric: str | None = None
    _mode: str | None = None

    @property
    def metric(self) -> str | None:
        """The metric to judge by, None if there is none or it is not set yet."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether it may see a result when the trial is already running on."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Use the study's metric and mode; return False, and change nothing, if it has its own."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        if metric:
            self._metric = metric
        if mode:
            self._mode = mode
        return True

    def check_ready(self) -> None:
        """Raise `ConfigError` if the scheduler lacks something that it needs to judge trials."""

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if it cannot judge trials with configs from this `param_space`."""

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        """Called for a new trial, and again if it comes back after a failure."""

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        """Called when a trial failed; unless it is finished now, it may come back."""

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision for a running trial that has reported `result`."""
        return self.CONTINUE

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        """Called when a trial finished, by itself or by a rule; perhaps not if you ended it."""

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        """Called when a trial finished while it was not running; perhaps not if you ended it."""

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        """Called when a trial is paused: its process is gone, and its checkpoint is saved.

        Now it can be continued from elsewhere, or with another config, without losing a step.
        """

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return the trial to start now, None if none should start; must change nothing."""
        raise NotImplementedError(f"{type(self).__name__}.choose_trial_to_run is not implemented")

    def debug_string(self) -> str:
        """Return a line about its state, for people."""
        return f"{type(self).__name__}"

    def take_files(self) -> dict[str, str]:
        """Return text to append to files in the study's folder, by name; each text only once."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """Return everything that its arguments do not determine, as plain JSON.

        This covers every attribute of a user's class. A class whose attributes JSON cannot hold
        overrides this and `set_state`.

        Raises:
            ConfigError: An attribute would not come back from JSON exactly as it was.
        """
        ours = _declared_here(type(self))
        added = {name: value for name, value in vars(self).items() if name not in ours}
        if lost := [name for name, value in added.items() if not _survives_json(value)]:
            named = ", ".join(f"{name}={shown(added[name])}" for name in lost)
            raise ConfigError(
                f"the state of {type(self).__name__} cannot be saved: {named} would not come back "
                "from JSON as it was, and a resumed study would decide differently",
                hint=f"write {type(self).__name__}.get_state and .set_state, or keep only dicts "
                "with text keys, lists, texts, numbers, True, False and None in attributes",
            )
        return {"attributes": copy.deepcopy(added)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned, in an object made with the same arguments."""
        vars(self).update(copy.deepcopy(state["attributes"]))

    def save(self, checkpoint_path: str | Path) -> None:
        """Write the state to a file, atomically and durably."""
        path = Path(checkpoint_path).absolute()
        LocalStore(str(path.parent)).put(path.name, json.dumps(self.get_state()).encode())

    def restore(self, checkpoint_path: str | Path) -> None:
        """Restore the state from a file that `save` wrote."""
        try:
            state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise Damaged(
                f"{checkpoint_path} does not contain the state of a scheduler: {error}"
            ) from error
        self.set_state(state)


class FIFOScheduler(TrialScheduler):
    """Runs trials in the order in which they were created, each to its end."""

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        trials = view.get_trials()
        pending = (trial for trial in trials if trial.status == Status.PENDING)
        paused = (trial for trial in trials if trial.status == Status.PAUSED)
        return first_that_fits(view, pending) or first_that_fits(view, paused)


def first_that_fits(view: StudyView, trials: Iterable[Trial]) -> Trial | None:
    """Return the first trial that could start right now."""
    return next((trial for trial in trials if view.has_resources_for_trial(trial)), None)


def _declared_here(kind: type) -> frozenset[str]:
    """Return the attributes that our own classes declare, and therefore save themselves."""
    ours = (base for base in kind.__mro__ if base.__module__.startswith("holdfast."))
    return frozenset(name for base in ours for name in inspect.get_annotations(base))


def _survives_json(value: object) -> bool:
    try:
        return same(json.loads(json.dumps(value)), value)
    except (TypeError, ValueError, RecursionError):
        return False

"""What judges trials: who goes on, who pauses, who ends, and who runs next.

A scheduler is part of a study that can be killed anywhere and then decides as if nothing had been.
It depends on nothing but its own state, the arguments of its calls and what it reads from the view:
no clock, no randomness but its own, no order of hashes. After a crash it is made anew with the same
arguments, is given its state of an earlier moment, and gets the calls since then once more.
"""

from __future__ import annotations

import copy
import inspect
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.api.recorded_call import Made
from holdfast.core.names import shown
from holdfast.core.plain_data import same
from holdfast.core.study.trial import Status, Trial
from holdfast.core.study.view import StudyView
from holdfast.errors import ConfigError, Damaged

WAITING = (Status.PENDING, Status.PAUSED)


class TrialScheduler(Made):
    """The base of all schedulers; write your own by overriding what should be different.

    Hooks are called one at a time. A result asks for a decision: `CONTINUE`, `PAUSE` (save, then
    give the place to others), `STOP` (end as finished), or `NOOP` if the view was asked for
    something that moves this very trial. Whatever else is wanted is asked of the view.

    Attributes:
        requires_checkpoints: Whether trials are paused or copied, so that a trainable that cannot
            save would start from the beginning again and again.
        accepts_searcher: Whether trials may come from a search algorithm that learns; False if
            this scheduler changes configs itself.
        trials_ahead: How many trials should be there, waiting to start, before it is asked whom to
            run, as long as there are more to be made. 0 is enough for who looks at each trial by
            itself; who compares trials with each other would compare too few.
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
        """The metric that is judged by, None if none is or none is known yet."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether it may see results some time after the trial has gone on."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take over the study's metric and mode; False, and no change, if it has its own."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        if metric:
            self._metric = metric
        if mode:
            self._mode = mode
        return True

    def check_ready(self) -> None:
        """Raise `ConfigError` if something is missing that it needs to judge trials."""

    def check_space(self, space: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if it cannot judge trials whose configs come from `param_space`."""

    def on_trial_add(self, view: StudyView, trial: Trial) -> None:
        """Learn of a trial; again, if it comes back after a failure."""

    def on_trial_error(self, view: StudyView, trial: Trial) -> None:
        """Learn that a trial failed: for good if it is finished now, else it may come back."""

    def on_trial_result(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> str:
        """Return what becomes of a running trial that has reported `result`."""
        return self.CONTINUE

    def on_trial_complete(self, view: StudyView, trial: Trial, result: dict[str, Any]) -> None:
        """Learn that a trial is finished, by itself or by a rule; perhaps not if you ended it."""

    def on_trial_remove(self, view: StudyView, trial: Trial) -> None:
        """Learn that a trial that did not run is finished; perhaps not if you ended it."""

    def on_trial_pause(self, view: StudyView, trial: Trial) -> None:
        """Learn that a trial is paused now: its process is gone, and what it was to save is saved.

        The moment to have it go on from elsewhere, or with another config, without losing a step.
        """

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        """Return the trial to start now, None if none should; asking changes nothing."""
        raise NotImplementedError(f"{type(self).__name__}.choose_trial_to_run is not written")

    def debug_string(self) -> str:
        """Return one line for people who want to know how it stands."""
        return f"{type(self).__name__}"

    def take_files(self) -> dict[str, str]:
        """Return what to append to files in the study's folder, by name; each text only once."""
        return {}

    def get_state(self) -> dict[str, Any]:
        """Return all that it knows and was not told when it was made, as plain JSON.

        This covers every attribute of a class of yours. Classes that hold more than JSON can
        say write this and `set_state` themselves.

        Raises:
            ConfigError: An attribute is not exactly the same after it was JSON.
        """
        ours = _declared_here(type(self))
        added = {name: value for name, value in vars(self).items() if name not in ours}
        if lost := [name for name, value in added.items() if not _survives(value)]:
            named = ", ".join(f"{name}={shown(added[name])}" for name in lost)
            raise ConfigError(
                f"the state of {type(self).__name__} cannot be saved, and a study that is resumed "
                f"would decide otherwise: {named} is not the same again after it was JSON",
                hint=f"write {type(self).__name__}.get_state and .set_state, or keep only dicts "
                "with text keys, lists, texts, numbers, True, False and None in attributes",
            )
        return {"attributes": copy.deepcopy(added)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Become what `get_state` told of, in an object that was made with the same arguments."""
        vars(self).update(copy.deepcopy(state["attributes"]))

    def save(self, checkpoint_path: str | Path) -> None:
        """Write the state to a file; what was there before stays until the new one is whole."""
        path = Path(checkpoint_path)
        beside = path.with_name(f".{path.name}.part")
        beside.write_text(json.dumps(self.get_state()), encoding="utf-8")
        os.replace(beside, path)

    def restore(self, checkpoint_path: str | Path) -> None:
        """Take the state from a file that `save` wrote."""
        try:
            state = json.loads(Path(checkpoint_path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise Damaged(
                f"{checkpoint_path} does not hold the state of a scheduler: {error}"
            ) from error
        self.set_state(state)


class FIFOScheduler(TrialScheduler):
    """Runs trials in the order in which they were made, each to its end."""

    def choose_trial_to_run(self, view: StudyView) -> Trial | None:
        trials = view.get_trials()
        pending = (trial for trial in trials if trial.status == Status.PENDING)
        paused = (trial for trial in trials if trial.status == Status.PAUSED)
        return first_that_fits(view, pending) or first_that_fits(view, paused)


def first_that_fits(view: StudyView, trials: Iterable[Trial]) -> Trial | None:
    """Return the first trial that could start right now."""
    return next((trial for trial in trials if view.has_resources_for_trial(trial)), None)


def _declared_here(kind: type) -> frozenset[str]:
    """Return the attributes that our own classes declare, and therefore take care of themselves."""
    ours = (base for base in kind.__mro__ if base.__module__.startswith("holdfast."))
    return frozenset(name for base in ours for name in inspect.get_annotations(base))


def _survives(value: object) -> bool:
    try:
        return same(json.loads(json.dumps(value)), value)
    except (TypeError, ValueError, RecursionError):
        return False

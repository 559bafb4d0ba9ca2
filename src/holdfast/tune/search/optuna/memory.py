"""Keeps an Optuna study in memory, and converts it to data and back."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from holdfast.tune.search.optuna.distributions import optuna_module

OWNER = "holdfast:trial"  # the id of our trial; None for a trial that ran elsewhere
_DIRECTIONS = {"min": "minimize", "max": "maximize"}


class StudyMemory:
    """An Optuna study in memory, with an optional copy of its finished trials in a storage.

    Attributes:
        is_over: Whether the sampler has nothing more to suggest.
    """

    def __init__(self, modes: Sequence[str], sampler: Any, storage: Any, name: str | None) -> None:
        self._optuna = optuna_module()
        self._own = self._optuna.storages.InMemoryStorage()
        self._directions = [_DIRECTIONS[mode] for mode in modes]
        self.study = self._new_study(self._own, None)
        # Samplers remember things about one study, so every study needs its own.
        self.study.sampler = copy.deepcopy(sampler) or self._optuna.samplers.TPESampler()
        self.is_over = False
        self.study.stop = self._stop  # Optuna's own raises outside of `optimize`
        self._id = self._own.get_study_id_from_name(self.study.study_name)
        self._numbers: dict[str, int] = {}
        self._copy = None if storage is None else self._new_study(storage, name or "holdfast")
        self._copied = set() if self._copy is None else set(map(_owner, self._copy.trials))

    def _stop(self) -> None:
        self.is_over = True

    def ask(self, trial_id: str) -> Any:
        """Return a new Optuna trial."""
        trial = self.study.ask()
        trial.set_user_attr(OWNER, trial_id)
        self._numbers[trial_id] = trial.number
        return trial

    def add(
        self,
        trial_id: str | None,
        state: str,
        params: dict[str, Any],
        distributions: dict[str, Any],
        values: Sequence[float] | None = None,
        intermediate_values: dict[int, float] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        """Add a trial that this study has not created."""
        number = self._own.get_n_trials(self._id)
        self.study.add_trial(
            self._optuna.trial.create_trial(
                state=self._optuna.trial.TrialState[state],
                values=values,
                params=params,
                distributions=distributions,
                user_attrs={OWNER: trial_id},
                system_attrs=attributes or {},
                intermediate_values=intermediate_values or {},
            )
        )
        if trial_id is not None:
            self._numbers[trial_id] = number

    def report(self, trial_id: str, step: int, value: float | None) -> None:
        """Report a result of a running trial to Optuna."""
        number = self._numbers.get(trial_id)
        if number is not None and not self._trial(number).state.is_finished():
            self._own.set_trial_intermediate_value(self._optuna_id(number), step, value)

    def complete(self, trial_id: str, state: str, values: Sequence[float | None] | None) -> None:
        """Tell Optuna how a trial ended; if it had ended before, a copy of it ends this time."""
        number = self._numbers.get(trial_id)
        if number is None:
            return
        trial = self._trial(number)
        if trial.state.is_finished():
            if state == "FAIL":
                return
            self.add(trial_id, "RUNNING", trial.params, trial.distributions)
            number = self._numbers[trial_id]
        self.finish(number, state, values)
        if self._copy is not None and trial_id not in self._copied:
            self._copied.add(trial_id)
            self._copy.add_trial(self._trial(number))

    def forget(self, trial_id: str) -> None:
        """Tell Optuna that a trial, which will be added again, has failed."""
        self.finish(self._numbers.pop(trial_id), "FAIL", None)

    def finish(self, number: int, state: str, values: Sequence[float | None] | None) -> None:
        """Tell Optuna how one of its trials ended."""
        self.study.tell(number, values, self._optuna.trial.TrialState[state])

    def learn_from_storage(self) -> None:
        """Add the finished trials of the storage to the study."""
        for trial in [] if self._copy is None else self._copy.trials:
            if trial.state.is_finished():
                self.study.add_trial(trial)

    def to_data(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        kinds: dict[str, int] = {}
        trials = []
        for trial in self.study.get_trials(deepcopy=False):
            places = {}
            for name, distribution in trial.distributions.items():
                text = self._optuna.distributions.distribution_to_json(distribution)
                places[name] = kinds.setdefault(text, len(kinds))
            trials.append(
                {
                    "id": _owner(trial),
                    "state": trial.state.name,
                    "values": trial.values,
                    "params": {name: [value, places[name]] for name, value in trial.params.items()},
                    # Optuna uses the newest one where a trial has no value.
                    "told": sorted(trial.intermediate_values.items())[-1:],
                    "attributes": trial.system_attrs,
                }
            )
        attributes = self._own.get_study_system_attrs(self._id)
        return {
            "trials": trials,
            "distributions": list(map(json.loads, kinds)),
            "attributes": attributes,
            "is_over": self.is_over,
        }

    def take(self, data: dict[str, Any]) -> None:
        """Restore what `to_data` returned, in a study that is still empty."""
        read = self._optuna.distributions.json_to_distribution
        kinds = [read(json.dumps(kind)) for kind in data["distributions"]]
        for trial in data["trials"]:
            self.add(
                trial["id"],
                trial["state"],
                {name: value for name, (value, _) in trial["params"].items()},
                {name: kinds[place] for name, (_, place) in trial["params"].items()},
                trial["values"],
                dict(trial["told"]),
                trial["attributes"],
            )
        for name, value in data["attributes"].items():
            self._own.set_study_system_attr(self._id, name, value)
        self.is_over = data.get("is_over", False)

    def _trial(self, number: int) -> Any:
        return self._own.get_trial(self._optuna_id(number))

    def _optuna_id(self, number: int) -> Any:
        return self._own.get_trial_id_from_study_id_trial_number(self._id, number)

    def _new_study(self, storage: Any, name: str | None) -> Any:
        """Return a study, without Optuna's log line about it."""
        logging = self._optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.WARNING)
        try:
            return self._optuna.create_study(
                storage=storage, study_name=name, directions=self._directions, load_if_exists=True
            )
        finally:
            logging.set_verbosity(before)


def _owner(trial: Any) -> Any:
    return trial.user_attrs.get(OWNER)

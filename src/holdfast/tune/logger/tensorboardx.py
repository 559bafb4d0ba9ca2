"""Files for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.study.trial import Trial
from holdfast.tune.logger.events import Events, hyperparameters
from holdfast.tune.logger.formats import Format
from holdfast.tune.logger.logger import FileLogger
from holdfast.tune.result import TIMESTAMP


class TBXLoggerCallback(FileLogger):
    """Writes the numbers of every result to an event file, `ray/tune/<metric>`, for TensorBoard.

    The step is `timesteps_total` where it is reported, else `training_iteration`. Where results are
    superseded, a new file takes the place of the one before, and a TensorBoard that looks on begins
    the trial anew. The trial's parameters are on TensorBoard's page of hyperparameters.

    Args:
        hparams: Whether that page gets the trial's parameters.
    """

    _file_name = "the event files of TensorBoard"
    _numbered = "events.out.tfevents.{:010d}.holdfast"

    def __init__(self, *, hparams: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self._has_hparams = hparams

    def _format(self) -> Format[bytes]:
        return Events()

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return result if TIMESTAMP in result else {**result, TIMESTAMP: self._clock.now()}

    def log_trial_start(self, trial: Trial) -> None:
        """Have the trial's parameters stand first in its file."""
        parameters = self._parameters(trial)
        if parameters is not None:
            self._files.add_first(trial.folder, parameters)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if not self._files.knows(trial.folder):
            # An earlier driver died over the result, perhaps before anything was in the file.
            self.log_trial_start(trial)
        super().log_trial_result(iteration, trial, result)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        self._reconcile(trial, rows, self._parameters(trial))

    def _parameters(self, trial: Trial) -> bytes | None:
        if not self._has_hparams or not trial.evaluated_params:
            return None
        began = trial.started_at if trial.started_at is not None else self._clock.now()
        return hyperparameters(trial.evaluated_params, str(trial), began)

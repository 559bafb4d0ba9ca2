"""`result.json` and `params.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.study.trial import Trial
from holdfast.tune.logger.formats import Format
from holdfast.tune.logger.json import JsonLines
from holdfast.tune.logger.json_text import encoded_lines
from holdfast.tune.logger.logger import FileLogger, with_config
from holdfast.tune.result import EXPR_PARAM_FILE, EXPR_RESULT_FILE


class JsonLoggerCallback(FileLogger):
    """Writes every result, with its config, to `result.json`, and the config to `params.json`."""

    _file_name = EXPR_RESULT_FILE

    def _format(self) -> Format[bytes]:
        return JsonLines()

    def _row(self, trial: Trial, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_config(trial, result)

    def log_trial_start(self, trial: Trial) -> None:
        """Have `params.json` say what the trial is called with from here on."""
        self.update_config(trial, trial.config)

    def update_config(self, trial: Trial, config: Mapping[str, Any]) -> None:
        """Have `params.json` hold another config."""
        data = encoded_lines(config) + b"\n"
        self._files.put_beside(f"{trial.folder}/{EXPR_PARAM_FILE}", data)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        self.update_config(trial, trial.reported_as.config)
        super().reconcile(trial, rows)

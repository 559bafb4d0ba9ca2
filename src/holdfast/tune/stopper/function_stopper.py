"""FunctionStopper: stops trials by a user's function."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.tune.errors import InvalidStudy
from holdfast.tune.stopper.reading import reported_names
from holdfast.tune.stopper.stopper import Stopper

log = logging.getLogger(__name__)


class FunctionStopper(Stopper):
    """Stops a trial when `function(trial_id, result)` returns a true value.

    An error in the function stops nothing: the first one of each type is logged, with the names of
    the reported metrics.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        if not self.is_valid_function(function):
            raise InvalidStudy(
                f"stop={shown(function)}: not a function, {this_is(function)}",
                hint="pass a function of (trial_id, result) that returns True to stop the trial",
            )
        try:
            inspect.signature(function).bind("a trial", {})
        except TypeError as error:
            raise InvalidStudy(
                f"stop={shown(function)} cannot be called with (trial_id, result): {error}",
                hint="a stop function takes two arguments: def stop(trial_id, result): …",
            ) from None
        except ValueError:
            log.debug("%r has no signature to check", function)  # written in C, perhaps
        self._function = function
        self._logged: set[type[Exception]] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        try:
            return bool(self._function(trial_id, result))
        except Exception as error:  # must not end the study
            if type(error) not in self._logged:
                self._logged.add(type(error))
                name = getattr(self._function, "__qualname__", repr(self._function))
                log.exception(
                    "the stop function %s failed, and trial %s goes on; it reported: %s",
                    name, trial_id, reported_names(result),
                )  # fmt: skip
            return False

    def stop_all(self) -> bool:
        return False

    @classmethod
    def is_valid_function(cls, fn: object) -> bool:
        """Return whether `fn` can be called and is neither a class nor a stopper."""
        return callable(fn) and not isinstance(fn, type | Stopper)

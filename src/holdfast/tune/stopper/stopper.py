"""The base class of stoppers, and a stopper that combines several."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.api.checks import this_is
from holdfast.api.recorded_call import Made
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)


class Stopper(Made, abc.ABC):
    """Decides after each result whether the trial, or the whole study, should stop.

    Subclass it and pass an instance as `RunConfig(stop=…)`. A stopper that remembers anything
    returns it from `get_state` and takes it back in `set_state`, as plain data, so that it decides
    after a crash as it would have without one.
    """

    @abc.abstractmethod
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial that reported `result` should stop."""

    @abc.abstractmethod
    def stop_all(self) -> bool:
        """Return whether the whole study should stop; called often."""

    def get_state(self) -> dict[str, Any]:
        """Return what the stopper remembers, as data that JSON can hold."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:  # most need none
        """Go on from what `get_state` returned, perhaps in another process."""

    def forget(self, trial_id: str) -> None:
        """Drop what concerns only this trial, which is over."""


class CombinedStopper(Stopper):
    """Stops as soon as one of several stoppers would; all of them see every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise ConfigError(
                    f"CombinedStopper takes stoppers, {this_is(stopper)}",
                    hint="pass instances: CombinedStopper(MaximumIterationStopper(10), …)",
                )
        self._stoppers = [guarded(stopper) for stopper in stoppers]

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # A list, not a generator: every stopper must see every result.
        return any([stopper(trial_id, result) for stopper in self._stoppers])  # noqa: C419

    def stop_all(self) -> bool:
        return any([stopper.stop_all() for stopper in self._stoppers])  # noqa: C419

    def get_state(self) -> dict[str, Any]:
        states = [{"kind": _kind(each), "state": each.get_state()} for each in self._stoppers]
        return {"stoppers": states}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give each stopper its own state back; a stopper that has none starts afresh."""
        states = list(state.get("stoppers", ()))
        for place, stopper in enumerate(self._stoppers):
            kind = _kind(stopper)
            if place < len(states) and states[place]["kind"] == kind:
                stopper.set_state(states[place]["state"])
            else:
                log.warning("there is no saved state of the stopper %s; it starts afresh", kind)

    def forget(self, trial_id: str) -> None:
        for stopper in self._stoppers:
            stopper.forget(trial_id)


class Guarded(Stopper):
    """Wraps a user's stopper so that its errors stop neither a trial nor the study."""

    def __init__(self, stopper: Stopper) -> None:
        self.stopper = stopper
        self._logged: set[tuple[str, type[Exception]]] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._ask("__call__", lambda: self.stopper(trial_id, result)))

    def stop_all(self) -> bool:
        return bool(self._ask("stop_all", self.stopper.stop_all))

    def get_state(self) -> dict[str, Any]:
        state = self._ask("get_state", self.stopper.get_state)
        return dict(state) if isinstance(state, Mapping) else {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._ask("set_state", lambda: self.stopper.set_state(state))

    def forget(self, trial_id: str) -> None:
        self._ask("forget", lambda: self.stopper.forget(trial_id))

    def _ask(self, method: str, call: Callable[[], object]) -> object:
        try:
            return call()
        except Exception as error:  # must not end the study
            kind = (method, type(error))
            if kind not in self._logged:
                self._logged.add(kind)
                log.exception(
                    "the stopper %s failed in %s; the study goes on", _kind(self.stopper), method
                )
            return None


def guarded(stopper: Stopper) -> Stopper:
    """Return a stopper that does not raise: ours as it is, a user's in a guard."""
    is_ours = type(stopper).__module__.startswith("holdfast.")
    return stopper if is_ours else Guarded(stopper)


def _kind(stopper: Stopper) -> str:
    return type(stopper.stopper if isinstance(stopper, Guarded) else stopper).__name__

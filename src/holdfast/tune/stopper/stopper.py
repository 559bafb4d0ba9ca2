"""What a stopper is, and several as one."""

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
    """Decides after each result whether a trial has done enough, and whether the study has.

    Subclass it and pass an instance as `RunConfig(stop=…)`. A stopper that remembers anything gives
    it out with `get_state` and takes it back with `set_state`, as plain data, so that it decides
    after a crash as it would have without one.
    """

    @abc.abstractmethod
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial that reported `result` is to stop."""

    @abc.abstractmethod
    def stop_all(self) -> bool:
        """Return whether the whole study is to stop; asked often."""

    def get_state(self) -> dict[str, Any]:
        """Return what is remembered, as data that JSON can hold."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:  # most need none
        """Go on from what `get_state` has returned, perhaps in another process."""

    def forget(self, trial_id: str) -> None:
        """The trial is over: what is remembered of it alone can go."""


class CombinedStopper(Stopper):
    """Stops as soon as one of several stoppers would; all of them see every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        for one in stoppers:
            if not isinstance(one, Stopper):
                raise ConfigError(
                    f"CombinedStopper takes stoppers, {this_is(one)}",
                    hint="pass instances: CombinedStopper(MaximumIterationStopper(10), …)",
                )
        self._stoppers = [guarded(one) for one in stoppers]

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        # Asked one and all: a stopper that is passed over would not know of this result.
        return any([one(trial_id, result) for one in self._stoppers])  # noqa: C419

    def stop_all(self) -> bool:
        return any([one.stop_all() for one in self._stoppers])  # noqa: C419

    def get_state(self) -> dict[str, Any]:
        return {
            "stoppers": [{"kind": _kind(one), "state": one.get_state()} for one in self._stoppers]
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give each stopper its own state back; one that was not there begins anew, and is told."""
        kept = list(state.get("stoppers", ()))
        for place, one in enumerate(self._stoppers):
            kind = _kind(one)
            if place < len(kept) and kept[place]["kind"] == kind:
                one.set_state(kept[place]["state"])
            else:
                log.warning("nothing is remembered of the stopper %s; it begins anew", kind)

    def forget(self, trial_id: str) -> None:
        for one in self._stoppers:
            one.forget(trial_id)


class Guarded(Stopper):
    """A stopper of the user's, whose errors stop neither a trial nor the study."""

    def __init__(self, stopper: Stopper) -> None:
        self.stopper = stopper
        self._told: set[tuple[str, type[Exception]]] = set()

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

    def _ask(self, what: str, call: Callable[[], object]) -> object:
        try:
            return call()
        except Exception as error:  # it must not end the study
            kind = (what, type(error))
            if kind not in self._told:
                self._told.add(kind)
                log.exception(
                    "the stopper %s failed in %s; the study goes on", _kind(self.stopper), what
                )
            return None


def guarded(stopper: Stopper) -> Stopper:
    """Return a stopper that does not raise: ours as they are, the user's with a guard."""
    is_ours = type(stopper).__module__.startswith("holdfast.")
    return stopper if is_ours else Guarded(stopper)


def _kind(stopper: Stopper) -> str:
    return type(stopper.stopper if isinstance(stopper, Guarded) else stopper).__name__

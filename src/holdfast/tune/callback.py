"""Code of the user's that is called in the driver when something happens in a study."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import this_is
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.locate import child

log = logging.getLogger(__name__)


class Callback:
    """Subclass it, override what you want to hear of, and pass it in `RunConfig(callbacks=[…])`.

    It runs in the driver, one call at a time. What it raises is logged and does not end the study.
    `trials` are those that are not over. A callback that remembers anything can give it out with
    `get_state` and gets it back with `set_state` when the study is restored.
    """

    def setup(
        self,
        stop: Any | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """The study is about to begin, or to go on."""

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The driver is about to take in what has happened."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The driver has taken in what has happened."""

    def on_trial_start(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """An attempt of a trial has started."""

    def on_trial_restore(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """An attempt of a trial has loaded a checkpoint."""

    def on_trial_save(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has saved itself."""

    def on_trial_result(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """A trial has reported `result`, which may be changed: `result["should_checkpoint"]`."""

    def on_trial_complete(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has ended well, or was stopped."""

    def on_trial_recover(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """An attempt of a trial was lost, and another follows."""

    def on_trial_error(
        self, iteration: int, trials: Sequence[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has failed for good."""

    def on_checkpoint(
        self,
        iteration: int,
        trials: Sequence[Trial],
        trial: Trial,
        checkpoint: Checkpoint,
        **info: Any,
    ) -> None:
        """A checkpoint of a trial is committed."""

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """The study has ended, or this driver leaves it."""

    def get_state(self) -> dict[str, Any] | None:
        """Return what is remembered, as data that JSON can hold; None for nothing."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` has returned."""


_HOOKS = (
    "setup",
    "on_step_begin",
    "on_step_end",
    "on_trial_start",
    "on_trial_restore",
    "on_trial_save",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_recover",
    "on_trial_error",
    "on_checkpoint",
    "on_experiment_end",
)
_OF_LOGGERS = ("attach", "rewind", "reconcile", "flush")


class _StudyHome:
    """Tells trials where their study is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def path(self, folder: str) -> str:
        return f"{self._store.url}/{folder}"

    def local_path(self, folder: str) -> str | None:
        local = self._store.local
        return None if local is None else f"{local.root}/{folder}"

    def checkpoint(self, folder: str, directory: str) -> Checkpoint:
        return Checkpoint.in_run(child(self._store, folder), directory)


class CallbackList:
    """Several callbacks as one that never raises.

    What a callback raises is logged with the callback's name, once for each kind of error in each
    of its methods; the others are called all the same, and the study goes on.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        for one in self._callbacks:
            if isinstance(one, type) or not callable(getattr(one, "on_trial_result", None)):
                raise ConfigError(
                    f"callbacks holds {shown(one)}: {this_is(one)}, not a Callback",
                    hint="pass instances of classes that derive from holdfast.tune.Callback",
                )
        names = (*_HOOKS, *_OF_LOGGERS)
        self._listeners = {
            name: [one for one in self._callbacks if _overrides(one, name)] for name in names
        }
        self._failures: Counter[tuple[int, str, type[Exception]]] = Counter()
        self._home: _StudyHome | None = None

    def __len__(self) -> int:
        return len(self._callbacks)

    def __iter__(self) -> Any:
        return iter(self._callbacks)

    # ------------------------------------------------------------------ hooks

    def setup(self, **info: Any) -> None:
        self._tell("setup", **info)

    def on_step_begin(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_step_begin", **info)

    def on_step_end(self, **info: Any) -> None:
        self._tell("on_step_end", **info)

    def on_trial_start(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_trial_start", **info)

    def on_trial_restore(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_trial_restore", **info)

    def on_trial_save(self, **info: Any) -> None:
        self._tell("on_trial_save", **info)

    def on_trial_result(self, **info: Any) -> None:
        self._tell("on_trial_result", **info)

    def on_trial_complete(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_trial_complete", **info)

    def on_trial_recover(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_trial_recover", **info)

    def on_trial_error(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_trial_error", **info)

    def on_checkpoint(self, **info: Any) -> None:
        self._tell("on_checkpoint", **info)

    def on_experiment_end(self, **info: Any) -> None:
        self._show_home(info)
        self._tell("on_experiment_end", **info)
        for (place, name, kind), count in self._failures.items():
            if count > 1:
                what = _name_of(self._callbacks[place])
                log.error("%s.%s failed %d times with %s", what, name, count, kind.__name__)

    # ------------------------------------------------------------------ files of loggers

    def attach(self, store: Store) -> None:
        """Tell loggers where the study is; before anything else.

        Raises `ConfigError` if one of them cannot work there, while there is time.
        """
        self._home = _StudyHome(store)
        for one in self._listeners["attach"]:
            one.attach(store)  # type: ignore[attr-defined]

    def rewind(self, trial: Trial, step: int) -> None:
        """What the trial has reported after `step` no longer counts."""
        self._tell("rewind", trial, step)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        """After a crash: what the trial's files hold from the first of `rows` on is `rows`."""
        self._tell("reconcile", trial, rows)

    def flush(self, *, durable: bool = True, without: Collection[Callback] = ()) -> bool:
        """Write what waits, with `durable` for good; return whether every logger has done so."""
        listeners = [one for one in self._listeners["flush"] if one not in without]
        return all(found is True for found in self._tell_to(listeners, "flush", durable=durable))

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, Any] | None:
        """Return what callbacks remember, as data; None if none does."""
        kept = []
        for place, one in enumerate(self._callbacks):
            state = self._call(place, "get_state")
            if state is None:
                continue
            try:
                json.dumps(state)
            except (TypeError, ValueError) as error:
                self._failed(place, "get_state", error)
                continue
            kept.append({"place": place, "name": _name_of(one), "state": state})
        return {"callbacks": kept} if kept else None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give each callback its own state back; it is known by its class and place."""
        for kept in state.get("callbacks", ()):
            places = [p for p, one in enumerate(self._callbacks) if _name_of(one) == kept["name"]]
            place = kept["place"] if kept["place"] in places else next(iter(places), None)
            if place is None or (place != kept["place"] and len(places) > 1):
                log.warning("nobody takes what the callback %s has remembered", kept["name"])
            else:
                self._call(place, "set_state", kept["state"])

    # ------------------------------------------------------------------ pieces

    def _show_home(self, info: Mapping[str, Any]) -> None:
        """Have trials know where their files are before they are shown to anybody."""
        for trial in (*info.get("trials", ()), *([info["trial"]] if "trial" in info else ())):
            if trial.home is None:
                trial.home = self._home

    def _tell(self, name: str, *args: Any, **info: Any) -> list[Any]:
        return self._tell_to(self._listeners[name], name, *args, **info)

    def _tell_to(
        self, listeners: Iterable[Callback], name: str, *args: Any, **info: Any
    ) -> list[Any]:
        found = []
        for one in listeners:
            try:
                found.append(getattr(one, name)(*args, **info))
            except Exception as error:  # noqa: BLE001  # it must not end the study
                self._failed(self._callbacks.index(one), name, error)
                found.append(None)
        return found

    def _call(self, place: int, name: str, *args: Any) -> Any:
        method = getattr(self._callbacks[place], name, None)
        if method is None:
            return None
        try:
            return method(*args)
        except Exception as error:  # noqa: BLE001  # it must not end the study
            self._failed(place, name, error)
            return None

    def _failed(self, place: int, name: str, error: Exception) -> None:
        kind = (place, name, type(error))
        self._failures[kind] += 1
        if self._failures[kind] == 1:
            who = _name_of(self._callbacks[place])
            log.error("the callback %s failed in %s; the study goes on", who, name, exc_info=error)


def _overrides(callback: Callback, name: str) -> bool:
    method = getattr(callback, name, None)
    return method is not None and getattr(method, "__func__", method) is not getattr(
        Callback, name, None
    )


def _name_of(callback: Callback) -> str:
    return type(callback).__qualname__

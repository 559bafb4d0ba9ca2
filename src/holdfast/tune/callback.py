"""Callbacks: user code that the driver calls as a study runs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from holdfast.api.checks import this_is
from holdfast.checkpoint import Checkpoint
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.storage.base import Store
from holdfast.storage.locate import child
from holdfast.storage.records import encode
from holdfast.tune.trial import Trial

log = logging.getLogger(__name__)


class Callback:
    """Subclass it, override the methods you need, and pass it in `RunConfig(callbacks=[…])`.

    It runs in the driver, one call at a time. What it raises is logged and does not end the study.
    `trials` are those that are not over. A callback with state returns it from `get_state` and gets
    it back through `set_state` when the study is restored.
    """

    def setup(
        self,
        stop: Any | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """The study is about to begin or to resume."""

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The driver is about to process new events."""

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """The driver has processed new events."""

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
        """A trial has saved its state."""

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
        """A trial has finished or was stopped."""

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
        """The study has ended, or this driver stops running it."""

    def get_state(self) -> dict[str, Any] | None:
        """Return the state, as data that JSON can hold; None for none."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned."""


_HOOKS = tuple(name for name in vars(Callback) if name == "setup" or name.startswith("on_"))
_LOGGER_METHODS = ("attach", "rewind", "reconcile", "flush")


class _StudyHome:
    """The study's folder, for `Trial.home`."""

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
    """Calls several callbacks, and never raises.

    What a callback raises is logged with its name, once for each kind of error in each of its
    methods; the other callbacks are still called, and the study goes on.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            is_class = isinstance(callback, type)
            if is_class or not callable(getattr(callback, "on_trial_result", None)):
                raise ConfigError(
                    f"callbacks holds {shown(callback)}: {this_is(callback)}, not a Callback",
                    hint="pass instances of classes that derive from holdfast.tune.Callback",
                )
        self._listeners = {
            name: [callback for callback in self._callbacks if _overrides(callback, name)]
            for name in (*_HOOKS, *_LOGGER_METHODS)
        }
        self._failures: Counter[tuple[int, str, type[Exception]]] = Counter()
        self._home: _StudyHome | None = None

    def __len__(self) -> int:
        return len(self._callbacks)

    def __iter__(self) -> Any:
        return iter(self._callbacks)

    # ------------------------------------------------------------------ hooks

    def setup(self, **info: Any) -> None:
        self._notify("setup", **info)

    def on_step_begin(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_step_begin", **info)

    def on_step_end(self, **info: Any) -> None:
        self._notify("on_step_end", **info)

    def on_trial_start(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_trial_start", **info)

    def on_trial_restore(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_trial_restore", **info)

    def on_trial_save(self, **info: Any) -> None:
        self._notify("on_trial_save", **info)

    def on_trial_result(self, **info: Any) -> None:
        self._notify("on_trial_result", **info)

    def on_trial_complete(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_trial_complete", **info)

    def on_trial_recover(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_trial_recover", **info)

    def on_trial_error(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_trial_error", **info)

    def on_checkpoint(self, **info: Any) -> None:
        self._notify("on_checkpoint", **info)

    def on_experiment_end(self, **info: Any) -> None:
        self._set_home(info)
        self._notify("on_experiment_end", **info)
        for (place, name, kind), count in self._failures.items():
            if count > 1:
                callback = _name_of(self._callbacks[place])
                log.error("%s.%s failed %d times with %s", callback, name, count, kind.__name__)

    # ------------------------------------------------------------------ files of loggers

    def attach(self, store: Store) -> None:
        """Give loggers the study's folder; to be called before anything else.

        Raises `ConfigError` if one of them cannot write there.
        """
        self._home = _StudyHome(store)
        for logger in self._listeners["attach"]:
            logger.attach(store)  # type: ignore[attr-defined]

    def rewind(self, trial: Trial, step: int) -> None:
        """The trial's results after `step` no longer count."""
        self._notify("rewind", trial, step)

    def reconcile(self, trial: Trial, rows: Sequence[Mapping[str, Any]]) -> None:
        """After a crash: from the first of `rows` on, the trial's files are to hold `rows`."""
        self._notify("reconcile", trial, rows)

    def flush(self, *, durable: bool = True, without: Collection[Callback] = ()) -> bool:
        """Write what is buffered, durably if `durable`; return whether every logger succeeded."""
        loggers = [logger for logger in self._listeners["flush"] if logger not in without]
        results = [self._call(logger, "flush", durable=durable) for logger in loggers]
        return all(is_done is True for is_done in results)

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, Any] | None:
        """Return the states of callbacks, as data; None if none has one."""
        states = []
        for place, callback in enumerate(self._callbacks):
            state = self._call(callback, "get_state")
            if state is None:
                continue
            try:
                if not isinstance(state, dict):
                    raise ConfigError(f"{type(state).__name__}: a state must be a dictionary")
                encode(state)  # one that cannot be stored must not keep the others from it
            except ConfigError as error:
                self._failed(callback, "get_state", error)
                continue
            states.append({"place": place, "name": _name_of(callback), "state": state})
        return {"callbacks": states} if states else None

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give each callback its own state back, by its class and its place in the list."""
        names = [_name_of(callback) for callback in self._callbacks]
        for stored in state.get("callbacks", ()):
            name, place = stored["name"], stored["place"]
            if place >= len(names) or names[place] != name:
                if names.count(name) != 1:
                    log.warning("no callback takes the stored state of %s", name)
                    continue
                place = names.index(name)
            self._call(self._callbacks[place], "set_state", stored["state"])

    # ------------------------------------------------------------------ pieces

    def _set_home(self, info: Mapping[str, Any]) -> None:
        """Set where trials have their files, before callbacks see them."""
        for trial in (*info.get("trials", ()), *([info["trial"]] if "trial" in info else ())):
            if trial.home is None:
                trial.home = self._home

    def _notify(self, name: str, *args: Any, **info: Any) -> None:
        for callback in self._listeners[name]:
            self._call(callback, name, *args, **info)

    def _call(self, callback: Callback, name: str, *args: Any, **info: Any) -> Any:
        """Return what a method returns; None if it raises, or if there is none."""
        method = getattr(callback, name, None)
        if method is None:
            return None
        try:
            return method(*args, **info)
        except Exception as error:  # noqa: BLE001  # it must not end the study
            self._failed(callback, name, error)
            return None

    def _failed(self, callback: Callback, name: str, error: Exception) -> None:
        kind = (self._callbacks.index(callback), name, type(error))
        self._failures[kind] += 1
        if self._failures[kind] == 1:
            log.error(
                "the callback %s failed in %s; the study goes on",
                _name_of(callback),
                name,
                exc_info=error,
            )


def _overrides(callback: Callback, name: str) -> bool:
    method = getattr(callback, name, None)
    return method is not None and getattr(method, "__func__", method) is not getattr(
        Callback, name, None
    )


def _name_of(callback: Callback) -> str:
    return type(callback).__qualname__

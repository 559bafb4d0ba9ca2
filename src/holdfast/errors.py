"""Every error Holdfast raises on purpose, sorted by who must act.

    HoldfastError
    ├── ConfigError        you: a value you passed breaks a rule             HF1xx
    ├── NotSaved           a checkpoint was not saved; training can go on    HF2xx
    │   └── RanksDisagree      ranks report out of step; this attempt is over
    ├── CannotResume       the record of a run cannot be used as it is       HF3xx
    │   ├── RunMissing         there is no run at that location
    │   ├── RunHeld            another live driver holds the run
    │   ├── LeaseLost          this driver was replaced; it must stop writing
    │   ├── FormatTooNew       a newer Holdfast wrote this
    │   └── Damaged            stored bytes are not those that were written
    ├── StoreError         a store failed                                    HF4xx
    │   ├── ObjectMissing      no such object
    │   ├── Conflict           the condition of a put did not hold
    │   ├── StoreBusy          temporary fault; worth a retry
    │   │   └── EndpointWrong      unknown host or wrong certificate; no retry at the start
    │   ├── StoreDenied        not allowed: credentials, permissions
    │   ├── StoreFull          no space or quota left
    │   └── StoreForked        the store's runtime did not survive a fork
    ├── TransferCancelled  the caller cancelled a transfer                   HF5xx
    ├── EngineError        workers could not be started, and none runs       HF6xx
    └── HoldfastBug        us: a bug in Holdfast                             HF9xx

A message says what is wrong with the value and which rule it broke; `hint` is one thing to try;
`code` is stable. Errors survive pickling, because they are reported across processes.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of all errors raised on purpose; `str()` is message, code and hint."""

    code = "HF000"

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        text = f"{self.message} [{self.code}]"
        return f"{text}\n  Try: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(kind: type[HoldfastError], message: str, state: dict[str, object]) -> HoldfastError:
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(state)
    return error


class ConfigError(HoldfastError, ValueError):
    """A value passed by the user breaks a rule."""

    code = "HF100"


class NotSaved(HoldfastError):
    """The checkpoint of a report could not be committed; further reports still work."""

    code = "HF220"


class RanksDisagree(NotSaved):
    """Ranks report out of step, so a checkpoint would mix steps; the attempt fails."""

    code = "HF221"


class CannotResume(HoldfastError):
    """The record of a run cannot be used as it is."""

    code = "HF300"


class RunMissing(CannotResume, RuntimeError):
    """There is no run at the given location; also a `RuntimeError`, as in Ray."""

    code = "HF301"


class RunHeld(CannotResume):
    """Another live driver holds the run's lease."""

    code = "HF302"


class LeaseLost(CannotResume):
    """Another driver has taken over the run; this one must stop writing."""

    code = "HF303"


class Damaged(CannotResume):
    """Stored bytes are not those that were written."""

    code = "HF304"


class FormatTooNew(CannotResume):
    """The record was written by a newer version of Holdfast."""

    code = "HF305"


class StoreError(HoldfastError):
    """A store failed; `key` names the object, if there is one."""

    code = "HF400"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.key = key


class ObjectMissing(StoreError):
    """There is no such object."""

    code = "HF401"


class Conflict(StoreError):
    """The condition of a put did not hold; nothing was written."""

    code = "HF402"


class StoreBusy(StoreError):
    """A temporary fault: throttling, a dropped connection, a server error."""

    code = "HF403"


class EndpointWrong(StoreBusy):
    """The host is unknown, or its certificate is wrong; worth a retry only if it worked before."""

    code = "HF407"


class StoreDenied(StoreError):
    """The store refused: wrong credentials or missing permission."""

    code = "HF404"


class StoreFull(StoreError):
    """No space or no quota is left."""

    code = "HF405"


class StoreForked(StoreError):
    """A store was used in a process forked after the store's runtime had started."""

    code = "HF406"


class TransferCancelled(HoldfastError):
    """A transfer was cancelled by its caller; nothing was committed."""

    code = "HF501"


class EngineError(HoldfastError):
    """A group could not be started, and none of its workers runs."""

    code = "HF600"


class HoldfastBug(HoldfastError):
    """A state that only a bug in Holdfast can reach."""

    code = "HF900"

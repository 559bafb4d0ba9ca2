"""Turns what a user passes as `stop=` into one stopper."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.checks import this_is
from holdfast.core.names import shown
from holdfast.tune.errors import InvalidStudy
from holdfast.tune.stopper.dictionary import DictStopper
from holdfast.tune.stopper.function_stopper import FunctionStopper
from holdfast.tune.stopper.noop import NoopStopper
from holdfast.tune.stopper.stopper import CombinedStopper, Stopper, guarded

_HINT = (
    "pass a dictionary {'metric': number}, a Stopper, a function of (trial_id, result),"
    " or a list of these"
)


def stopper_of(stop: object) -> Stopper:
    """Return the stopper for `stop`; raise `InvalidStudy` if it is not of a form listed here.

    `stop` may be None, a dictionary of metrics, a `Stopper`, a function of `(trial_id, result)`, or
    a list of these, any of which can stop. An error in a user's stopper is logged, once for each
    type of error, and stops nothing.
    """
    match stop:
        case None:
            return NoopStopper()
        case Stopper():
            return guarded(stop)
        case Mapping():
            return DictStopper(stop) if stop else NoopStopper()
        case list() | tuple():
            return CombinedStopper(*map(stopper_of, stop))
        case type():
            is_stopper = issubclass(stop, Stopper)
            raise InvalidStudy(
                f"stop={shown(stop)}: {this_is(stop)}",
                hint=f"pass an instance: stop={stop.__name__}(…)" if is_stopper else _HINT,
            )
        case _ if callable(stop):
            return FunctionStopper(stop)
        case _:
            raise InvalidStudy(f"stop={shown(stop)}: {this_is(stop)}", hint=_HINT)

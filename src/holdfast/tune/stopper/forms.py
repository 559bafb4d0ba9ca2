"""From whatever a user passes as `stop=` to one stopper."""

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
    """Return the stopper that `stop` means; `InvalidStudy` if it means none.

    It may be None, a dictionary of metrics, a `Stopper`, a function of `(trial_id, result)`, or a
    list of these, of which any one stops. What a stopper of the user's raises stops nothing: it is
    logged, once for each kind of error, and the study goes on.
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
            wanted = f"{stop.__name__}(…)" if issubclass(stop, Stopper) else None
            raise InvalidStudy(
                f"stop={shown(stop)}: {this_is(stop)}",
                hint=f"pass an instance: stop={wanted}" if wanted else _HINT,
            )
        case _ if callable(stop):
            return FunctionStopper(stop)
        case _:
            raise InvalidStudy(f"stop={shown(stop)}: {this_is(stop)}", hint=_HINT)

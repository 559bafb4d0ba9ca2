"""Checks the arguments of schedulers, and reports all problems at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

from holdfast.api.checks import Problems, is_number, is_whole, this_is
from holdfast.errors import ConfigError

MILESTONES_MAX = 100  # a trial judged more often than that is hardly ever judged right


class Arguments(Problems):
    """Collects what is wrong with arguments; a check returns whether the argument is right."""

    def number(
        self,
        name: str,
        meaning: str,
        *,
        above: float | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> bool:
        """Check for a number within bounds."""
        value = getattr(self._config, name)
        if not is_number(value):
            self.add(name, f"not a number; {meaning}")
        elif above is not None and value <= above:
            self.add(name, f"not above {above:g}; {meaning}")
        elif at_least is not None and value < at_least:
            self.add(name, f"less than {at_least:g}; {meaning}")
        elif at_most is not None and value > at_most:
            self.add(name, f"more than {at_most:g}; {meaning}")
        else:
            return True
        return False

    def milestones(self, name: str, first: float, last: float, factor: float) -> None:
        """Check that multiplying by `factor` gets from `first` to `last` in not too many steps."""
        steps = math.inf
        with contextlib.suppress(ArithmeticError, ValueError):
            steps = (math.log(last) - math.log(first)) / math.log(factor)
        if not steps <= MILESTONES_MAX:  # true for NaN, too
            self.add(name, f"makes more than {MILESTONES_MAX} milestones")

    def function(self, name: str, meaning: str) -> bool:
        """Check for None or a callable."""
        value = getattr(self._config, name)
        if value is None or callable(value):
            return True
        self.add(name, f"cannot be called, {this_is(value)}; {meaning}")
        return False

    def seed(self, name: str = "seed") -> bool:
        """Check for None or a whole number."""
        value = getattr(self._config, name)
        if value is None or is_whole(value):
            return True
        self.add(name, "a seed is a whole number, or None for any")
        return False

    def metric(self) -> None:
        """Check `metric` and `mode`, None if set later, and `time_attr` if there is one."""
        self.text("metric", "it names the metric to judge by")
        if getattr(self._config, "mode", None) is not None:
            self.choice("mode", "min", "max")
        if hasattr(self._config, "time_attr"):
            meaning = "it names the result entry that measures progress"
            is_text = self.text("time_attr", meaning)
            if is_text and getattr(self._config, "time_attr", None) is None:
                self.add("time_attr", f"missing; {meaning}")


@contextmanager
def checking_arguments(owner: object, given: Mapping[str, object]) -> Iterator[Arguments]:
    """Yield checks of the `given` arguments, then raise all problems as one `ConfigError`.

    Args:
        owner: Whose arguments they are; the error names its class.
        given: The arguments by name; `locals()` at the start of `__init__` will do.
    """
    arguments = Arguments(SimpleNamespace(**given))
    yield arguments
    if arguments.lines:
        listed = "".join(f"\n  - {line}" for line in arguments.lines)
        hint = "; ".join(arguments.hints) or None
        raise ConfigError(f"{type(owner).__name__} cannot work:{listed}", hint=hint)

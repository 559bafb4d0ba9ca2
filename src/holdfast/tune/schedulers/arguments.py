"""Checks of what schedulers are made with: all problems at once, each by the argument's name."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from holdfast.api.checks import Problems, is_number, is_whole, this_is
from holdfast.errors import ConfigError

MILESTONES_MAX = 100  # a trial that is judged more often than that is hardly ever judged right


class Arguments(Problems):
    """What is wrong with arguments; a check returns whether one is as it should be."""

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
        """Check that from `first` to `last` it is not too many times `factor`."""
        steps = math.inf
        with contextlib.suppress(ArithmeticError, ValueError):
            steps = (math.log(last) - math.log(first)) / math.log(factor)
        if not steps <= MILESTONES_MAX:  # or it is no number
            self.add(name, f"with it there are more than {MILESTONES_MAX} milestones")

    def function(self, name: str, meaning: str) -> bool:
        """Check for None or something that can be called."""
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
        """Check `metric` and `mode`, None if told later, and `time_attr` if there is one."""
        self.text("metric", "it names what to judge by")
        if getattr(self._config, "mode", None) is not None:
            self.choice("mode", "min", "max")
        if hasattr(self._config, "time_attr"):
            told = self.text("time_attr", "it names what tells in results how far a trial is")
            if told and getattr(self._config, "time_attr", None) is None:
                self.add("time_attr", "nothing tells how far a trial is")


@contextmanager
def checking_arguments(owner: object, **given: object) -> Iterator[Arguments]:
    """Give out checks of `given`, and raise what they found as one error of the owner's."""
    found = Arguments(SimpleNamespace(**given))
    yield found
    if found.lines:
        listed = "".join(f"\n  - {line}" for line in found.lines)
        raise ConfigError(
            f"{type(owner).__name__} cannot work:{listed}", hint="; ".join(found.hints) or None
        )

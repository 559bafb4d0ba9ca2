"""Checks of a config's fields that report all problems at once, not only the first."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import ConfigError
from holdfast.storage.uris import shown_location


class Problems:
    """The problems of a config, collected while its fields are checked.

    Each check returns whether the field is valid. `meaning` explains the field in the message.
    """

    def __init__(self, config: object) -> None:
        self.lines: list[str] = []
        self.hints: list[str] = []
        self._config = config

    def add(self, name: str, rule: str, *, hint: str | None = None) -> None:
        """Add the problem that the value of the field `name` breaks `rule`."""
        self.tell(f"{name}={shown_location(getattr(self._config, name))}: {rule}", hint=hint)

    def tell(self, line: str, *, hint: str | None = None) -> None:
        """Add a problem by its whole line."""
        self.lines.append(line)
        if hint is not None and hint not in self.hints:
            self.hints.append(hint)

    def whole(self, name: str, meaning: str, *, at_least: int) -> bool:
        value = getattr(self._config, name)
        if not is_whole(value):
            self.add(name, f"{_not_a('a whole number', value)}; {meaning}")
        elif value < at_least:
            self.add(name, f"less than {at_least}; {meaning}")
        else:
            return True
        return False

    def seconds(self, name: str, meaning: str, *, above_zero: bool = False) -> bool:
        value = getattr(self._config, name)
        if not is_number(value):
            self.add(name, f"{_not_a('a number of seconds', value)}; {meaning}")
        elif value < 0 or (above_zero and value == 0):
            self.add(name, f"{'not above' if above_zero else 'less than'} 0; {meaning}")
        else:
            return True
        return False

    def finite(self, name: str, meaning: str) -> bool:
        """Check for a finite number of seconds: it is journaled, or waited for."""
        if not self.seconds(name, meaning):
            return False
        if math.isinf(getattr(self._config, name)):
            self.add(name, f"must be finite; {meaning}")
            return False
        return True

    def flag(self, name: str) -> bool:
        value = getattr(self._config, name)
        if is_flag(value):
            return True
        self.add(name, _not_a("True or False", value))
        return False

    def choice(self, name: str, *options: str) -> bool:
        if getattr(self._config, name) in options:
            return True
        *most, last = map(repr, options)
        self.add(name, f"must be {', '.join(most)} or {last}")
        return False

    def text(self, name: str, meaning: str) -> bool:
        """Check for None or a string that is not empty."""
        value = getattr(self._config, name)
        if value is None or (isinstance(value, str) and value):
            return True
        self.add(name, f"{_not_a('a string', value) if value != '' else 'empty'}; {meaning}")
        return False

    def instance(self, name: str, kind: type) -> bool:
        value = getattr(self._config, name)
        if isinstance(value, kind):
            return True
        self.add(
            name,
            f"must be a {kind.__name__} of Holdfast, {this_is(value)}",
            hint=f"write {name}={kind.__name__}(…)",
        )
        return False


@contextmanager
def checking(config: object) -> Iterator[Problems]:
    """Collect the problems of a config, and raise them, if any, as one `ConfigError`.

    Converts its numpy numbers to Python's, because the layers below write JSON.
    """
    for name, value in vars(config).items():
        vars(config)[name] = _python_number(value)
    problems = Problems(config)
    yield problems
    if problems.lines:
        listed = "".join(f"\n  - {line}" for line in problems.lines)
        raise ConfigError(
            f"{type(config).__name__} cannot work:{listed}", hint="; ".join(problems.hints) or None
        )


def is_whole(value: object) -> bool:
    """Return whether `value` is a whole number, numpy's included, but no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether `value` is a real number, numpy's included, but no NaN and no bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return not math.isnan(value)


def is_flag(value: object) -> bool:
    """Return whether `value` is True or False; 0 and 1 pass, because command lines give them."""
    return isinstance(value, int) and value in (0, 1)


def this_is(value: object) -> str:
    """Return the type of `value` for a message: "this is int"."""
    if isinstance(value, type):
        return f"this is the class {value.__qualname__} itself"
    kind = type(value)
    name = kind.__qualname__
    return f"this is {name if kind.__module__ == 'builtins' else f'{kind.__module__}.{name}'}"


def _python_number(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_python_number, value))
    if isinstance(value, numbers.Integral) and not isinstance(value, int):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        return float(value)
    return value


def _not_a(wanted: str, value: object) -> str:
    """Return that `value` is not what is wanted, with its type unless it is a number."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return f"not {wanted}"
    return f"not {wanted}, {this_is(value)}"


def is_log_target(given: object) -> bool:
    """Whether `given` is a valid `log_to_file`: True, False, a file, or a pair of files."""
    if isinstance(given, list | tuple):
        return len(given) == 2 and all(isinstance(path, str) for path in given)
    return isinstance(given, bool | str)

"""The one clock that tests turn by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """Time that passes only in `sleep`, or when the test sets it.

    Attributes:
        slept_s: How long each sleep was.
        meanwhile: Called in every sleep, for what others do during it.
    """

    time: float = 1_000_000.0
    slept_s: list[float] = field(default_factory=list)
    meanwhile: Callable[[float], None] = lambda seconds: None

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.meanwhile(seconds)
        self.time += seconds

"""Classes and functions that can be imported, for tests of values that are recorded by name."""

from __future__ import annotations

import collections
import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass
class Optimizer:
    name: str
    betas: tuple[float, float] = (0.9, 0.999)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slotted:
    width: int


@dataclass
class Scaled:
    """Rebuilding it from its fields would scale it twice."""

    lr: float

    def __post_init__(self) -> None:
        self.lr *= 2


@dataclass
class Counting:
    width: int
    count: int = field(default=0, init=False)


class Pair(NamedTuple):
    left: int
    right: int


class Colour(enum.Enum):
    RED = 1


class Text(str):
    __slots__ = ()


class Model:
    def __init__(self) -> None:
        self.width = 3

    def train(self) -> str:
        return "of an instance"

    @classmethod
    def of_class(cls) -> str:
        return "of the class"

    @staticmethod
    def of_nothing() -> str:
        return "of nothing"


def train(config: dict[str, Any]) -> str:
    return f"trained with {config}"


ORDERED = collections.OrderedDict(a=1)

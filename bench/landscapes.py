"""Functions of which the lowest value is known, for searches to find; needs nothing installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]  # numbers by name

_HEIGHTS = (1.0, 1.2, 3.0, 3.2)
_SLOPES = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_PEAKS = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def branin(config: Config) -> float:
    """Return a function of two values with three lowest places, all alike."""
    x, y = config["x"], config["y"]
    bowl = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def hartmann(config: Config) -> float:
    """Return a function of six values with several low places, of which one is lowest."""
    total = 0.0
    for height, slopes, peak in zip(_HEIGHTS, _SLOPES, _PEAKS, strict=True):
        far = sum(slopes[at] * (config[f"x{at}"] - peak[at]) ** 2 for at in range(6))
        total += height * math.exp(-far)
    return -total


@dataclass(frozen=True)
class Landscape:
    """A function, the bounds of its values by name, and its lowest value."""

    name: str
    function: Callable[[Config], float]
    bounds: Mapping[str, tuple[float, float]]
    lowest: float


LANDSCAPES = {
    "branin": Landscape("Branin", branin, {"x": (-5.0, 10.0), "y": (0.0, 15.0)}, 0.397887),
    "hartmann": Landscape(
        "Hartmann-6", hartmann, {f"x{at}": (0.0, 1.0) for at in range(6)}, -3.32237
    ),
}

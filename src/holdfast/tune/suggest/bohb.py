"""Import path of `holdfast.tune.search.bohb` before Ray 2.0."""

from holdfast.tune.search.bohb import TuneBOHB

__all__ = ["TuneBOHB"]

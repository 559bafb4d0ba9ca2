"""The path of before 2.0; see `holdfast.tune.search.bohb`."""

from holdfast.tune.search.bohb import TuneBOHB

__all__ = ["TuneBOHB"]

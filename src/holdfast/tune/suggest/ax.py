"""Import path of `holdfast.tune.search.ax` before Ray 2.0."""

from holdfast.tune.search.ax import AxSearch

__all__ = ["AxSearch"]

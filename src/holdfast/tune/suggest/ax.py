"""The path of before 2.0; see `holdfast.tune.search.ax`."""

from holdfast.tune.search.ax import AxSearch

__all__ = ["AxSearch"]

"""The path of before 2.0; see `holdfast.tune.search`."""

from holdfast.tune.search import ConcurrencyLimiter, Searcher

__all__ = ["ConcurrencyLimiter", "Searcher"]

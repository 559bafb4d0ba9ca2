"""Import path of `holdfast.tune.search` before Ray 2.0."""

from holdfast.tune.search import ConcurrencyLimiter, Searcher

__all__ = ["ConcurrencyLimiter", "Searcher"]

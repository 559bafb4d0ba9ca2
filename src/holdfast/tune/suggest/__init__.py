"""Searchers by their import paths before Ray 2.0; see `holdfast.tune.search`."""

from holdfast.tune.search import BasicVariantGenerator as BasicVariantGenerator
from holdfast.tune.search import ConcurrencyLimiter as ConcurrencyLimiter
from holdfast.tune.search import Repeater as Repeater
from holdfast.tune.search import Searcher as Searcher
from holdfast.tune.search import create_searcher as create_searcher

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "Searcher",
    "create_searcher",
]

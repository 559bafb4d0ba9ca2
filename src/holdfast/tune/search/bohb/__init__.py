"""Search by a model for every budget."""

from holdfast.tune.search.bohb.bohb_search import TuneBOHB as TuneBOHB

__all__ = ["TuneBOHB"]

"""TuneBOHB: search by a model for each budget."""

from holdfast.tune.search.bohb.bohb_search import TuneBOHB as TuneBOHB

__all__ = ["TuneBOHB"]

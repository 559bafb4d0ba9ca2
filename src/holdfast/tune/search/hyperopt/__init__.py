"""HyperOptSearch: search by a tree of Parzen estimators."""

from holdfast.tune.search.hyperopt.hyperopt_search import HyperOptSearch as HyperOptSearch

__all__ = ["HyperOptSearch"]

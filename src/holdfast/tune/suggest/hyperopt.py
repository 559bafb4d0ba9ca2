"""The path of before 2.0; see `holdfast.tune.search.hyperopt`."""

from holdfast.tune.search.hyperopt import HyperOptSearch

__all__ = ["HyperOptSearch"]

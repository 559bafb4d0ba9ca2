"""Import path of `holdfast.tune.search.hyperopt` before Ray 2.0."""

from holdfast.tune.search.hyperopt import HyperOptSearch

__all__ = ["HyperOptSearch"]

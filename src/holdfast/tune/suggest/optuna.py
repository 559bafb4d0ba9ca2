"""Import path of `holdfast.tune.search.optuna` before Ray 2.0."""

from holdfast.tune.search.optuna import OptunaSearch

__all__ = ["OptunaSearch"]

"""The path of before 2.0; see `holdfast.tune.search.optuna`."""

from holdfast.tune.search.optuna import OptunaSearch

__all__ = ["OptunaSearch"]

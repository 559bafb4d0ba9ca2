"""OptunaSearch: search by Optuna."""

from holdfast.tune.search.optuna.optuna_search import OptunaSearch as OptunaSearch

__all__ = ["OptunaSearch"]

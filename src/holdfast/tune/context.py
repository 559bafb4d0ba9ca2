"""Ray's import path for `TuneContext` and `get_context`."""

from holdfast.tune.functions import TuneContext, get_context

__all__ = ["TuneContext", "get_context"]

"""What a trial knows of itself, by the path that Ray has for it."""

from holdfast.tune.functions import TuneContext, get_context

__all__ = ["TuneContext", "get_context"]

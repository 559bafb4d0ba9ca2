"""What Tune raises, by the path that Ray has for it."""

from holdfast.tune.errors import TuneError

__all__ = ["TuneError"]

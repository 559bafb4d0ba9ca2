"""Ray's import path for `TuneError`."""

from holdfast.tune.errors import TuneError

__all__ = ["TuneError"]

"""Search domains under their older path; see `holdfast.tune.search.sample`."""

from holdfast.tune.search import sample
from holdfast.tune.search.sample import *  # noqa: F403

__all__ = sample.__all__

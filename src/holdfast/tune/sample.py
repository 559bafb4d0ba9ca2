"""Import path of `holdfast.tune.search.sample` before Ray 2.0."""

from holdfast.tune.search import sample
from holdfast.tune.search.sample import *  # noqa: F403

__all__ = sample.__all__

"""Import path of `holdfast.tune.search` before Ray 2.0."""

from holdfast.tune.search import Repeater

__all__ = ["Repeater"]

"""A trial, by the path of before 2.0."""

from holdfast.core.study.trial import Trial

__all__ = ["Trial"]

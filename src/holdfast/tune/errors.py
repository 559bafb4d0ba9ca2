"""Exceptions of studies; some have two bases, so that scripts can catch them as in Ray.

TuneError                  a study, or one of its trials, could not do what was asked
└── InvalidStudy           an argument of a study breaks a rule; also a ConfigError
    └── NotRunnable        a trainable cannot be called; also a TypeError
"""

from __future__ import annotations

from holdfast.errors import ConfigError, HoldfastError


class TuneError(HoldfastError):
    """A study, or one of its trials, could not do what was asked."""

    code = "HF700"


class InvalidStudy(ConfigError, TuneError):
    """An argument of a study breaks a rule."""


class NotRunnable(InvalidStudy, TypeError):
    """What a study must call is neither a function nor a class that it can run."""

"""What studies raise; several have two bases, so that scripts can catch them as in Ray.

TuneError                  a study, or one of its trials, could not do what was asked
└── InvalidStudy           what is said of a study breaks a rule; also a ConfigError
    └── NotRunnable        something that must be called cannot be; also a TypeError
"""

from __future__ import annotations

from holdfast.errors import ConfigError, HoldfastError


class TuneError(HoldfastError):
    """A study, or one of its trials, could not do what was asked of it."""

    code = "HF700"


class InvalidStudy(ConfigError, TuneError):
    """What a study was told breaks a rule."""


class NotRunnable(InvalidStudy, TypeError):
    """Something that a study must call is neither a function nor a class that it can."""

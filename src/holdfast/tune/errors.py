"""What studies raise."""

from __future__ import annotations

from holdfast.errors import HoldfastError


class TuneError(HoldfastError):
    """A study, or one of its trials, could not do what was asked of it."""

    code = "HF700"

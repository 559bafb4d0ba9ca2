"""Ray's import path for the checks of a trainable."""

from holdfast.tune.trainables.checks import diagnose_serialization, validate_save_restore

__all__ = ["diagnose_serialization", "validate_save_restore"]

"""Checks of a trainable, by the path that Ray has for them."""

from holdfast.tune.trainables.checks import diagnose_serialization, validate_save_restore

__all__ = ["diagnose_serialization", "validate_save_restore"]

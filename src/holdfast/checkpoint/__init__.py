"""Checkpoints: how they are committed, verified, and fetched once per machine."""

from holdfast.checkpoint.checkpoint import Checkpoint

__all__ = ["Checkpoint"]

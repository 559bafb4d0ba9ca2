"""Checkpoints: commit, verify, fetch once per node, retention."""

from holdfast.checkpoint.checkpoint import Checkpoint

__all__ = ["Checkpoint"]

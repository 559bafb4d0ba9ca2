"""Checkpoints as data: what one is, which of them a run has, and which are kept."""

"""Checkpoints: commit, verify, fetch once per node, retention."""

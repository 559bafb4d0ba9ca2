"""Hyperparameter studies that survive whatever dies, and decide as if nothing had."""

"""Drives a training run: the controller, and the workers of one attempt."""

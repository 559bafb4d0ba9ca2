"""Drives a training run: its loop, and the workers of one attempt."""

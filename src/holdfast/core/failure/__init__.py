"""Presents failures to people: the failure card, its hints, and short tracebacks."""

"""Failures as people read them: the card, its hints, and short tracebacks."""

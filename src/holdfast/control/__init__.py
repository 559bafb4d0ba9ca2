"""Loops that journal, believe, act and tell."""

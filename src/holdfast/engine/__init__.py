"""Engines: start groups of worker processes, report how each worker ended, and stop them."""

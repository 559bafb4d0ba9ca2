"""The metrics of a run: written in batches while it goes on, and read back."""

"""Trainers made again from a run's folder, as `restore(path)` of older eras does."""

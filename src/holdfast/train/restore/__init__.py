"""The deprecated `restore(path)`: rebuilds a trainer from a run's folder."""

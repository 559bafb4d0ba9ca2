"""Shared by the public APIs of Train and Tune: configs, and checks of what users pass."""

"""What the public APIs of Train and Tune have in common: configs, checks of what users pass."""

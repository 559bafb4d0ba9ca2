"""Training scripts, one per system, and the training code that all of them run."""

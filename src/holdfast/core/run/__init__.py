"""A training run as pure decisions: when groups start and stop, who is to blame, what hangs."""

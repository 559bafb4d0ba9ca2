"""Pure decisions of a training run: when groups start and stop, what is to blame, what hangs."""

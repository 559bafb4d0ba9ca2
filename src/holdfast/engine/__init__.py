"""Where processes run: starts groups of workers, says what became of them, stops them."""

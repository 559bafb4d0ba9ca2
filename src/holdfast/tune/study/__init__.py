"""A study from its user's words to its launch: specs, names, resuming and forking."""

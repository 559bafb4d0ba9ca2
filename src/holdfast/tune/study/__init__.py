"""Studies from their specification to their launch: specs, names, resuming and forking."""

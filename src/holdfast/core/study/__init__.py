"""A study as pure decisions: its trials, who judges them, and what they may use."""

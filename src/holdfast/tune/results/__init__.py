"""The results of a study, read from its storage."""

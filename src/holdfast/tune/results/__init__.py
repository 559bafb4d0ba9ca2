"""What a study has come to, read from its storage."""

"""What lets other parts of a script tell a study of what they do."""

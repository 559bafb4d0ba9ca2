"""What runs inside a worker process: the user's function, and how it reports."""

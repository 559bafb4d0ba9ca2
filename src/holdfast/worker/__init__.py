"""The worker process: runs the user's function, and sends its reports and results."""

"""Drives a study: its loop, its journal, and the processes of its trials."""

"""Bytes at rest: local disk, object stores, memory, and any filesystem a user brings."""

"""Stores: the local disk, object stores, memory, and filesystems of fsspec and pyarrow."""

"""A store on a filesystem of fsspec or pyarrow that a user passes."""

"""A store on a filesystem that a user brings, of fsspec's or pyarrow's kind."""

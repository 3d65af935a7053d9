"""Reading data files: only the bytes needed, only the rows that are live."""

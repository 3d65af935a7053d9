"""Writing data files: rows sorted, cut by partition, uploaded."""

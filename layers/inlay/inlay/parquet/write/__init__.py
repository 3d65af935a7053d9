"""Writing data files: rows sorted, split by partition, uploaded."""

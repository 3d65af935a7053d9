"""The rows of one snapshot, as Arrow."""

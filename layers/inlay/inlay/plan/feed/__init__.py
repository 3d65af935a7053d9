"""Which rows a commit added and removed."""

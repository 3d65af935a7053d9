"""The rows that were added and removed between two versions."""

"""Commits of Iceberg engines, as a catalog takes them."""

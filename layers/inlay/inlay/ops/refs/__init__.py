"""Branches and tags: make, drop, list, merge, restore."""

"""Branches and tags: create, drop, list, merge, restore."""

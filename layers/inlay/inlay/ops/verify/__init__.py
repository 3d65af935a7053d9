"""Checking a whole table, and mending what can be mended without guessing."""

"""Inspection: what a table holds and how it came to be, as Arrow tables and in words."""

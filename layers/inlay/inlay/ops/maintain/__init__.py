"""Maintenance that changes storage but no rows: rewrite, compact, expire."""

"""Checking a whole table, and repairing what can be repaired without guessing."""

"""The one way a table changes: read, plan, write, swap, and check the outcome."""

"""Creating a table, and changing its schema and partitioning."""

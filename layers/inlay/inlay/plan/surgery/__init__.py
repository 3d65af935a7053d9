"""The cheapest way to remove rows from a file, the parts of its new object, and the new row positions."""

"""Delta tables of other writers, as plain values."""

"""The table's types, conditions and assignments over Arrow values."""

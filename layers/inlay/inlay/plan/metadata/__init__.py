"""The metadata tree: entries in leaves, leaves under nodes, a pointer that stays small."""

"""What a change makes of its base: requirements, conflicts, the next snapshot."""

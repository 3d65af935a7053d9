"""Reading metadata: the pointer, archived versions, segments, one file's entry."""

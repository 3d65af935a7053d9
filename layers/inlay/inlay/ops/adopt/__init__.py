"""Tables of other formats, taken over where they are."""

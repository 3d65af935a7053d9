"""Which files are worth rewriting, which versions expire, which objects are garbage."""

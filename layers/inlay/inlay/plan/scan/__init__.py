"""Which files are read, under which deletes, with which part of the condition."""

"""Writing the objects a commit refers to: data files, deletion vectors, server-side copies."""

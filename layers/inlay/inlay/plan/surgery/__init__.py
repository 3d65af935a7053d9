"""By which means rows leave a file, how its new object is cut into parts, where its rows went."""

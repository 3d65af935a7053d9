"""What tags and branches hold, and what a merge changes on main."""

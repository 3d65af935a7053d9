"""What tags and branches hold, and what a merge brings back."""

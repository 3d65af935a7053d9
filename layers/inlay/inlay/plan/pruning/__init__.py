"""What metadata alone proves about the rows of a file."""

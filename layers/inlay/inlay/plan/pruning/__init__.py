"""What metadata alone makes sure of the rows of a file."""

"""What must hold of metadata, and what a check can find."""

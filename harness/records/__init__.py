"""What a trial leaves behind, and what may be compared."""

"""What a user adds must offer, and how it is found by name."""

"""A schedule to rows in memory and gathers; NumPy only."""

"""What networks in JAX are made of: plans of rows, recurrences, losses."""

"""JAX: programs compiled by XLA for padded shapes."""

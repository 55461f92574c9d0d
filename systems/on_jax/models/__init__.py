"""Networks in JAX, one module per kind of instances, and their common parts."""

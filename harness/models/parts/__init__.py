"""Construction of graphs from trees, chains and lattices, and shared cells."""

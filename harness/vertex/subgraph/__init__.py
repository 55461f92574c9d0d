"""Static subgraphs: a vertex function's own operators batched, and laid out in memory for it."""

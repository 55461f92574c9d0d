"""Static subgraphs: batching and memory layout of the operators inside a vertex function."""

"""CPU backend with its own memory and instruction programs: all batches of a stage in one call."""

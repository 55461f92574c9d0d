"""Own memory and programs of instructions: all batches of a stage in one call."""

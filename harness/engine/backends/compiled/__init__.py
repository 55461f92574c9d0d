"""Own memory and generated code: all batches of a stage in one call."""

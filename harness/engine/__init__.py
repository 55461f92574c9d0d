"""The shared engine: runs batches as a schedule says."""

"""The shared engine, single cells, and the oracle as a system."""

"""The shared engine, single cells, and the reference as a system."""

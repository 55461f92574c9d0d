"""Shared engine that executes the batches of a schedule."""

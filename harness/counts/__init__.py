"""Batch counts: asked for, planned, counted in a child process, recorded and reported."""

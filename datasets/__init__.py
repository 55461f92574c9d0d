"""Inputs, one corpus a file, read or generated."""

"""Batch counts of policies: asked for, counted, recorded."""

"""Datasets, read from files or generated: one module per corpus."""

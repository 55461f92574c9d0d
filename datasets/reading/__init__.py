"""Readers of file formats, vocabularies."""

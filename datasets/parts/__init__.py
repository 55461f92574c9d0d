"""Corpora: their text, vocabularies, drawing from a seed, downloads, and what is told of them."""

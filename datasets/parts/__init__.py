"""Common parts of corpora: text files, vocabularies, generation, downloads and statistics."""

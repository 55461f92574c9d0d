"""Plans of mini-batches for all frameworks, made by NumPy: rows of words, vertices and states."""

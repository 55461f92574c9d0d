"""Plans of mini-batches, made with NumPy for all frameworks: rows of words, vertices and states."""

"""Models in TensorFlow: sentences, single trees, and looms, in one module each."""

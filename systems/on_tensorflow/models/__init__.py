"""Models in TensorFlow: a file for each, with one network class for each system that runs it."""

"""Models in TensorFlow: a module for sentences, one for trees one by one, one for looms."""

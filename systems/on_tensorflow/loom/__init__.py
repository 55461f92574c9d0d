"""TensorFlow Fold's loom, re-implemented: type shapes, ops, the weaver and the loop over depths."""

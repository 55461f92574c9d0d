"""Models in DyNet, one module per family."""

"""Models in DyNet, a module for each family."""

"""Models as PyTorch modules, a module for each family."""

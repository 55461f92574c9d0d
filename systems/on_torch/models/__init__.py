"""Models as PyTorch modules, one Python module per family."""

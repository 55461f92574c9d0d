"""Models as PyTorch modules, a file each."""

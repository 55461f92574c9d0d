"""PyTorch backend with one call per step, on CPU or CUDA."""

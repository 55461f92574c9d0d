"""One step a call, with PyTorch; CPU and CUDA."""

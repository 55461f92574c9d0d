"""Generated kernels for a GPU, through Triton: fused kinds that a device program walks."""

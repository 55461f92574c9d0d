"""CUDA backend: generated Triton kernels that run each mini-batch as a device program."""

"""Compiled kernels and matmul libraries that backends call on the CPU."""

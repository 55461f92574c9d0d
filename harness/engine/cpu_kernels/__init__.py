"""Kernels in numba and BLAS, called by backends on the CPU."""

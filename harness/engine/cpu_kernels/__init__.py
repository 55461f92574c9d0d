"""Compiled kernels and BLAS, called by backends on the CPU."""

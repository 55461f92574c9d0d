"""Networks written by hand in C++: level and time batching on a BLAS, without a framework."""

"""Compilation of programs that wait, by a subclass of the compiler's function writer."""

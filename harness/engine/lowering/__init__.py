"""Lowering of vertex functions to plans of steps; no framework."""

"""Vertex functions to plans of steps; no framework."""

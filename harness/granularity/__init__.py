"""Granularities of the scheduled graph: whole vertices, single operators, or the released graph."""

"""Bricks of policies: ready lists, levels, bounds, rounds."""

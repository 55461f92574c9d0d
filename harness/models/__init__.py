"""Models, one per file, independent of any framework."""

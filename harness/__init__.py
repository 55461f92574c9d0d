"""The benchmark: what it measures, counts and runs, in layers; see docs/map.md."""

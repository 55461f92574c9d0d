"""Core of the benchmark, in layers: what it measures, counts and runs; see docs/map.md."""
